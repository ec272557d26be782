// SPDX-License-Identifier: Apache-2.0
// The process's own allocator: it counts, and one allocation may fail. For one source of a program.
#pragma once

#include <atomic>   // std::atomic
#include <cstddef>  // std::max_align_t
#include <cstdint>  // std::int64_t
#include <cstdlib>  // std::malloc, std::aligned_alloc
#include <new>      // std::bad_alloc

#include <malloc.h>  // malloc_usable_size

namespace allocations {

inline std::atomic<bool> counted{false};
inline std::atomic<std::int64_t> made{0};    // since they are counted
inline std::atomic<std::int64_t> fails{-1};  // this one, counted from 0
inline std::atomic<std::int64_t> live{0};    // always counted
inline std::atomic<std::int64_t> bytes{0};   // of what lives; the allocator's own rounding is some bytes for each

inline void* take(std::size_t size, std::size_t alignment) noexcept {
  if (counted && made++ == fails) return nullptr;
  const std::size_t whole = (size + alignment - 1) / alignment * alignment;
  void* memory = alignment <= alignof(std::max_align_t) ? std::malloc(size > 0 ? size : 1)
                                                        : std::aligned_alloc(alignment, whole > 0 ? whole : alignment);
  if (memory != nullptr) ++live, bytes += static_cast<std::int64_t>(malloc_usable_size(memory));
  return memory;
}
inline void* take_or_throw(std::size_t size, std::size_t alignment) {
  if (void* memory = take(size, alignment)) return memory;
  throw std::bad_alloc();
}
inline void give_back(void* memory) noexcept {
  if (memory == nullptr) return;
  --live;
  bytes -= static_cast<std::int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

inline constexpr std::size_t usual = alignof(std::max_align_t);

}  // namespace allocations

void* operator new(std::size_t n) { return allocations::take_or_throw(n, allocations::usual); }
void* operator new[](std::size_t n) { return allocations::take_or_throw(n, allocations::usual); }
void* operator new(std::size_t n, std::align_val_t to) {
  return allocations::take_or_throw(n, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t n, std::align_val_t to) {
  return allocations::take_or_throw(n, static_cast<std::size_t>(to));
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept { return allocations::take(n, allocations::usual); }
void* operator new[](std::size_t n, const std::nothrow_t&) noexcept { return allocations::take(n, allocations::usual); }
void* operator new(std::size_t n, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocations::take(n, static_cast<std::size_t>(to));
}
void* operator new[](std::size_t n, std::align_val_t to, const std::nothrow_t&) noexcept {
  return allocations::take(n, static_cast<std::size_t>(to));
}
void operator delete(void* p) noexcept { allocations::give_back(p); }
void operator delete[](void* p) noexcept { allocations::give_back(p); }
void operator delete(void* p, std::size_t) noexcept { allocations::give_back(p); }
void operator delete[](void* p, std::size_t) noexcept { allocations::give_back(p); }
void operator delete(void* p, std::align_val_t) noexcept { allocations::give_back(p); }
void operator delete[](void* p, std::align_val_t) noexcept { allocations::give_back(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { allocations::give_back(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { allocations::give_back(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { allocations::give_back(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { allocations::give_back(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { allocations::give_back(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { allocations::give_back(p); }
