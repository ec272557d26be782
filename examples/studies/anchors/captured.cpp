// SPDX-License-Identifier: Apache-2.0
#include "captured.hpp"

#include <algorithm>  // std::binary_search, std::max, std::min, std::nth_element, std::sort
#include <cmath>      // std::llround
#include <cstdint>    // std::int64_t
#include <numeric>    // std::iota

#include "../evaluate/token_controls.hpp"

namespace decode::anchors {

std::vector<index_t> exact_rule::chosen(std::span<const float> weights, std::size_t context) const {
  const auto tokens = static_cast<index_t>(context);
  const zoomr::zones zone = exact_zones(budget);
  const index_t front = std::min(zone.sinks, tokens), back = std::max(front, tokens - zone.recent);
  std::vector<std::int64_t> mass(context);  // the largest of the heads, in units of pooled_mass
  for (std::size_t row = 0; row < weights.size(); row += context) {
    const auto of_head = weights.subspan(row, context);
    double between = 0;
    for (index_t t = front; t < back; ++t) between += double{of_head[static_cast<std::size_t>(t)]};
    for (std::size_t t = 0; t < context && between > 0; ++t)
      mass[t] = std::max(mass[t], std::int64_t{std::llround(double{of_head[t]} / between * zoomr::pooled_mass::unit)});
  }
  std::vector<index_t> read(static_cast<std::size_t>(back - front));
  std::iota(read.begin(), read.end(), front);
  const auto taken = static_cast<std::size_t>(budget - zone.sinks - zone.recent);
  if (read.size() > taken) {
    const auto larger = [&](index_t a, index_t b) {
      const std::int64_t of_a = mass[static_cast<std::size_t>(a)], of_b = mass[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    };
    std::nth_element(read.begin(), read.begin() + static_cast<std::ptrdiff_t>(taken), read.end(), larger);
    read.resize(taken);
  }
  for (index_t t = 0; t < front; ++t) read.push_back(t);
  for (index_t t = back; t < tokens; ++t) read.push_back(t);
  std::sort(read.begin(), read.end());
  return read;
}

captured_shares::captured_shares(index_t layers, index_t kv_heads)
    : layers_(layers),
      kv_heads_(kv_heads),
      sums_(static_cast<std::size_t>(layers * kv_heads) * static_cast<std::size_t>(layers * kv_heads)) {}

void captured_shares::add(const captured_shares& other) {
  for (std::size_t i = 0; i < sums_.size(); ++i) sums_[i] += other.sums_[i];
  queries_ += other.queries_;
}

double captured_shares::share(index_t anchor, index_t m, index_t layer, index_t g) const {
  return sums_[place(anchor, m, layer, g)] / queries_;
}

index_t captured_shares::best_kv_head(index_t anchor, index_t layer, index_t g) const {
  if (anchor == layer) return g;
  index_t best = 0;
  for (index_t m = 1; m < kv_heads_; ++m) {
    if (share(anchor, m, layer, g) > share(anchor, best, layer, g)) best = m;
  }
  return best;
}

double captured_shares::share(index_t anchor, index_t layer, const captured_shares& by) const {
  double sum = 0;
  for (index_t g = 0; g < kv_heads_; ++g) sum += share(anchor, by.best_kv_head(anchor, layer, g), layer, g);
  return sum / kv_heads_;
}

void captured_shares::add(const perplexity::prefill& prompt, std::span<const index_t> layers, const exact_rule& rule,
                          index_t tokens, index_t stride) {
  const auto length = static_cast<index_t>(prompt.tokens());
  std::vector<std::vector<index_t>> chosen(static_cast<std::size_t>(layers_ * kv_heads_));
  for (index_t back = 0; back < std::min(tokens, length); back += stride) {
    const auto context = static_cast<std::size_t>(length - back);
    queries_ += 1;
    for (index_t l = 0; l < layers_; ++l) {
      const index_t layer = layers[static_cast<std::size_t>(l)];
      const index_t group = prompt.last_queries(layer).extent(1) / kv_heads_;
      std::vector<float> weights(context * static_cast<std::size_t>(group));
      for (index_t g = 0; g < kv_heads_; ++g) {
        const auto row = [&](index_t h) {
          return std::span(weights).subspan(static_cast<std::size_t>(h) * context, context);
        };
        for (index_t h = 0; h < group; ++h) prompt.attend_from(layer, g * group + h, back, row(h));
        chosen[static_cast<std::size_t>(l * kv_heads_ + g)] = rule.chosen(weights, context);
        for (index_t lane = 0; lane < (l + 1) * kv_heads_; ++lane) {
          double sum = 0;
          if (lane >= l * kv_heads_ && lane != l * kv_heads_ + g) continue;  // heads of a layer choose for themselves
          for (index_t h = 0; h < group; ++h) {
            for (const index_t t : chosen[static_cast<std::size_t>(lane)])
              sum += double{row(h)[static_cast<std::size_t>(t)]};
          }
          sums_[place(lane / kv_heads_, lane % kv_heads_, l, g)] += sum / group;
        }
      }
    }
  }
}

std::vector<index_t> best_anchors(index_t layers, index_t count, index_t dense, std::span<const index_t> chosen,
                                  zoomr::function_ref<double(index_t, index_t)> share) {
  const auto at = [&](index_t anchors, index_t end) {
    return static_cast<std::size_t>(anchors) * static_cast<std::size_t>(layers + 1) + static_cast<std::size_t>(end);
  };
  // best[k, end]: of the layers [dense, end) by k anchors; last[k, end]: the last of these.
  std::vector<double> best(at(count, layers) + 1, -1.0);
  std::vector<index_t> last(best.size(), -1);
  best[at(0, dense)] = 0;
  for (index_t k = 1; k <= count; ++k) {
    for (index_t anchor = dense; anchor < layers; ++anchor) {
      double sum = best[at(k - 1, anchor)];
      if (sum < 0) continue;
      for (index_t end = anchor + 1; end <= layers; ++end) {
        if (end - 1 > anchor && std::binary_search(chosen.begin(), chosen.end(), end - 1)) break;
        sum += share(anchor, end - 1);
        if (sum <= best[at(k, end)]) continue;
        best[at(k, end)] = sum, last[at(k, end)] = anchor;
      }
    }
  }
  std::vector<index_t> read(static_cast<std::size_t>(layers));
  std::iota(read.begin(), read.end(), 0);
  for (index_t k = count, end = layers; k > 0; --k) {
    const index_t anchor = last[at(k, end)];
    std::fill(read.begin() + anchor, read.begin() + end, anchor);
    end = anchor;
  }
  return read;
}

std::vector<index_t> even_anchors(index_t layers, index_t count, index_t dense) {
  const index_t sparse = layers - dense;
  std::vector<index_t> read(static_cast<std::size_t>(layers));
  std::iota(read.begin(), read.end(), 0);
  for (index_t layer = 0; layer < sparse; ++layer) {
    const index_t part = layer * count / sparse;
    read[static_cast<std::size_t>(dense + layer)] = dense + (part * sparse + count - 1) / count;
  }
  return read;
}

}  // namespace decode::anchors
