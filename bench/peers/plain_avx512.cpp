// SPDX-License-Identifier: Apache-2.0
// Attention of one token as one writes it down with AVX-512: what zoomr's kernel is compared with, short enough to be
// checked by eye. float16 keys and values of each KV head side by side, [tokens, 128]; four query heads share each
// number that is loaded. Two passes: all logits, then all values.
#include <immintrin.h>

#include <algorithm>  // std::max
#include <cmath>      // std::sqrt
#include <cstdint>    // std::uint16_t
#include <vector>     // std::vector

namespace {

constexpr int head_dim = 128, group = 4, lanes = 16, vectors = head_dim / lanes;

#define AVX512 [[gnu::target("avx512f,avx512dq,f16c")]]

AVX512 __m512 load(const std::uint16_t* at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
}

/// e^x for x <= 0: 2^n times a polynomial of the rest.
AVX512 __m512 exponential(__m512 x) {
  const __m512 y = _mm512_max_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _mm512_set1_ps(-126.0f));
  const __m512 n = _mm512_roundscale_ps(y, _MM_FROUND_TO_NEAREST_INT);
  const __m512 r = _mm512_mul_ps(_mm512_sub_ps(y, n), _mm512_set1_ps(0.693147181f));
  __m512 p = _mm512_set1_ps(1.0f / 720);
  for (const float c : {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  }
  return _mm512_scalef_ps(p, n);
}

/// queries, out: [group, head_dim]; weights: [group, tokens rounded up to a vector]
AVX512 void attend_head(int tokens, int row, const std::uint16_t* keys, const std::uint16_t* values,
                        const float* queries, float* weights, float* out) {
  const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  float largest[group], sums[group];
  for (int g = 0; g < group; ++g) largest[g] = -1e30f, sums[g] = 0.0f;
  for (int t = 0; t < tokens; ++t) {
    __m512 product[group] = {};
    for (int v = 0; v < vectors; ++v) {
      const __m512 key = load(keys + (static_cast<long>(t) * vectors + v) * lanes);
      for (int g = 0; g < group; ++g) {
        product[g] = _mm512_fmadd_ps(key, _mm512_loadu_ps(queries + g * head_dim + v * lanes), product[g]);
      }
    }
    for (int g = 0; g < group; ++g) {
      weights[g * row + t] = scale * _mm512_reduce_add_ps(product[g]);
      largest[g] = std::max(largest[g], weights[g * row + t]);
    }
  }
  for (int g = 0; g < group; ++g) {
    for (int t = tokens; t < row; ++t) weights[g * row + t] = -1e30f;
    __m512 sum{};
    for (int t = 0; t < row; t += lanes) {
      const __m512 weight =
          exponential(_mm512_sub_ps(_mm512_loadu_ps(weights + g * row + t), _mm512_set1_ps(largest[g])));
      _mm512_storeu_ps(weights + g * row + t, weight);
      sum = _mm512_add_ps(sum, weight);
    }
    sums[g] = _mm512_reduce_add_ps(sum);
  }
  for (int half = 0; half < 2; ++half) {  // what fits into the registers
    __m512 made[group][vectors / 2] = {};
    for (int t = 0; t < tokens; ++t) {
      for (int v = 0; v < vectors / 2; ++v) {
        const __m512 value = load(values + static_cast<long>(t) * head_dim + (half * vectors / 2 + v) * lanes);
        for (int g = 0; g < group; ++g) {
          made[g][v] = _mm512_fmadd_ps(value, _mm512_set1_ps(weights[g * row + t]), made[g][v]);
        }
      }
    }
    for (int g = 0; g < group; ++g) {
      for (int v = 0; v < vectors / 2; ++v) {
        _mm512_storeu_ps(out + g * head_dim + (half * vectors / 2 + v) * lanes,
                         _mm512_div_ps(made[g][v], _mm512_set1_ps(sums[g])));
      }
    }
  }
}

}  // namespace

/// @param keys, values  [kv_heads, tokens, 128]  float16
/// @param queries, out  [kv_heads * 4, 128]
extern "C" int plain_attend(int tokens, int kv_heads, const std::uint16_t* keys, const std::uint16_t* values,
                            const float* queries, float* out) {
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq")) return 1;
  const int row = (tokens + lanes - 1) / lanes * lanes;
  static thread_local std::vector<float> weights;
  weights.resize(static_cast<std::size_t>(group) * static_cast<std::size_t>(row));
  for (int head = 0; head < kv_heads; ++head) {
    const long at = static_cast<long>(head) * tokens * head_dim;
    attend_head(tokens, row, keys + at, values + at, queries + head * group * head_dim, weights.data(),
                out + head * group * head_dim);
  }
  return 0;
}
