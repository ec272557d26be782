// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: CUDA's own words. Where a device leaves a result undefined, this is a fault.
#pragma once

#include <support/simt/meeting.hpp>
#include <support/simt/shared.hpp>

#include <concepts>     // std::same_as
#include <type_traits>  // std::type_identity_t

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

// clang-format off
struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
// clang-format on

// Who calls, as the last parameters of what must be told where it is called.
#define ZOOMR_SIMT_CALLER const char *file = __builtin_FILE(), int line = __builtin_LINE()

// Barriers.

inline void __syncthreads(ZOOMR_SIMT_CALLER) { simt::meet_block("__syncthreads", false, {file, line}); }
inline int __syncthreads_count(int predicate, ZOOMR_SIMT_CALLER) {
  return simt::meet_block("__syncthreads_count", predicate != 0, {file, line}).votes;
}
inline int __syncthreads_or(int predicate, ZOOMR_SIMT_CALLER) {
  return simt::meet_block("__syncthreads_or", predicate != 0, {file, line}).votes > 0 ? 1 : 0;
}
inline int __syncthreads_and(int predicate, ZOOMR_SIMT_CALLER) {
  const simt::poll all = simt::meet_block("__syncthreads_and", predicate != 0, {file, line});
  return all.votes == all.voters ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, ZOOMR_SIMT_CALLER) {
  simt::meet_warp_at_barrier(mask, {file, line});
}
inline void __threadfence_block() {}
inline void __threadfence() {}
inline void __threadfence_system() {}

// Shuffles.

namespace simt {

/// What is exchanged has 4 or 8 bytes; smaller numbers become int, as on a device.
template <class T>
concept number = std::is_arithmetic_v<T> && sizeof(+T{}) <= 8;

inline void answer_of_source(const shown_values& shown, meeting& at) {
  at.undefined = (shown.lanes >> at.source & 1u) == 0;
  at.result = shown.of[static_cast<std::size_t>(at.source)];
}

template <class T>
T shuffle(const char* name, unsigned mask, T value, int source, site at) {
  meeting mine{.name = name, .at = at, .lanes = mask, .source = source, .answer = &answer_of_source};
  std::memcpy(&mine.value, &value, sizeof value);
  const std::uint64_t result = meet_warp(mine);
  std::memcpy(&value, &result, sizeof value);
  return value;
}

/// The first lane of this lane's group of `width`.
inline int group_of(int width) {
  if (width < 1 || width > warp || !std::has_single_bit(static_cast<unsigned>(width))) {
    fail("a shuffle among " + std::to_string(width) + " lanes: not a power of two up to 32");
  }
  return lane() & ~(width - 1);
}

}  // namespace simt

template <simt::number T>
auto __shfl_sync(unsigned mask, T value, int source, int width = 32, ZOOMR_SIMT_CALLER) {
  const int from = simt::group_of(width) | (source & (width - 1));
  return simt::shuffle("__shfl_sync", mask, +value, from, {file, line});
}
/// From a later group of lanes nothing comes, from an earlier one it does.
template <simt::number T>
auto __shfl_xor_sync(unsigned mask, T value, int flipped, int width = 32, ZOOMR_SIMT_CALLER) {
  const int from = simt::lane() ^ (flipped & 31);
  const bool comes = from < simt::group_of(width) + width;
  return simt::shuffle("__shfl_xor_sync", mask, +value, comes ? from : simt::lane(), {file, line});
}
template <simt::number T>
auto __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, ZOOMR_SIMT_CALLER) {
  const int from = simt::lane() + static_cast<int>(by & 31u);
  const bool comes = from < simt::group_of(width) + width;
  return simt::shuffle("__shfl_down_sync", mask, +value, comes ? from : simt::lane(), {file, line});
}
template <simt::number T>
auto __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, ZOOMR_SIMT_CALLER) {
  const int from = simt::lane() - static_cast<int>(by & 31u);
  const bool comes = from >= simt::group_of(width);
  return simt::shuffle("__shfl_up_sync", mask, +value, comes ? from : simt::lane(), {file, line});
}

// Votes and reductions of the lanes that take part.

namespace simt {

template <class Fold>
void answer_of_fold(const shown_values& shown, meeting& at) {
  bool first = true;
  for (unsigned left = shown.lanes; left != 0; left &= left - 1) {
    const std::uint64_t next = shown.of[static_cast<std::size_t>(std::countr_zero(left))];
    at.result = first ? next : Fold{}(at.result, next);
    first = false;
  }
}

template <class Fold>
std::uint64_t fold(const char* name, unsigned mask, std::uint64_t value, site at) {
  return meet_warp({.name = name, .at = at, .lanes = mask, .value = value, .answer = &answer_of_fold<Fold>});
}

// clang-format off
struct fold_or { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a | b; } };
struct fold_and { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a & b; } };
struct fold_xor { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a ^ b; } };
struct fold_add { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; } };
struct fold_min { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a < b ? a : b; } };
struct fold_max { std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a > b ? a : b; } };
// clang-format on

/// A signed number as an unsigned one of the same order, and back.
inline std::uint64_t lifted(int value) { return static_cast<unsigned>(value) ^ 0x80000000u; }
inline int lowered(std::uint64_t value) { return static_cast<int>(static_cast<unsigned>(value) ^ 0x80000000u); }

template <class T>
concept word = std::same_as<T, int> || std::same_as<T, unsigned>;

}  // namespace simt

inline unsigned __ballot_sync(unsigned mask, int predicate, ZOOMR_SIMT_CALLER) {
  const std::uint64_t mine = predicate != 0 ? std::uint64_t{1} << simt::lane() : 0;
  return static_cast<unsigned>(simt::fold<simt::fold_or>("__ballot_sync", mask, mine, {file, line}));
}
inline int __any_sync(unsigned mask, int predicate, ZOOMR_SIMT_CALLER) {
  return static_cast<int>(simt::fold<simt::fold_or>("__any_sync", mask, predicate != 0 ? 1 : 0, {file, line}));
}
inline int __all_sync(unsigned mask, int predicate, ZOOMR_SIMT_CALLER) {
  return static_cast<int>(simt::fold<simt::fold_and>("__all_sync", mask, predicate != 0 ? 1 : 0, {file, line}));
}
template <simt::word T>
T __reduce_add_sync(unsigned mask, T value, ZOOMR_SIMT_CALLER) {
  const auto bits = static_cast<unsigned>(value);
  return static_cast<T>(
      static_cast<unsigned>(simt::fold<simt::fold_add>("__reduce_add_sync", mask, bits, {file, line})));
}
inline unsigned __reduce_min_sync(unsigned mask, unsigned value, ZOOMR_SIMT_CALLER) {
  return static_cast<unsigned>(simt::fold<simt::fold_min>("__reduce_min_sync", mask, value, {file, line}));
}
inline unsigned __reduce_max_sync(unsigned mask, unsigned value, ZOOMR_SIMT_CALLER) {
  return static_cast<unsigned>(simt::fold<simt::fold_max>("__reduce_max_sync", mask, value, {file, line}));
}
inline int __reduce_min_sync(unsigned mask, int value, ZOOMR_SIMT_CALLER) {
  return simt::lowered(simt::fold<simt::fold_min>("__reduce_min_sync", mask, simt::lifted(value), {file, line}));
}
inline int __reduce_max_sync(unsigned mask, int value, ZOOMR_SIMT_CALLER) {
  return simt::lowered(simt::fold<simt::fold_max>("__reduce_max_sync", mask, simt::lifted(value), {file, line}));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, ZOOMR_SIMT_CALLER) {
  return static_cast<unsigned>(simt::fold<simt::fold_and>("__reduce_and_sync", mask, value, {file, line}));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, ZOOMR_SIMT_CALLER) {
  return static_cast<unsigned>(simt::fold<simt::fold_or>("__reduce_or_sync", mask, value, {file, line}));
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, ZOOMR_SIMT_CALLER) {
  return static_cast<unsigned>(simt::fold<simt::fold_xor>("__reduce_xor_sync", mask, value, {file, line}));
}

// Tensor cores.

namespace simt {

/// What a lane brings to sums += A B, as numbers: PTX's fragments of mma.m16n8k16.
struct mma_fragments {
  float a[8];
  float b[4];
  float sums[4];
};

/// The lane that has numbers `k` and `k` ^ 1 of a row of A, or of a column of B.
inline std::size_t lane_of(int row, int k) { return static_cast<std::size_t>(row % 8 * 4 + k % 8 / 2); }

/// Each sum is rounded once; a device may round after each product.
inline void answer_of_mma(const shown_values& shown, meeting& at) {
  at.undefined = shown.lanes != 0xffffffffu;
  if (at.undefined) return;
  const auto of = [&](std::size_t lane) { return reinterpret_cast<mma_fragments*>(shown.of[lane]); };
  for (int i = 0; i < 4; ++i) {
    const int row = at.source / 4 + i / 2 * 8;
    const int column = at.source % 4 * 2 + i % 2;
    float& sum = of(static_cast<std::size_t>(at.source))->sums[i];
    double exact = static_cast<double>(sum);
    for (int k = 0; k < 16; ++k) {
      const float a = of(lane_of(row, k))->a[k / 8 * 4 + row / 8 * 2 + k % 2];
      const float b = of(lane_of(column, k))->b[k / 8 * 2 + k % 2];
      exact += static_cast<double>(a) * static_cast<double>(b);
    }
    sum = static_cast<float>(exact);
  }
}

/// `Number` has 16 bits, and a to_float.
template <class Number>
void mma_16x8x16(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2], ZOOMR_SIMT_CALLER) {
  const auto half = [](unsigned pair, int i) { return to_float(Number{static_cast<std::uint16_t>(pair >> (16 * i))}); };
  mma_fragments mine;
  for (int i = 0; i < 8; ++i) mine.a[i] = half(a[i / 2], i % 2);
  for (int i = 0; i < 4; ++i) mine.b[i] = half(b[i / 2], i % 2);
  std::memcpy(mine.sums, sums, sizeof sums);
  meet_warp({.name = "mma_16x8x16",
             .at = {file, line},
             .lanes = 0xffffffffu,
             .value = reinterpret_cast<std::uintptr_t>(&mine),
             .source = lane(),
             .answer = &answer_of_mma});
  std::memcpy(sums, mine.sums, sizeof sums);
}

}  // namespace simt

#undef ZOOMR_SIMT_CALLER

// Bits and loads.

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __ffsll(long long x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned long long>(x)) + 1; }
template <class T>
T __ldg(const T* from) {
  return *from;
}

// Atomics, of the types that a device has them for. Between the reading and the writing nobody has his turn.

namespace simt {

template <class Address>
struct element_at;
template <class T>
struct element_at<T*> {
  using type = T;
};
template <class T>
struct element_at<shared_address<T>> {
  using type = T;
};
/// What lies at a T*, or at &shared[i].
template <class Address>
using element = typename element_at<Address>::type;

template <class T, class... Types>
concept one_of = (std::same_as<T, Types> || ...);
template <class Address>
concept of_integer = one_of < element<Address>,
int, unsigned, unsigned long long > ;
template <class Address>
concept of_number = of_integer<Address> || one_of < element<Address>,
float, double > ;
template <class Address>
concept of_ordered = of_integer<Address> || one_of < element<Address>,
long long > ;
template <class Address>
concept of_exchanged = of_integer<Address> || one_of < element<Address>,
float > ;

template <class T>
T* taken(T* at) {
  step_of_atomic();
  return at;
}
template <class T>
T* taken(shared_address<T> address) {
  step_of_atomic();
  note_atomic(address.word);
  return address.at;
}

/// @return what was there before
template <class Address, class Change>
element<Address> change(Address address, Change made) {
  auto* const at = taken(address);
  const element<Address> before = *at;
  *at = made(before);
  return before;
}

/// Integers go round, as on a device.
template <class T>
T sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) + static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a + b;
  }
}

}  // namespace simt

template <simt::of_number Address>
auto atomicAdd(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return simt::sum(before, value); });
}
template <simt::of_ordered Address>
auto atomicMin(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return value < before ? value : before; });
}
template <simt::of_ordered Address>
auto atomicMax(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return value > before ? value : before; });
}
template <simt::of_integer Address>
auto atomicAnd(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return before & value; });
}
template <simt::of_integer Address>
auto atomicOr(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return before | value; });
}
template <simt::of_integer Address>
auto atomicXor(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return before ^ value; });
}
template <simt::of_exchanged Address>
auto atomicExch(Address at, simt::element<Address> value) {
  return simt::change(at, [=](auto) { return value; });
}
template <simt::of_integer Address>
auto atomicCAS(Address at, simt::element<Address> expected, simt::element<Address> value) {
  return simt::change(at, [=](auto before) { return before == expected ? value : before; });
}
/// Counts up to `last`, then from 0 again.
template <class Address>
requires simt::one_of < simt::element<Address>,
unsigned > auto atomicInc(Address at, unsigned last) {
  return simt::change(at, [=](unsigned before) { return before >= last ? 0u : before + 1u; });
}
