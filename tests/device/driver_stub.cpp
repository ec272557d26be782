// SPDX-License-Identifier: Apache-2.0
// A driver (libcuda.so.1) for a device that is broken: whatever it is asked it answers with the error whose number
// ZOOMR_STUB_ERROR is. Programs find it through LD_LIBRARY_PATH, and CUDA's own runtime in them says what it makes of
// that.
#include <cstdlib>  // std::getenv, std::atoi
#include <cstring>  // std::strcmp

namespace {

int error() {
  const char* const number = std::getenv("ZOOMR_STUB_ERROR");
  return number == nullptr ? 999 : std::atoi(number);  // 999: unknown
}
int answer() { return error(); }
int find(const char* symbol, void** function, int version, unsigned long flags, int* status);

}  // namespace

extern "C" {
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
int cuInit(unsigned) { return error(); }
int cuGetProcAddress_v2(const char* symbol, void** function, int version, unsigned long flags, int* status) {
  return find(symbol, function, version, flags, status);
}
}

namespace {

int find(const char* symbol, void** function, int, unsigned long, int* status) {
  const auto is = [&](const char* name) { return std::strcmp(symbol, name) == 0; };
  if (is("cuDriverGetVersion")) {
    *function = reinterpret_cast<void*>(&cuDriverGetVersion);
  } else if (is("cuInit")) {
    *function = reinterpret_cast<void*>(&cuInit);
  } else if (is("cuGetProcAddress") || is("cuGetProcAddress_v2")) {
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  } else {
    *function = reinterpret_cast<void*>(&answer);
  }
  if (status != nullptr) *status = 0;
  return 0;
}

}  // namespace
