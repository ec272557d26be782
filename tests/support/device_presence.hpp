// SPDX-License-Identifier: Apache-2.0
// Whether a program has a device to run on: it has one, there is none, or there is one that does not work. Only of the
// second a program says that it was skipped (exit status 77): nobody is told that a broken device is fine.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>      // std::size_t
#include <cstdio>       // std::puts, std::fprintf
#include <string>       // std::string, std::to_string
#include <string_view>  // std::string_view

namespace zoomr_test {

inline constexpr int skipped_status = 77;

/// A version of CUDA, as it writes them in numbers: 13000 is 13.0.
inline std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

/// 0 with a device that works. Otherwise one sentence is written, and this is the program's exit status: 77 without a
/// device, to standard output; 1, to standard error, if there is one that cannot be used, with CUDA's words and the
/// versions of driver and runtime.
///
/// There is none if CUDA says so (cudaErrorNoDevice), or where no driver is installed: the runtime then calls it too
/// old (cudaErrorInsufficientDriver), and its version is 0. A context is made, since a device may be counted and not
/// usable.
inline int status_without_device() {
  int driver = 0, runtime = 0, devices = 0;
  static_cast<void>(cudaDriverGetVersion(&driver)), static_cast<void>(cudaRuntimeGetVersion(&runtime));
  cudaError_t answer = cudaGetDeviceCount(&devices);
  if (answer == cudaSuccess && devices == 0) answer = cudaErrorNoDevice;
  if (answer == cudaErrorNoDevice || (answer == cudaErrorInsufficientDriver && driver == 0)) {
    std::puts("skipped: there is no CUDA device");
    return skipped_status;
  }
  if (answer == cudaSuccess) answer = cudaFree(nullptr);
  if (answer == cudaSuccess) return 0;
  std::fprintf(stderr, "the CUDA device cannot be used: %s (error %d); driver for CUDA %s, runtime %s\n",
               cudaGetErrorString(answer), static_cast<int>(answer), cuda_version(driver).c_str(),
               cuda_version(runtime).c_str());
  return 1;
}

/// Whether a program was given one of these options, as it is or with `=` and more behind it.
template <std::size_t N>
bool has_option(int argc, char** argv, const std::string_view (&options)[N]) {
  for (int a = 1; a < argc; ++a) {
    const std::string_view option = argv[a];
    for (const std::string_view each : options) {
      if (option.substr(0, option.find('=')) == each) return true;
    }
  }
  return false;
}

}  // namespace zoomr_test
