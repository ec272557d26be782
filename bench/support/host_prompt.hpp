// SPDX-License-Identifier: Apache-2.0
// A prompt of a host cache under full attention, in chunks that all have the same rows: one layer, as a rule of 8 KV
// heads and 32 heads of 128 dimensions.
#pragma once

#include <algorithm>  // std::max
#include <vector>     // std::vector

#include "../../tests/support/rounded_weights.hpp"
#include "host_policies.hpp"
#include "noise.hpp"
#include "reference.hpp"

namespace zoomr_bench {

template <class T>
class host_prompt {
 public:
  static constexpr zoomr::index_t head_dim = toy ? 16 : 128, kv_heads = toy ? 2 : 8, group = 4;
  static constexpr zoomr::index_t heads = kv_heads * group;

  /// @param tokens  a multiple of `chunk`
  host_prompt(zoomr::index_t tokens, zoomr::index_t chunk, const zoomr::executor& on = {})
      : tokens_(tokens),
        chunk_(chunk),
        cache_(zoomr::kv_cache<std::remove_const_t<decltype(host_full)>, T>({1, heads, kv_heads, head_dim}, host_full,
                                                                            limits(tokens, chunk, on))),
        keys_(noise(std::int64_t{chunk} * kv_heads * head_dim, 1)),
        values_(noise(std::int64_t{chunk} * kv_heads * head_dim, 2)),
        queries_(noise(std::int64_t{chunk} * heads * head_dim, 3, query_scale)),
        out_(queries_.size()) {
    for (float& number : queries_) number = as_engine_has<T>(number);
  }

  /// @return  seconds of `attend`, all chunks together
  double run() {
    const zoomr::sequence seq = cache_.open();
    const std::vector<zoomr::token_id> ids(static_cast<std::size_t>(chunk_));
    double seconds = 0;
    for (zoomr::index_t at = 0; at < tokens_; at += chunk_) {
      auto step = cache_.begin(seq, ids, at + chunk_ == tokens_);
      step.append(0, packed(keys_, kv_heads), packed(values_, kv_heads));
      const double from = now();
      step.attend(0, packed(queries_, heads), packed(out_, heads));
      seconds += now() - from;
      step.commit();
    }
    cache_.close(seq);
    return seconds;
  }

  /// Compares some queries of the last chunk with attention in double.
  /// @throws wrong
  void expect_right() {
    run();
    for (const zoomr::index_t t : {0, chunk_ / 2, chunk_ - 1}) {
      for (zoomr::index_t head = t % group; head < heads; head += heads - 1) {
        const std::int64_t row = (std::int64_t{t} * heads + head) * head_dim;
        const auto number = [&](const std::vector<float>& from, zoomr::index_t s, zoomr::index_t d) {
          const std::int64_t place = (std::int64_t{s % chunk_} * kv_heads + head / group) * head_dim + d;
          return zoomr::to_float(zoomr::from_float<T>(from[static_cast<std::size_t>(place)]));
        };
        const auto expected = attention(
            std::vector<float>(queries_.begin() + row, queries_.begin() + row + head_dim), tokens_ - chunk_ + t + 1,
            [&](zoomr::index_t s, zoomr::index_t d) { return number(keys_, s, d); },
            [&](zoomr::index_t s, zoomr::index_t d) { return number(values_, s, d); });
        expect_outputs(expected, [&](zoomr::index_t d) { return out_[static_cast<std::size_t>(row + d)]; },
                       {.of_weights = tolerance::of_path<T>(head_dim)});
      }
    }
  }

  /// Multiplications and additions of `run`.
  double flops() const { return 2.0 * heads * head_dim * tokens_ * (tokens_ + 1.0); }

 private:
  static zoomr::config limits(zoomr::index_t tokens, zoomr::index_t chunk, const zoomr::executor& on) {
    zoomr::config made;
    made.max_tokens = tokens, made.max_batched_tokens = chunk, made.threads = on;
    return made;
  }
  auto packed(std::vector<float>& numbers, zoomr::index_t rows) const {
    return zoomr::view(numbers.data(), zoomr::extents<3>{{chunk_, rows, head_dim}});
  }

  zoomr::index_t tokens_, chunk_;
  zoomr::any_kv_cache<T> cache_;
  std::vector<float> keys_, values_, queries_, out_;
};

}  // namespace zoomr_bench
