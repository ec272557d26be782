// SPDX-License-Identifier: Apache-2.0
// What the device rows need of a device, on a GPU and under the SIMT shim alike: a stream, copies, memory.
#pragma once

#include <zoomr/core/device/streams.cuh>
#include <zoomr/core/storage.hpp>
#include <zoomr/core/view.hpp>

#include <cstring>  // std::memcpy
#include <vector>   // std::vector

#include "rows.hpp"

namespace zoomr_bench {

using zoomr::index_t;
using zoomr::stream_ref;
using zoomr::view;

#if defined(ZOOMR_SIMT)

inline stream_ref the_stream() { return {}; }
inline void wait() { simt::finish(the_stream()); }
inline void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  wait();
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}
inline void copy_to_device(void* to, const void* from, std::int64_t bytes) { copy_to_host(to, from, bytes); }
inline void copy_on_device(void* to, const void* from, std::int64_t bytes, stream_ref on) {
  simt::enqueue(on, [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}
inline void* device_memory(std::int64_t bytes) {
  return ::operator new (static_cast<std::size_t>(bytes), std::align_val_t{256});
}
inline void free_device_memory(void* memory) {
  simt::finish_all_quietly();
  ::operator delete (memory, std::align_val_t{256});
}
inline index_t multiprocessors() { return 4; }
inline std::int64_t flushed_bytes() { return 1024; }

#else

inline void must(cudaError_t code, const char* what) { zoomr::expect_success(code, what); }

inline stream_ref the_stream() {
  static const stream_ref made = [] {
    stream_ref s;
    must(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "no stream");
    return s;
  }();
  return made;
}
inline void wait() { must(cudaStreamSynchronize(the_stream()), "a launch has failed"); }
inline void copy_to_host(void* to, const void* from, std::int64_t bytes) {
  wait();
  must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost), "a copy from the device");
}
inline void copy_to_device(void* to, const void* from, std::int64_t bytes) {
  must(cudaMemcpy(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice), "a copy to the device");
}
inline void copy_on_device(void* to, const void* from, std::int64_t bytes, stream_ref on) {
  must(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, on),
       "a copy on the device");
}
inline void* device_memory(std::int64_t bytes) {
  std::size_t free = 0, all = 0;
  must(cudaMemGetInfo(&free, &all), "no device");
  if (static_cast<std::size_t>(bytes) + (std::size_t{1} << 29) > free) {
    throw skipped("needs " + std::to_string(bytes >> 20) + " MiB of device memory, " + std::to_string(free >> 20) +
                  " MiB are free");
  }
  void* made = nullptr;
  must(cudaMalloc(&made, static_cast<std::size_t>(bytes)), "no device memory");
  return made;
}
inline void free_device_memory(void* memory) { cudaFree(memory); }
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  must(cudaGetDevice(&device), "no device");
  must(cudaDeviceGetAttribute(&value, which, device), "no device");
  return value;
}
inline index_t multiprocessors() { return attribute(cudaDevAttrMultiProcessorCount); }
inline std::int64_t flushed_bytes() {
  return std::max(std::int64_t{256} << 20, std::int64_t{4} * attribute(cudaDevAttrL2CacheSize));
}

#endif

}  // namespace zoomr_bench
