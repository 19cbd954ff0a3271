/* A CUDA runtime without a GPU: enough of it for torch's caching allocator (libc10_cuda.so) to run.
 *
 * Memory is numbers: FAKE_CAPACITY bytes can be lent, FAKE_DEVICE is what the whole device is said to have. Addresses
 * ascend and are never used twice. Built twice over by oom_allocator_binary.py: as libcudart.so.12 or .13, and as
 * libcuda.so.1 and libnvidia-ml.so.1, which torch up to 2.9 looks for by name.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, OUT_OF_MEMORY = 2, MAX_SEGMENTS = 1 << 20, MAX_PAGES = 1 << 22, TOTAL_MEMORY_AT = 288 };

#ifdef AS_RUNTIME
static uint64_t lent, next_address = 1ull << 44, next_space = 1ull << 60, num_pages = 1, num_streams;
static struct { uint64_t address, size; } segments[MAX_SEGMENTS];
static uint64_t pages[MAX_PAGES];
static int num_segments, last_error;

static uint64_t number(const char *name) {
  const char *text = getenv(name);
  return text ? strtoull(text, 0, 10) : 1ull << 50;
}
static int lend(uint64_t size) {
  if (lent + size > number("FAKE_CAPACITY")) return OUT_OF_MEMORY;
  lent += size;
  return OK;
}

int cudaMalloc(void **where, size_t size) {
  if ((last_error = lend(size))) return last_error;
  segments[num_segments].address = next_address;
  segments[num_segments++].size = size;
  *where = (void *)next_address;
  next_address += size;
  return OK;
}
int cudaFree(void *where) {
  for (int i = 0; i < num_segments; i++)
    if (segments[i].address == (uint64_t)where) {
      lent -= segments[i].size;
      segments[i] = segments[--num_segments];
      return OK;
    }
  return OK;
}
int fake_reserve(uint64_t *where, size_t size, size_t align, uint64_t at, uint64_t flags) {
  /* A multiple of every page that an expandable segment has here. */
  const uint64_t page = 20ull << 20;
  *where = next_space = (next_space + page - 1) / page * page;
  next_space += size;
  return OK;
}
int fake_create(uint64_t *page, size_t size, void *how, uint64_t flags) {
  if (lend(size)) return OUT_OF_MEMORY;
  pages[num_pages] = size;
  *page = num_pages++;
  return OK;
}
int fake_release(uint64_t page) { lent -= pages[page]; return OK; }
int fake_zero(int *value) { *value = 0; return OK; }
int fake_granularity(size_t *size) { *size = 2 << 20; return OK; }
static int nothing(void) { return OK; }

static void *driver_function(const char *name) {
  if (!strcmp(name, "cuMemAddressReserve")) return fake_reserve;
  if (!strcmp(name, "cuMemCreate")) return fake_create;
  if (!strcmp(name, "cuMemRelease")) return fake_release;
  if (!strcmp(name, "cuDeviceGetAttribute")) return fake_zero;
  if (!strcmp(name, "cuMemGetAllocationGranularity")) return fake_granularity;
  return nothing;
}
int cudaGetDriverEntryPoint(const char *name, void **function, uint64_t flags, int *status) {
  *function = driver_function(name);
  if (status) *status = 0;
  return OK;
}
int cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version, uint64_t flags, int *status) {
  return cudaGetDriverEntryPoint(name, function, flags, status);
}
int cudaGetDeviceProperties(char *properties, int device) {
  /* Nothing behind totalGlobalMem is looked at; the struct has more than 700 bytes in CUDA 12 and 13. */
  memset(properties, 0, 700);
  *(uint64_t *)(properties + TOTAL_MEMORY_AT) = number("FAKE_DEVICE");
  return OK;
}
int cudaGetDeviceProperties_v2(char *properties, int device) { return cudaGetDeviceProperties(properties, device); }
int cudaMemGetInfo(size_t *left, size_t *total) {
  *left = number("FAKE_CAPACITY") - lent;
  *total = number("FAKE_DEVICE");
  return OK;
}
int cudaGetLastError(void) { int error = last_error; last_error = OK; return error; }
const char *cudaGetErrorName(int error) { return "fake"; }
const char *cudaGetErrorString(int error) { return "fake"; }
int cudaGetDevice(int *device) { return fake_zero(device); }
int cudaGetDeviceCount(int *count) { *count = 1; return OK; }
int cudaDriverGetVersion(int *version) { *version = 13000; return OK; }
int cudaStreamIsCapturing(void *stream, int *status) { return fake_zero(status); }
int cudaStreamGetCaptureInfo(void *stream, int *status) { return fake_zero(status); }
int cudaStreamGetCaptureInfo_v2(void *stream, int *status) { return fake_zero(status); }
int cudaDeviceGetStreamPriorityRange(int *least, int *greatest) { *greatest = -3; return fake_zero(least); }
int cudaStreamCreateWithPriority(void **stream, unsigned flags, int priority) {
  *stream = (void *)(0x1000 + 0x100 * ++num_streams);
  return OK;
}
#define NOTHING(name) int name(void) { return OK; }
NOTHING(cudaDeviceCanAccessPeer) NOTHING(cudaDeviceEnablePeerAccess) NOTHING(cudaDeviceGetDefaultMemPool)
NOTHING(cudaDeviceSynchronize) NOTHING(cudaEventCreateWithFlags) NOTHING(cudaEventDestroy)
NOTHING(cudaEventElapsedTime) NOTHING(cudaEventQuery) NOTHING(cudaEventRecord) NOTHING(cudaEventSynchronize)
NOTHING(cudaFreeAsync) NOTHING(cudaGraphNodeGetDependencies) NOTHING(cudaIpcCloseMemHandle)
NOTHING(cudaIpcGetMemHandle) NOTHING(cudaIpcOpenMemHandle) NOTHING(cudaMallocAsync)
NOTHING(cudaMemPoolGetAttribute) NOTHING(cudaMemPoolSetAccess) NOTHING(cudaMemPoolSetAttribute)
NOTHING(cudaMemPoolTrimTo) NOTHING(cudaMemcpy) NOTHING(cudaMemcpyAsync) NOTHING(cudaMemcpyPeerAsync)
NOTHING(cudaSetDevice) NOTHING(cudaStreamQuery) NOTHING(cudaStreamSynchronize) NOTHING(cudaStreamWaitEvent)
NOTHING(cudaThreadExchangeStreamCaptureMode) NOTHING(cudaDeviceGetAttribute) NOTHING(cudaStreamGetPriority)
#endif

#ifdef AS_DRIVER
int fake_reserve(uint64_t *, size_t, size_t, uint64_t, uint64_t), fake_create(uint64_t *, size_t, void *, uint64_t);
int fake_release(uint64_t), fake_zero(int *), fake_granularity(size_t *);
int cuMemAddressReserve(uint64_t *where, size_t size, size_t align, uint64_t at, uint64_t flags) {
  return fake_reserve(where, size, align, at, flags);
}
int cuMemCreate(uint64_t *page, size_t size, void *how, uint64_t flags) { return fake_create(page, size, how, flags); }
int cuMemRelease(uint64_t page) { return fake_release(page); }
int cuDeviceGetAttribute(int *value) { return fake_zero(value); }
int cuMemGetAllocationGranularity(size_t *size) { return fake_granularity(size); }
#define NOTHING(name) int name(void) { return OK; }
NOTHING(cuMemMap) NOTHING(cuMemAddressFree) NOTHING(cuMemSetAccess) NOTHING(cuMemUnmap) NOTHING(cuGetErrorString)
NOTHING(cuMemExportToShareableHandle) NOTHING(cuMemImportFromShareableHandle) NOTHING(cuMemsetD32Async)
NOTHING(cuStreamWriteValue32) NOTHING(cuMulticastAddDevice) NOTHING(cuMulticastBindMem) NOTHING(cuMulticastCreate)
NOTHING(cuMulticastUnbind) NOTHING(cuCtxGetCurrent) NOTHING(cuDeviceGet) NOTHING(cuMemGetAddressRange)
NOTHING(cuMemRetainAllocationHandle) NOTHING(cuMemGetAllocationPropertiesFromHandle)
#endif

#ifdef AS_NVML
#define NOTHING(name) int name(void) { return OK; }
NOTHING(nvmlInit_v2) NOTHING(nvmlDeviceGetHandleByPciBusId_v2) NOTHING(nvmlDeviceGetNvLinkRemoteDeviceType)
NOTHING(nvmlDeviceGetNvLinkRemotePciInfo_v2) NOTHING(nvmlSystemGetCudaDriverVersion_v2)
NOTHING(nvmlDeviceGetGpuFabricInfoV)
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count) { *count = 0; return OK; }
#endif
