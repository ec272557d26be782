// SPDX-License-Identifier: Apache-2.0
// Runs the device tests, or says that there is no device to run them on (exit status 77).
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cuda_runtime_api.h>

#include <cstdio>  // std::puts

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("skipped: there is no CUDA device");
    return 77;
  }
  return doctest::Context(argc, argv).run();
}
