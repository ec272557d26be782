// SPDX-License-Identifier: Apache-2.0
// A CUDA runtime that starts nothing and answers what a test says. A program has it in place of CUDA's own: linked with
// CUDA_RUNTIME_LIBRARY None, it runs without a GPU and without a driver.
#pragma once

#include <cuda_runtime_api.h>

#include <string>  // std::string

/// What calls answer, and what they were.
struct stub_runtime {
  cudaError_t last = cudaSuccess;    // of the thread: what cudaGetLastError finds, and clears
  cudaError_t launch = cudaSuccess;  // the answer to launches
  cudaError_t event = cudaSuccess;   // to questions whether an event is over
  int ptx_version = 90;              // of kernels
  int questions = 0;                 // for attributes of kernels
  int device = 0;                    // the current one
  int launches = 0;
  unsigned attributes = 0;  // of the last launch
  int blocks = 0;

  /// An answer, which becomes the last error unless it is success, as CUDA has it.
  cudaError_t say(cudaError_t answer) {
    if (answer != cudaSuccess) last = answer;
    return answer;
  }
};
inline stub_runtime runtime;
