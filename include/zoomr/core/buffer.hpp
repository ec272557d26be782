// SPDX-License-Identifier: Apache-2.0
// L1. Owning, aligned, uninitialised host memory: pages, summaries, remembered queries, a selector's working memory. A
// cache makes all of them when it is constructed, and none after that.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/types.hpp>

#if defined(__linux__)
#include <sys/mman.h>  // madvise
#endif

#include <cstddef>      // std::size_t
#include <memory>       // std::unique_ptr
#include <new>          // std::align_val_t, std::bad_alloc, std::nothrow
#include <stdexcept>    // std::length_error
#include <string>       // std::to_string
#include <type_traits>  // std::is_trivially_copyable_v

namespace zoomr::inline v0 {

namespace detail {
[[noreturn]] inline void refuse_memory(byte_count bytes) {
  raise(errc::capacity, "cannot allocate " + (bytes > 0 ? std::to_string(bytes) + " bytes of " : "") + "host memory");
}
}  // namespace detail

/// What `make()` returns. Caches construct themselves within it, so that whatever cannot be allocated, buffers or
/// tables of the standard library, is the same error.
/// @param bytes  bytes that it allocates, for the sentence; 0: a few
/// @throws error(capacity) where there is no memory for what it allocates, by whatever means
template <class Make>
auto allocated(byte_count bytes, Make make) {
  ZOOMR_TRY { return make(); }
  ZOOMR_CATCH(const std::bad_alloc& cause) { detail::refuse_memory(bytes); }
  ZOOMR_CATCH(const std::length_error& cause) { detail::refuse_memory(bytes); }  // a vector that no address space holds
}

/// `count` objects of a trivial type, aligned to a cache line, never moved, contents undefined.
/// It can be moved, not copied; a moved or default-constructed one has no memory.
///
/// From 32 MiB on huge pages are requested of Linux: segments that are anywhere in a cache are read a third faster with
/// them.
/// @throws error(capacity) if the memory cannot be had
template <class T>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>, "a buffer holds plain data");

 public:
  buffer() = default;
  explicit buffer(std::int64_t count) : count_(count) {
    const auto size = static_cast<std::size_t>(count) * sizeof(T);
    const std::align_val_t alignment{size < large ? cache_line : huge_page};
    data_ = {static_cast<T*>(::operator new(size, alignment, std::nothrow)), release{alignment}};
    if (!data_) detail::raise(errc::capacity, "cannot allocate " + std::to_string(size) + " bytes of host memory");
#if defined(__linux__)
    if (size >= large) madvise(data_.get(), size, MADV_HUGEPAGE);  // only advice: a refusal is no error
#endif
  }

  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  /// Objects, not bytes.
  std::int64_t size() const { return data_ ? count_ : 0; }
  byte_count bytes() const { return size() * static_cast<byte_count>(sizeof(T)); }

 private:
  static constexpr std::size_t cache_line = 64;
  static constexpr std::size_t huge_page = 2 << 20;
  static constexpr std::size_t large = 16 * huge_page;
  struct release {
    std::align_val_t alignment{cache_line};
    void operator()(T* p) const { ::operator delete(p, alignment); }
  };

  std::unique_ptr<T, release> data_;
  std::int64_t count_ = 0;
};

}  // namespace zoomr::inline v0
