// Selects kernels at run time by the features of the CPU.
#include <cstring>

#include "kernels.h"

#if defined(__linux__) && defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace regard {
namespace {

#if defined(__aarch64__)
bool has_dot_product() {
#if defined(__APPLE__)
  return true;  // every Apple CPU that runs 64-bit macOS
#elif defined(__linux__)
  constexpr unsigned long dot_product = 1UL << 20;  // HWCAP_ASIMDDP
  return (getauxval(AT_HWCAP) & dot_product) != 0;
#else
  return false;
#endif
}

bool has_int8_matrices() {
#if defined(__APPLE__)
  int found = 0;
  std::size_t size = sizeof(found);
  return sysctlbyname("hw.optional.arm.FEAT_I8MM", &found, &size, nullptr, 0) == 0 && found != 0;
#elif defined(__linux__)
  constexpr unsigned long int8_matrices = 1UL << 13;  // HWCAP2_I8MM
  return has_dot_product() && (getauxval(AT_HWCAP2) & int8_matrices) != 0;
#else
  return false;
#endif
}
#endif

// The available tables, fastest first. The CPU decides; a table that was not compiled is null.
int available_kernels(const Kernels* (&found)[4]) {
  int count = 0;
  auto offer = [&](const Kernels* table) {
    if (table != nullptr) found[count++] = table;
  };
#if defined(__aarch64__)
  if (has_int8_matrices()) offer(neon_i8mm_kernels());
  if (has_dot_product()) offer(neon_dot_kernels());
  offer(neon_kernels());
#elif defined(__x86_64__) || defined(__i386__)
  __builtin_cpu_init();
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  if (avx512) offer(avx512_kernels());
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) offer(avx2_kernels());
#endif
  offer(plain_kernels());
  return count;
}

}  // namespace

const Kernels* find_kernels(const char* name) {
  const Kernels* found[4] = {};
  const int count = available_kernels(found);
  if (name == nullptr || *name == '\0') return found[0];
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(found[i]->name, name) == 0) return found[i];
  }
  return nullptr;
}

const char* kernel_name(int index) {
  const Kernels* found[4] = {};
  const int count = available_kernels(found);
  return index >= 0 && index < count ? found[index]->name : nullptr;
}

}  // namespace regard
