// SPDX-License-Identifier: Apache-2.0
// L1. Stored numbers in pieces of 16 bytes, as a device reads and writes them: one load for `per_vector` numbers, then
// floats. The values are those of core/storage.hpp; where the hardware can convert, it does. Numbers keep the order in
// which they are in memory; a piece must be aligned to its 16 bytes.
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/core/storage.hpp>

#if !defined(ZOOMR_SIMT)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#endif

#include <cstddef>  // std::size_t

namespace zoomr::inline v0 {

/// Stored numbers in 16 bytes.
template <class T>
inline constexpr index_t per_vector = static_cast<index_t>(16 / sizeof(T));

/// Of two words with two numbers of 16 bits each, the lower halves: that of `a` below that of `b`.
__device__ inline unsigned lower_halves(unsigned a, unsigned b) {
#if defined(ZOOMR_SIMT)
  return (a & 0xffffu) | b << 16;
#else
  return __byte_perm(a, b, 0x5410);
#endif
}
/// The upper halves.
__device__ inline unsigned upper_halves(unsigned a, unsigned b) {
#if defined(ZOOMR_SIMT)
  return a >> 16 | (b & 0xffff0000u);
#else
  return __byte_perm(a, b, 0x7632);
#endif
}

/// The numbers in 4 bytes, of which a piece has four, one after the other; the first in the lowest bits. Converted by
/// the functions of the host: what every type can do.
template <class T>
struct plain_word {
  static constexpr index_t count = static_cast<index_t>(4 / sizeof(T));
  struct numbers {
    T at[std::size_t{count}];
  };

  /// @param out  [count]
  __device__ static void unpack(unsigned word, float* out) {
    const auto stored = bits_as<numbers>(word);
    for (index_t i = 0; i < count; ++i) out[i] = to_float(stored.at[i]);
  }
  /// @param values  [count]
  __device__ static unsigned pack(const float* values) {
    numbers stored;
    for (index_t i = 0; i < count; ++i) stored.at[i] = from_float<T>(values[i]);
    return bits_as<unsigned>(stored);
  }
  /// Four numbers of 8 bits as float16, which holds each of them exactly: two in a word.
  __device__ static void halves(unsigned word, unsigned (&out)[2]) {
    static_assert(count == 4);
    float numbers[4];
    unpack(word, numbers);
    out[0] = plain_word<float16>::pack(numbers);
    out[1] = plain_word<float16>::pack(numbers + 2);
  }
};

/// The same numbers in the shortest way that there is: a specialisation gives the same bits by fewer
/// instructions, but for the NaN that a bfloat16 becomes.
template <class T>
struct stored_word : plain_word<T> {};

/// Conversions of integers are slow: each byte + 128 becomes the end of 2^23, and both are subtracted again.
template <>
struct stored_word<int8> : plain_word<int8> {
  __device__ static void unpack(unsigned word, float* out) {
    const unsigned above_zero = word ^ 0x80808080u;
    for (int i = 0; i < 4; ++i) out[i] = bits_as<float>(((above_zero >> (8 * i)) & 0xffu) | 0x4b000000u) - 8388736.0f;
  }
#if !defined(ZOOMR_SIMT)
  /// Likewise each byte + 128 becomes the end of 2^10.
  __device__ static void halves(unsigned word, unsigned (&out)[2]) {
    const unsigned above_zero = word ^ 0x80808080u;
    const __half2_raw subtracted = bits_as<__half2_raw>(0x64806480u);
    const __half2_raw low = bits_as<__half2_raw>(__byte_perm(above_zero, 0x64646464u, 0x4140));
    const __half2_raw high = bits_as<__half2_raw>(__byte_perm(above_zero, 0x64646464u, 0x4342));
    out[0] = bits_as<unsigned>(static_cast<__half2_raw>(__hsub2(low, subtracted)));
    out[1] = bits_as<unsigned>(static_cast<__half2_raw>(__hsub2(high, subtracted)));
  }
#endif
};

#if !defined(ZOOMR_SIMT)

template <>
struct stored_word<bfloat16> {
  __device__ static void unpack(unsigned word, float* out) {
    out[0] = bits_as<float>(word << 16);
    out[1] = bits_as<float>(word & 0xffff0000u);
  }
  __device__ static unsigned pack(const float* values) {
    return bits_as<unsigned>(static_cast<__nv_bfloat162_raw>(__floats2bfloat162_rn(values[0], values[1])));
  }
};

template <>
struct stored_word<float16> {
  __device__ static void unpack(unsigned word, float* out) {
    const float2 both = __half22float2(bits_as<__half2_raw>(word));
    out[0] = both.x;
    out[1] = both.y;
  }
  __device__ static unsigned pack(const float* values) {
    return bits_as<unsigned>(static_cast<__half2_raw>(__floats2half2_rn(values[0], values[1])));
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890  // older devices have no instructions for float8

template <>
struct stored_word<float8> {
  __device__ static void unpack(unsigned word, float* out) {
    unsigned pairs[2];
    halves(word, pairs);
    stored_word<float16>::unpack(pairs[0], out);
    stored_word<float16>::unpack(pairs[1], out + 2);
  }
  __device__ static void halves(unsigned word, unsigned (&out)[2]) {
    for (int pair = 0; pair < 2; ++pair) {
      const auto two = static_cast<__nv_fp8x2_storage_t>(word >> (16 * pair));
      out[pair] = bits_as<unsigned>(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3));
    }
  }
  __device__ static unsigned pack(const float* values) {
    const unsigned low = __nv_cvt_float2_to_fp8x2({values[0], values[1]}, __NV_SATFINITE, __NV_E4M3);
    const unsigned high = __nv_cvt_float2_to_fp8x2({values[2], values[3]}, __NV_SATFINITE, __NV_E4M3);
    return low | (high << 16);
  }
};

#endif
#endif

/// @param piece  16 bytes of stored numbers
/// @param out    exactly what they are
template <class T>
__device__ inline void unpack(const uint4& piece, float (&out)[std::size_t{per_vector<T>}]) {
  constexpr index_t count = per_vector<T> / 4;
  stored_word<T>::unpack(piece.x, out);
  stored_word<T>::unpack(piece.y, out + count);
  stored_word<T>::unpack(piece.z, out + 2 * count);
  stored_word<T>::unpack(piece.w, out + 3 * count);
}

/// @param values  rounded as `from_float` does, bit by bit, but for the NaN that a bfloat16 becomes
template <class T>
__device__ inline uint4 pack(const float (&values)[std::size_t{per_vector<T>}]) {
  constexpr index_t count = per_vector<T> / 4;
  return {stored_word<T>::pack(values), stored_word<T>::pack(values + count), stored_word<T>::pack(values + 2 * count),
          stored_word<T>::pack(values + 3 * count)};
}

}  // namespace zoomr::inline v0
