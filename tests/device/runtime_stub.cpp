// SPDX-License-Identifier: Apache-2.0
#include "runtime_stub.hpp"

#include <utility>  // std::exchange

extern "C" {

cudaError_t cudaGetLastError() { return std::exchange(runtime.last, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return runtime.last; }
const char* cudaGetErrorString(cudaError_t error) {
  return error == cudaErrorInvalidConfiguration ? "invalid configuration argument" : "another error";
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  ++runtime.launches;
  runtime.attributes = config->numAttrs, runtime.blocks = static_cast<int>(config->gridDim.x);
  return runtime.say(runtime.launch);
}
// What <<< >>> becomes: its status is for cudaGetLastError alone.
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, cudaStream_t) { return 0; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaSuccess; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) {
  ++runtime.launches;
  return runtime.say(runtime.launch);
}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) {
  ++runtime.launches;
  return runtime.say(runtime.launch);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* of, const void*) {
  ++runtime.questions;
  of->ptxVersion = runtime.ptx_version;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = runtime.device;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t*, unsigned) { return cudaSuccess; }
cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
cudaError_t cudaEventQuery(cudaEvent_t) { return runtime.say(runtime.event); }
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// What the compiler adds for kernels.
void** __cudaRegisterFatBinary(void*) {
  static void* handle = nullptr;
  return &handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
char __cudaInitModule(void**) { return 1; }

}  // extern "C"
