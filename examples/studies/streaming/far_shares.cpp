// SPDX-License-Identifier: Apache-2.0
#include <algorithm>  // std::max, std::min, std::sort, std::stable_sort
#include <numeric>    // std::accumulate, std::iota

#include "streaming.hpp"

namespace decode::streaming {

std::vector<double> far_shares(const perplexity::prefill& prompt, std::span<const index_t> layers, near_tokens near,
                               index_t tokens, index_t stride) {
  const auto length = static_cast<index_t>(prompt.tokens());
  const index_t kv_heads = prompt.keys(0).extent(1), group = prompt.last_queries(0).extent(1) / kv_heads;
  std::vector<double> shares;
  for (const index_t layer : layers) {
    for (index_t g = 0; g < kv_heads; ++g) {
      double sum = 0, queries = 0;
      for (index_t back = 0; back < std::min(tokens, length); back += stride) {
        std::vector<float> weights(static_cast<std::size_t>(length - back));
        double most = 0;
        for (index_t head = g * group; head < (g + 1) * group; ++head) {
          prompt.attend_from(layer, head, back, weights);
          const auto first = weights.begin() + std::min(near.sinks, length - back);
          const auto last = weights.begin() + std::max(near.sinks, length - back - near.recent);
          if (first < last) most = std::max(most, std::accumulate(first, last, 0.0));
        }
        sum += most, queries += 1;
      }
      shares.push_back(sum / queries);
    }
  }
  return shares;
}

std::vector<index_t> largest(std::span<const double> shares, index_t count, const std::vector<bool>& must) {
  std::vector<index_t> places(shares.size());
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](index_t a, index_t b) {
    const auto x = static_cast<std::size_t>(a), y = static_cast<std::size_t>(b);
    return must[x] != must[y] ? must[x] : shares[x] > shares[y];
  });
  places.resize(static_cast<std::size_t>(count));
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace decode::streaming
