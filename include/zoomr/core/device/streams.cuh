// SPDX-License-Identifier: Apache-2.0
// L1. What the host gives a device beside kernels: copies, and the order of streams. Under the SIMT shim of device.cuh
// streams are queues, whose work is done as late, as early or as unforeseeably as the shim is set.
//
// Nothing here waits but `stream_event::wait` and `settle`, `stream_timer::seconds` and, at construction and
// destruction, what CUDA does on its own. A cache's steps order everything by streams and events (docs/device.md).
#pragma once

#include <zoomr/core/device/device.cuh>

#include <cstring>  // std::memcpy, std::memset
#include <new>      // std::align_val_t
#include <string>   // std::string, std::to_string
#include <utility>  // std::exchange

namespace zoomr::inline v0 {

#if defined(ZOOMR_SIMT)

using simt::is_captured;
using simt::own_stream;
using simt::stream_event;
using simt::stream_timer;

inline void copy_to_device(void* to, const void* from, byte_count bytes, stream_ref stream) {
  simt::copy(to, from, static_cast<std::size_t>(bytes), stream);
}
inline void copy_anywhere(void* to, const void* from, byte_count bytes, stream_ref stream) {
  simt::enqueue(stream, [=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
}
inline void copy_rows(void* to, byte_count to_stride, const void* from, byte_count from_stride, byte_count bytes,
                      index_t rows, stream_ref stream) {
  simt::enqueue(stream, [=] {
    for (index_t r = 0; r < rows; ++r) {
      std::memcpy(static_cast<std::byte*>(to) + r * to_stride, static_cast<const std::byte*>(from) + r * from_stride,
                  static_cast<std::size_t>(bytes));
    }
  });
}
inline void zero_on_device(void* memory, byte_count bytes, stream_ref stream) {
  simt::enqueue(stream, [=] { std::memset(memory, 0, static_cast<std::size_t>(bytes)); });
}

/// Memory of the host that a device copies from without waiting, aligned to 256 bytes.
class pinned_memory {
 public:
  explicit pinned_memory(byte_count bytes)
      : bytes_(static_cast<std::size_t>(bytes)), memory_(::operator new(bytes_, alignment)) {}
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;
  ~pinned_memory() {
    simt::forget_source(memory_, bytes_);
    ::operator delete(memory_, alignment);
  }
  void* data() { return memory_; }

 private:
  static constexpr std::align_val_t alignment{256};
  std::size_t bytes_;
  void* memory_;
};

#else

/// Enqueues a copy from pinned memory, which must stay as it is until the copy is made.
/// @throws error(device) if it cannot be started
inline void copy_to_device(void* to, const void* from, byte_count bytes, stream_ref stream) {
  expect_success(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
                 "a copy to the device could not be started");
}
/// Enqueues a copy between any two memories, of the host or the device. Until it is made both must stay.
/// @throws error(device) if it cannot be started
inline void copy_anywhere(void* to, const void* from, byte_count bytes, stream_ref stream) {
  expect_success(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
                 "a copy could not be started");
}
/// The same of some rows of so many bytes, whose beginnings are the strides apart, in bytes.
/// @throws error(device) if it cannot be started
inline void copy_rows(void* to, byte_count to_stride, const void* from, byte_count from_stride, byte_count bytes,
                      index_t rows, stream_ref stream) {
  expect_success(
      cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_stride), from, static_cast<std::size_t>(from_stride),
                        static_cast<std::size_t>(bytes), static_cast<std::size_t>(rows), cudaMemcpyDefault, stream),
      "a copy could not be started");
}
/// Enqueues the writing of zeros.
/// @throws error(device) if it cannot be started
inline void zero_on_device(void* memory, byte_count bytes, stream_ref stream) {
  expect_success(cudaMemsetAsync(memory, 0, static_cast<std::size_t>(bytes), stream),
                 "device memory could not be cleared");
}

/// True between the beginning and the end of a capture of the stream: what is enqueued then goes to a graph, and what
/// must not be replayed is refused or left out.
inline bool is_captured(stream_ref stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  expect_success(cudaStreamIsCapturing(stream, &status), "a stream does not say whether it is captured");
  return status != cudaStreamCaptureStatusNone;
}

/// Memory of the host that a device copies from without waiting, aligned to 256 bytes.
class pinned_memory {
 public:
  explicit pinned_memory(byte_count bytes) {
    expect_success(cudaMallocHost(&memory_, static_cast<std::size_t>(bytes)), "cannot allocate pinned memory");
  }
  pinned_memory(const pinned_memory&) = delete;
  pinned_memory& operator=(const pinned_memory&) = delete;
  ~pinned_memory() { cudaFreeHost(memory_); }
  void* data() { return memory_; }

 private:
  void* memory_ = nullptr;
};

/// A stream of its own, which is not ordered with the default stream either. Whoever destroys it has waited for its
/// work.
class own_stream {
 public:
  own_stream() { expect_success(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cannot create a stream"); }
  own_stream(const own_stream&) = delete;
  own_stream& operator=(const own_stream&) = delete;
  ~own_stream() { cudaStreamDestroy(stream_); }
  stream_ref get() const { return stream_; }

 private:
  stream_ref stream_ = nullptr;
};

/// A point in the work of a stream, for other streams and for the host. It can be recorded again and again; the last
/// point counts.
class stream_event {
 public:
  stream_event() {
    expect_success(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cannot create an event");
  }
  stream_event(const stream_event&) = delete;
  stream_event& operator=(const stream_event&) = delete;
  ~stream_event() { cudaEventDestroy(event_); }

  /// The point after everything that was enqueued on the stream until now.
  void record(stream_ref stream) { expect_success(cudaEventRecord(event_, stream), "an event could not be recorded"); }
  /// What is enqueued on `later` from now on waits for what was enqueued on `earlier` until now.
  void order(stream_ref earlier, stream_ref later) {
    record(earlier);
    expect_success(cudaStreamWaitEvent(later, event_, 0), "a stream cannot wait for another");
  }
  /// True if everything before the point is done, or none was recorded. Never waits; other threads may be capturing.
  bool done() {
    const relaxed_capture until_then;
    const bool pending = cudaPeekAtLastError() == cudaErrorNotReady;
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) {
      // CUDA keeps this result as the thread's last error, in place of any other; nothing else needs to find it there.
      if (!pending && cudaPeekAtLastError() == status) static_cast<void>(cudaGetLastError());
      return false;
    }
    expect_success(status, "an earlier launch or copy has failed");
    return true;
  }
  /// Waits until it is; at once if none was recorded.
  void wait() {
    const relaxed_capture until_then;
    expect_success(cudaEventSynchronize(event_), "an earlier launch or copy has failed");
  }
  /// The same, for who gives memory back: a device that has failed does nothing any more, and no failure is reported.
  void settle() noexcept {
    const relaxed_capture until_then;
    cudaEventSynchronize(event_);
  }

 private:
  // No call disturbs a capture, but where another thread captures, CUDA refuses them unless this mode is set.
  class relaxed_capture {
   public:
    relaxed_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    relaxed_capture(const relaxed_capture&) = delete;
    relaxed_capture& operator=(const relaxed_capture&) = delete;
    ~relaxed_capture() { cudaThreadExchangeStreamCaptureMode(&mode_); }

   private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  };

  cudaEvent_t event_ = nullptr;
};

/// The time between two points in the work of a stream: `start`, the work, `stop`, then `seconds`, which waits for it.
class stream_timer {
 public:
  stream_timer() {
    expect_success(cudaEventCreate(&from_), "cannot create an event");
    const cudaError_t status = cudaEventCreate(&to_);
    if (status != cudaSuccess) cudaEventDestroy(from_);
    expect_success(status, "cannot create an event");
  }
  stream_timer(const stream_timer&) = delete;
  stream_timer& operator=(const stream_timer&) = delete;
  ~stream_timer() { cudaEventDestroy(from_), cudaEventDestroy(to_); }
  void start(stream_ref stream) { expect_success(cudaEventRecord(from_, stream), "an event could not be recorded"); }
  void stop(stream_ref stream) { expect_success(cudaEventRecord(to_, stream), "an event could not be recorded"); }
  /// Waits for the second point.
  double seconds() {
    float ms = 0;
    expect_success(cudaEventSynchronize(to_), "what was timed has failed");
    expect_success(cudaEventElapsedTime(&ms, from_, to_), "no time was taken");
    return static_cast<double>(ms) * 1e-3;
  }

 private:
  cudaEvent_t from_ = nullptr;
  cudaEvent_t to_ = nullptr;
};

#endif

/// The device that something was made on: its streams, events and launches are of that device.
class home_device {
 public:
  home_device() : number_(current_device()) {}
  /// @param what  what is done, for the sentence
  /// @throws precondition_error if another device is current in this thread; error(device) if none can be
  /// @cost   as current_device
  void expect_current(const char* what) const {
    const int current = current_device();
    if (current == number_) return;
    detail::raise_precondition(std::string(what) + ": the cache was made on device " + std::to_string(number_) +
                               ", device " + std::to_string(current) + " is current: call cudaSetDevice before");
  }

 private:
  int number_;
};

/// A stream of its own, for what may go on beside another: pages of the next layer come on one while a layer is
/// attended (cache/device/tiers/fetch_launches.cuh). It forks from the other one and joins it again, also while
/// that is captured; whoever is forked must be joined before the capture ends.
class side_stream {
 public:
  /// The stream, whose work from now on waits for what was enqueued on `from` until now.
  stream_ref fork(stream_ref from) {
    forked_.order(from, stream_.get());
    from_ = from;
    is_forked_ = true;
    return stream_.get();
  }
  /// What is enqueued on `to` from now on waits for what goes on here. Without a fork nothing happens.
  void join(stream_ref to) {
    if (std::exchange(is_forked_, false)) joined_.order(stream_.get(), to);
  }
  /// Joins the stream that it has forked from.
  void join() { join(from_); }
  /// True between a fork and the join that follows.
  bool is_forked() const { return is_forked_; }

 private:
  stream_event forked_, joined_;
  own_stream stream_;
  stream_ref from_{};
  bool is_forked_ = false;
};

}  // namespace zoomr::inline v0
