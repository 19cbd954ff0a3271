/* A double of libnvidia-ml.so.1 for tests of our own call and error paths. It is no evidence about hardware:
 * a structure here is as true as we wrote it.
 *
 * FAKE_NVML_COUNT   number of GPUs, H100-like, at 00000000:1B:00.0, 00000000:2B:00.0, ...
 * FAKE_NVML_FAULTS  "function=code" or "function@index=code", separated by commas. code is an nvmlReturn_t;
 *                   "hang" never returns, "crash" aborts.
 * What is not defined here is absent, as in an old driver. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int Return;
typedef void *Device;

static int count(void) {
  const char *text = getenv("FAKE_NVML_COUNT");
  return text ? atoi(text) : 0;
}

static int index_of(Device device) { return (int)(size_t)device - 1; }

static Return fault(const char *function, int index) {
  const char *text = getenv("FAKE_NVML_FAULTS");
  char wanted[160];
  for (int with_index = 0; text && with_index < 2; with_index++) {
    if (with_index)
      snprintf(wanted, sizeof wanted, "%s@%d=", function, index);
    else
      snprintf(wanted, sizeof wanted, "%s=", function);
    const char *found = strstr(text, wanted);
    if (!found || (found != text && found[-1] != ','))
      continue;
    const char *code = found + strlen(wanted);
    if (!strncmp(code, "hang", 4))
      for (;;)
        pause();
    if (!strncmp(code, "crash", 5))
      abort();
    return atoi(code);
  }
  return 0;
}

#define HOST_FAULT                                                                                 \
  do {                                                                                             \
    Return code = fault(__func__, -1);                                                             \
    if (code)                                                                                      \
      return code;                                                                                 \
  } while (0)
#define GPU_FAULT(device)                                                                          \
  do {                                                                                             \
    Return code = fault(__func__, index_of(device));                                               \
    if (!code)                                                                                     \
      code = fault("any", index_of(device));                                                       \
    if (code)                                                                                      \
      return code;                                                                                 \
  } while (0)

Return nvmlInitWithFlags(unsigned flags) { HOST_FAULT; return 0; }
Return nvmlInit_v2(void) { HOST_FAULT; return 0; }
Return nvmlShutdown(void) { HOST_FAULT; return 0; }
const char *nvmlErrorString(Return code) { return code == 15 ? "GPU is lost" : "an error of the double"; }

Return nvmlSystemGetDriverVersion(char *text, unsigned length) {
  HOST_FAULT;
  snprintf(text, length, "570.86.15");
  return 0;
}
Return nvmlSystemGetCudaDriverVersion_v2(int *version) { HOST_FAULT; *version = 12080; return 0; }
Return nvmlSystemGetProcessName(unsigned pid, char *text, unsigned length) {
  HOST_FAULT;
  snprintf(text, length, "python3");
  return 0;
}
Return nvmlDeviceGetCount_v2(unsigned *number) { HOST_FAULT; *number = (unsigned)count(); return 0; }
Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
  Return code = fault(__func__, (int)index);
  if (code)
    return code;
  if ((int)index >= count())
    return 2;
  *device = (Device)(size_t)(index + 1);
  return 0;
}

Return nvmlDeviceGetName(Device device, char *text, unsigned length) {
  GPU_FAULT(device);
  snprintf(text, length, "NVIDIA H100 80GB HBM3");
  return 0;
}
Return nvmlDeviceGetUUID(Device device, char *text, unsigned length) {
  GPU_FAULT(device);
  snprintf(text, length, "GPU-00000000-0000-0000-0000-%012d", index_of(device));
  return 0;
}
Return nvmlDeviceGetVbiosVersion(Device device, char *text, unsigned length) {
  GPU_FAULT(device);
  snprintf(text, length, "96.00.89.00.01");
  return 0;
}

typedef struct {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
} PciInfo;
static void fill_pci(int index, PciInfo *info) {
  memset(info, 0, sizeof *info);
  info->bus = (unsigned)(0x1b + 0x10 * index);
  info->pci_device_id = 0x233010de;
  snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
}
Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
  GPU_FAULT(device);
  fill_pci(index_of(device), info);
  return 0;
}

typedef struct {
  unsigned long long total, free, used;
} Memory;
Return nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
  GPU_FAULT(device);
  memory->total = 85520809984ULL;
  memory->used = 1ULL << 30;
  memory->free = memory->total - memory->used;
  return 0;
}
typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} Memory2;
Return nvmlDeviceGetMemoryInfo_v2(Device device, Memory2 *memory) {
  GPU_FAULT(device);
  memory->total = 85520809984ULL;
  memory->reserved = 600ULL << 20;
  memory->used = 0;
  memory->free = memory->total - memory->reserved;
  return 0;
}

Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) {
  GPU_FAULT(device);
  *celsius = 41;
  return 0;
}
Return nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
  GPU_FAULT(device);
  *milliwatts = 112000;
  return 0;
}
Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *milliwatts) {
  GPU_FAULT(device);
  *milliwatts = 700000;
  return 0;
}
/* Only the older of the two names: a driver before 535. */
Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long *bits) {
  GPU_FAULT(device);
  *bits = 0x1;
  return 0;
}
Return nvmlDeviceGetPersistenceMode(Device device, unsigned *mode) { GPU_FAULT(device); *mode = 1; return 0; }
Return nvmlDeviceGetComputeMode(Device device, unsigned *mode) { GPU_FAULT(device); *mode = 0; return 0; }
Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
  GPU_FAULT(device);
  *current = *pending = 0;
  return 0;
}
Return nvmlDeviceGetEccMode(Device device, unsigned *current, unsigned *pending) {
  GPU_FAULT(device);
  *current = *pending = 1;
  return 0;
}
Return nvmlDeviceGetTotalEccErrors(Device device, unsigned kind, unsigned counter, unsigned long long *errors) {
  GPU_FAULT(device);
  *errors = 0;
  return 0;
}
Return nvmlDeviceGetRemappedRows(Device device, unsigned *corrected, unsigned *uncorrected, unsigned *pending,
                                 unsigned *failed) {
  GPU_FAULT(device);
  *corrected = *uncorrected = *pending = *failed = 0;
  return 0;
}
Return nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned *width) { GPU_FAULT(device); *width = 16; return 0; }
Return nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned *width) { GPU_FAULT(device); *width = 16; return 0; }
Return nvmlDeviceValidateInforom(Device device) { GPU_FAULT(device); return 0; }

/* Two processes' worth of the call's protocol: asked for the size first, then with room. */
typedef struct {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
} Process;
Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *number, Process *processes) {
  GPU_FAULT(device);
  if (*number < 1 || !processes) {
    *number = 1;
    return 7;
  }
  *number = 1;
  memset(processes, 0, sizeof *processes);
  processes->pid = 4242;
  processes->used = 1ULL << 29;
  return 0;
}

/* Every GPU has 18 links to a switch. */
Return nvmlDeviceGetNvLinkState(Device device, unsigned link, unsigned *active) {
  GPU_FAULT(device);
  if (link >= 18)
    return 2;
  *active = 1;
  return 0;
}
Return nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, unsigned *kind) {
  GPU_FAULT(device);
  *kind = 2;
  return 0;
}
Return nvmlDeviceGetTopologyCommonAncestor(Device device, Device other, unsigned *level) {
  GPU_FAULT(device);
  *level = 50;
  return 0;
}
Return nvmlDeviceGetP2PStatus(Device device, Device other, unsigned kind, unsigned *status) {
  GPU_FAULT(device);
  *status = 0;
  return 0;
}

typedef struct {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  Return code;
  union {
    double real;
    unsigned number;
    unsigned long long large;
  } value;
} FieldValue;
Return nvmlDeviceGetFieldValues(Device device, int number, FieldValue *values) {
  GPU_FAULT(device);
  for (int at = 0; at < number; at++) {
    values[at].code = 0;
    values[at].type = 1;
    if (values[at].field == 164)
      values[at].value.number = 26562; /* NVLink speed, MB/s */
    else if (values[at].field == 230)
      values[at].value.number = 0; /* recovery action */
    else if (values[at].field >= 161 && values[at].field <= 163)
      values[at].value.number = 0; /* NVLink errors */
    else
      values[at].code = 3;
  }
  return 0;
}

/* The structure's version is checked: version 3 is refused, as by a driver that knows version 2 only. */
typedef struct {
  unsigned version;
  unsigned char cluster[16];
  Return status;
  unsigned clique, state, health_mask;
} Fabric2;
Return nvmlDeviceGetGpuFabricInfoV(Device device, Fabric2 *info) {
  GPU_FAULT(device);
  if (info->version >> 24 != 2)
    return 25;
  info->status = 0;
  info->clique = 0;
  info->state = 3;
  info->health_mask = 0x2 | 0x2 << 2 | 0x2 << 4;
  return 0;
}
