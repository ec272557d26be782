// SPDX-License-Identifier: Apache-2.0
// Vectors of ZOOMR_SIMD floats, and what kernels do with them: number for number the same operations, in the same
// order, as math/functions.hpp, math/dot.hpp and core/storage.hpp do one by one.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

inline constexpr index_t simd = ZOOMR_SIMD;
inline constexpr index_t accumulators = simd == 8 ? 8 : 16;  // half of the registers

using floats = float __attribute__((vector_size(4 * ZOOMR_SIMD)));
using ints = std::int32_t __attribute__((vector_size(4 * ZOOMR_SIMD)));
using words = std::uint32_t __attribute__((vector_size(4 * ZOOMR_SIMD)));
#if ZOOMR_SIMD == 4  // numbers of 16 bits, as the compiler's conversions take them
using halves = __fp16 __attribute__((vector_size(2 * ZOOMR_SIMD)));
#else
using halves = short __attribute__((vector_size(2 * ZOOMR_SIMD)));
#endif

#if defined(__clang__)  // masks of 16 numbers
inline constexpr unsigned short all_lanes = 0xffff;
#else
inline constexpr short all_lanes = -1;
#endif

template <class Vector, class T>
[[gnu::always_inline]] inline Vector from_memory(const T* at) {
  Vector vector;
  __builtin_memcpy(&vector, at, sizeof vector);
  return vector;
}
[[gnu::always_inline]] inline void to_memory(floats from, float* at) { __builtin_memcpy(at, &from, sizeof from); }

/// Keeps in a register what several products read: g++ 12 would load it for each of them where it takes that for free.
[[gnu::always_inline]] inline floats kept(floats v) {
#if ZOOMR_SIMD > 4
  asm("" : "+v"(v));
#endif
  return v;
}

[[gnu::always_inline]] inline floats filled(float x) { return x - floats{}; }

/// a * b + c, rounded once. No compiler's contraction of products and sums is relied upon.
[[gnu::always_inline]] inline floats fused(floats a, floats b, floats c) {
#if __has_builtin(__builtin_elementwise_fma)
  return __builtin_elementwise_fma(a, b, c);
#elif ZOOMR_SIMD == 16
  return __builtin_ia32_vfmaddps512_mask(a, b, c, all_lanes, 4);
#elif ZOOMR_SIMD == 8
  return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined(__clang__)
  using bytes = std::int8_t __attribute__((vector_size(16)));
  return reinterpret_cast<floats>(__builtin_neon_vfmaq_v(reinterpret_cast<bytes>(c), reinterpret_cast<bytes>(b),
                                                         reinterpret_cast<bytes>(a), 41));  // of floats
#else
  return __builtin_aarch64_fmav4sf(a, b, c);
#endif
}

// Integers of 8 and 16 bits and float16, widened. g++ 12 takes conversions of whole vectors apart, clang does not.
#if ZOOMR_SIMD == 4
using eight_bytes = std::int8_t __attribute__((vector_size(8)));

/// And four zeros.
[[gnu::always_inline]] inline eight_bytes four_bytes(const void* at) {
  using pair = float __attribute__((vector_size(8)));
  return reinterpret_cast<eight_bytes>(pair{from_memory<float>(at), 0.0f});
}
[[gnu::always_inline]] inline floats widened(halves v) {
#if defined(__clang__)
  return __builtin_convertvector(v, floats);
#else
  return __builtin_aarch64_float_extend_lo_v4sf(v);
#endif
}
#else
[[gnu::always_inline]] inline floats widened(halves v) {
#if ZOOMR_SIMD == 16
  return __builtin_ia32_vcvtph2ps512_mask(v, floats{}, all_lanes, 4);
#else
  return __builtin_ia32_vcvtph2ps256(v);
#endif
}
[[gnu::always_inline]] inline words widened(const std::uint16_t* at) {
#if defined(__clang__)
  using narrow = std::uint16_t __attribute__((vector_size(2 * ZOOMR_SIMD)));
  return __builtin_convertvector(from_memory<narrow>(at), words);
#elif ZOOMR_SIMD == 16
  using shorts = short __attribute__((vector_size(2 * ZOOMR_SIMD)));
  return reinterpret_cast<words>(
      __builtin_ia32_pmovzxwd512_mask(from_memory<shorts>(at), ints{}, static_cast<unsigned short>(-1)));
#else
  using shorts = short __attribute__((vector_size(2 * ZOOMR_SIMD)));
  return reinterpret_cast<words>(__builtin_ia32_pmovzxwd256(from_memory<shorts>(at)));
#endif
}
#endif
[[gnu::always_inline]] inline ints widened(const std::int8_t* at) {
#if defined(__clang__)
  using narrow = std::int8_t __attribute__((vector_size(ZOOMR_SIMD)));
  return __builtin_convertvector(from_memory<narrow>(at), ints);
#elif ZOOMR_SIMD == 16
  using chars = char __attribute__((vector_size(16)));
  return __builtin_ia32_pmovsxbd512_mask(from_memory<chars>(at), ints{}, static_cast<unsigned short>(-1));
#elif ZOOMR_SIMD == 8
  using chars = char __attribute__((vector_size(16)));
  using pair = double __attribute__((vector_size(16)));  // of bytes g++ 12 makes such a vector in memory
  return __builtin_ia32_pmovsxbd256(reinterpret_cast<chars>(pair{from_memory<double>(at), 0.0}));
#else
  const auto four = four_bytes(at);
  return reinterpret_cast<ints>(__builtin_shufflevector(four, four, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3)) >>
         24;
#endif
}

#if ZOOMR_SIMD > 4
/// Bytes with their signs, in 16 bits each.
[[gnu::always_inline]] inline halves widened_to_halves(const std::uint8_t* at) {
#if defined(__clang__)
  using narrow = std::int8_t __attribute__((vector_size(ZOOMR_SIMD)));
  return __builtin_convertvector(from_memory<narrow>(at), halves);
#else
  using chars = char __attribute__((vector_size(16)));
#if ZOOMR_SIMD == 16
  return __builtin_ia32_pmovsxbw256(from_memory<chars>(at));
#else
  using pair = double __attribute__((vector_size(16)));
  return __builtin_ia32_pmovsxbw128(reinterpret_cast<chars>(pair{from_memory<double>(at), 0.0}));
#endif
#endif
}
#endif

// Numbers as they are stored, as floats.
[[gnu::always_inline]] inline floats load(const float* at) { return from_memory<floats>(at); }
[[gnu::always_inline]] inline floats load(const bfloat16* at) {
#if ZOOMR_SIMD > 4
  return reinterpret_cast<floats>(widened(&at->bits) << 16);
#else
  using shorts = std::uint16_t __attribute__((vector_size(8)));
  return reinterpret_cast<floats>(
      __builtin_shufflevector(shorts{}, from_memory<shorts>(&at->bits), 0, 4, 1, 5, 2, 6, 3, 7));
#endif
}
[[gnu::always_inline]] inline floats load(const float16* at) { return widened(from_memory<halves>(at)); }
[[gnu::always_inline]] inline floats load(const int8* at) {
  return __builtin_convertvector(widened(&at->bits), floats);
}
// Sign, exponent and mantissa in the places of a float16's: a number 256 times too small.
[[gnu::always_inline]] inline floats load(const float8* at) {
#if ZOOMR_SIMD == 4
  // 480 stands for NaN.
  using shorts = std::int16_t __attribute__((vector_size(8)));
  const eight_bytes eight = four_bytes(&at->bits);
  const auto upper = reinterpret_cast<shorts>(__builtin_shufflevector(eight_bytes{}, eight, 0, 8, 1, 9, 2, 10, 3, 11));
  const floats wide = widened(reinterpret_cast<halves>((upper >> 1) & ~0x4000)) * 256.0f;
  const ints special = (reinterpret_cast<ints>(wide) & 0x7fffffff) == bits_as<std::int32_t>(480.0f);
  constexpr std::int32_t to_nan = bits_as<std::int32_t>(480.0f) ^ bits_as<std::int32_t>(not_a_number);
  return reinterpret_cast<floats>(reinterpret_cast<ints>(wide) ^ (special & to_nan));
#else
  const halves bits = widened_to_halves(&at->bits);
  const halves special = (bits & 0x7f) == 0x7f;
  constexpr short to_nan = 0x3f80 ^ 0x7e00;
  return widened(((bits << 7) & ~0x4000) ^ (special & to_nan)) * 256.0f;
#endif
}

// Numbers of a block from the one with the number i on, before its scale.
template <class T>
[[gnu::always_inline]] inline floats load_codes(const T* block, std::uint32_t i) {
  return load(reinterpret_cast<const typename storage_traits<T>::element*>(block + 1) + i);
}
[[gnu::always_inline]] inline floats load_codes(const q4_0* block, std::uint32_t i) {
  const ints pairs = widened(reinterpret_cast<const std::int8_t*>(block + 1) + i % 16);
  return __builtin_convertvector(((pairs >> (i < 16 ? 0 : 4)) & 15) - 8, floats);
}
/// The scale of a block, in each number of a vector.
template <class T>
[[gnu::always_inline]] inline floats block_scale(T stored) {
  if constexpr (sizeof(T) == 1) {
    return filled(byte_scales<T>.at[stored.bits]);
  } else {
    using shorts = std::uint16_t __attribute__((vector_size(2 * ZOOMR_SIMD)));
    return widened(reinterpret_cast<halves>(shorts{} + stored.bits));
  }
}
/// Numbers d, d + 1, ... of a row, as number_at; d is a multiple of their number.
template <class T>
[[gnu::always_inline]] inline floats load_at(const T* row, index_t d) {
  if constexpr (in_blocks<T>) {
    const auto number = static_cast<std::uint32_t>(d);
    const T* const block = row + number / 32 * block_size<T>;
    return load_codes(block, number % 32) * block_scale(*block);
  } else {
    return load(row + d);
  }
}
/// -1 where there is a NaN, 0 elsewhere; by its bits, as is_nan.
[[gnu::always_inline]] inline ints nans(floats x) { return (reinterpret_cast<ints>(x) & 0x7fffffff) > 0x7f800000; }

// Floats as they are stored, as from_float. Whole numbers are cut to their low halves or bytes.
[[gnu::always_inline]] inline void store(floats from, float* at) { to_memory(from, at); }
[[gnu::always_inline]] inline void store(floats from, bfloat16* at) {
  using parts = std::uint16_t __attribute__((vector_size(4 * ZOOMR_SIMD)));
  const words bits = reinterpret_cast<words>(from);
  const words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const auto both = reinterpret_cast<parts>(nans(from) != 0 ? (bits >> 16) | 0x40u : rounded);
#if ZOOMR_SIMD == 16
  const auto low = __builtin_shufflevector(both, both, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
#else
  const auto low = __builtin_shufflevector(both, both, 0, 2, 4, 6, 8, 10, 12, 14);
#endif
  __builtin_memcpy(static_cast<void*>(at), &low, 2 * ZOOMR_SIMD);
}
[[gnu::always_inline]] inline void store(floats from, float16* at) {
  const floats number = nans(from) != 0 ? filled(bits_as<float>(0x7fffffff)) : from;  // it becomes 0x7fff
#if ZOOMR_SIMD == 16
  const auto low = __builtin_ia32_vcvtps2ph512_mask(number, 0, halves{}, static_cast<unsigned short>(all_lanes));
#elif ZOOMR_SIMD == 8
  const auto low = __builtin_ia32_vcvtps2ph256(number, 0);
#elif defined(__clang__)
  const auto low = __builtin_convertvector(number, halves);
#else
  const auto low = __builtin_aarch64_float_truncate_lo_v4hf(number);
#endif
  __builtin_memcpy(static_cast<void*>(at), &low, sizeof low);
}
[[gnu::always_inline]] inline void store(floats from, int8* at) {
  using bytes = std::int8_t __attribute__((vector_size(4 * ZOOMR_SIMD)));
  const floats number = nans(from) != 0 ? floats{} : from;
  const floats above = number > 127.0f ? filled(127.0f) : number;
  const floats bounded = above < -127.0f ? filled(-127.0f) : above;
  const auto whole = reinterpret_cast<bytes>(reinterpret_cast<ints>(bounded + 12582912.0f));  // 1.5 * 2^23
#if ZOOMR_SIMD == 16
  const auto low = __builtin_shufflevector(whole, whole, 0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
#else
  const auto low = __builtin_shufflevector(whole, whole, 0, 4, 8, 12, 16, 20, 24, 28);
#endif
  __builtin_memcpy(static_cast<void*>(at), &low, ZOOMR_SIMD);
}

/// The larger one, number by number; `a` where one is NaN.
[[gnu::always_inline]] inline floats larger(floats a, floats b) { return b > a ? b : a; }

/// Number i is what was number i + By, around the end.
template <index_t By>
[[gnu::always_inline]] inline floats rotated(floats v) {
#if ZOOMR_SIMD == 16
  return __builtin_shufflevector(v, v, By, By + 1, By + 2, By + 3, By + 4, By + 5, By + 6, By + 7, By + 8, By + 9,
                                 By + 10, By + 11, By + 12, By + 13, By + 14, By + 15);
#elif ZOOMR_SIMD == 8
  return __builtin_shufflevector(v, v, By, By + 1, By + 2, By + 3, By + 4, By + 5, By + 6, By + 7);
#else
  return __builtin_shufflevector(v, v, By, By + 1, By + 2, By + 3);
#endif
}

/// Number i is what number i % Period was.
template <index_t Period>
[[gnu::always_inline]] inline floats repeated(floats v) {
  constexpr int a = 0, b = Period > 1 ? 1 : 0, c = Period > 2 ? 2 : 0, d = Period > 2 ? 3 : b;
#if ZOOMR_SIMD == 16
  return __builtin_shufflevector(v, v, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d);
#elif ZOOMR_SIMD == 8
  return __builtin_shufflevector(v, v, a, b, c, d, a, b, c, d);
#else
  return __builtin_shufflevector(v, v, a, b, c, d);
#endif
}

/// a[0], b[0], a[1], b[1], ...: their first half, or with `Half` = 1 their second.
template <index_t Half>
[[gnu::always_inline]] inline floats interleaved(floats a, floats b) {
  constexpr int i = Half * ZOOMR_SIMD / 2, j = i + ZOOMR_SIMD;
#if ZOOMR_SIMD == 16
  return __builtin_shufflevector(a, b, i, j, i + 1, j + 1, i + 2, j + 2, i + 3, j + 3, i + 4, j + 4, i + 5, j + 5,
                                 i + 6, j + 6, i + 7, j + 7);
#elif ZOOMR_SIMD == 8
  return __builtin_shufflevector(a, b, i, j, i + 1, j + 1, i + 2, j + 2, i + 3, j + 3);
#else
  return __builtin_shufflevector(a, b, i, j, i + 1, j + 1);
#endif
}
/// a[0], a[1], b[0], b[1], a[2], a[3], ... the same way.
template <index_t Half>
[[gnu::always_inline]] inline floats interleaved_pairs(floats a, floats b) {
  constexpr int i = Half * ZOOMR_SIMD / 2, j = i + ZOOMR_SIMD;
#if ZOOMR_SIMD == 16
  return __builtin_shufflevector(a, b, i, i + 1, j, j + 1, i + 2, i + 3, j + 2, j + 3, i + 4, i + 5, j + 4, j + 5,
                                 i + 6, i + 7, j + 6, j + 7);
#elif ZOOMR_SIMD == 8
  return __builtin_shufflevector(a, b, i, i + 1, j, j + 1, i + 2, i + 3, j + 2, j + 3);
#else
  return __builtin_shufflevector(a, b, i, i + 1, j, j + 1);
#endif
}

/// As zoomr::exponential.
[[gnu::always_inline]] inline floats exponential(floats x) {
  const floats magic = filled(12582912.0f);
  const floats n = fused(x, filled(1.44269504f), magic) - magic;
  floats r = fused(n, filled(-0.693359375f), x);
  r = fused(n, filled(2.12194440e-4f), r);
  floats p = filled(1.9875691e-4f);
  p = fused(p, r, filled(1.3981999e-3f));
  p = fused(p, r, filled(8.3334519e-3f));
  p = fused(p, r, filled(4.1665796e-2f));
  p = fused(p, r, filled(1.6666665e-1f));
  p = fused(p, r, filled(5.0000001e-1f));
  p = fused(fused(p, r, filled(1.0f)), r, filled(1.0f));
  const floats power = reinterpret_cast<floats>((__builtin_convertvector(n, ints) + 127) << 23);
  return x < -87.0f ? floats{} : p * power;  // NaN stays
}

/// Prefetches a number's line, into the second cache: the first is too small for two pages of a KV head.
template <class T>
[[gnu::always_inline]] inline void prefetch(const T* at) {
  __builtin_prefetch(at, 0, 2);
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
