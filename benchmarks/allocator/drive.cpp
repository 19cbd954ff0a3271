// Runs torch's own caching allocator on lines of standard input and prints what it counts after each.
//
//   m ID BYTES STREAM    allocate        f ID    free        e    empty the cache
//
// Prints: address of the new block (hexadecimal, 0 otherwise), allocated, reserved, requested, inactive split, retries,
// and `oom` where the request was refused.
#include <c10/cuda/CUDACachingAllocator.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_map>

int main() {
  using namespace c10::cuda;
  auto* allocator = CUDACachingAllocator::get();
  allocator->init(1);
  if (const char* fraction = getenv("FAKE_FRACTION")) allocator->setMemoryFraction(atof(fraction), 0);
  std::unordered_map<long, void*> live;
  char line[256];
  while (fgets(line, sizeof line, stdin)) {
    long id = 0, size = 0, stream = 0;
    void* block = nullptr;
    const char* note = "";
    if (sscanf(line, "m %ld %ld %ld", &id, &size, &stream) == 3) {
      try {
        const auto handle = stream ? 0x2000 + stream * 0x100 : 0;
        block = live[id] = allocator->raw_alloc_with_stream(size, reinterpret_cast<cudaStream_t>(handle));
      } catch (const c10::OutOfMemoryError&) {
        live.erase(id);
        note = " oom";
      }
    } else if (sscanf(line, "f %ld", &id) == 1 && live.count(id)) {
      allocator->raw_delete(live[id]);
      live.erase(id);
    } else if (line[0] == 'e') {
      allocator->emptyCache();
    }
    const auto stats = allocator->getDeviceStats(0);
    printf("%lx %ld %ld %ld %ld %ld%s\n", reinterpret_cast<long>(block), stats.allocated_bytes[0].current,
           stats.reserved_bytes[0].current, stats.requested_bytes[0].current, stats.inactive_split_bytes[0].current,
           stats.num_alloc_retries, note);
  }
  fflush(stdout);
  _Exit(0);
}
