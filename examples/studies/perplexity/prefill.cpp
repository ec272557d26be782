// SPDX-License-Identifier: Apache-2.0
#include "prefill.hpp"

#include <zoomr/math/products.hpp>

#include <algorithm>  // std::equal, std::fill, std::max, std::max_element
#include <cmath>      // std::exp, std::sqrt
#include <numeric>    // std::iota

#include <cblas.h>

#include "../../decode/input_error.hpp"

namespace decode::perplexity {
namespace {

// Probabilities of the logits [begin, end); 0 for all others.
void softmax(std::span<float> row, std::size_t begin, std::size_t end) {
  constexpr std::size_t lanes = zoomr::partial_sums;
  const std::span<float> seen = row.subspan(begin, end - begin);
  zoomr::detail::on_fastest_path([&] {
    float largest[lanes], sums[lanes] = {};
    std::fill_n(largest, lanes, seen[0]);
    const auto each_lane = [&](auto visit) {
      std::size_t i = 0;
      for (; i + lanes <= seen.size(); i += lanes)
        for (std::size_t l = 0; l < lanes; ++l) visit(l, seen[i + l]);
      for (; i < seen.size(); ++i) visit(0, seen[i]);
    };
    each_lane([&](std::size_t l, float x) { largest[l] = x > largest[l] ? x : largest[l]; });
    zoomr::detail::exponentials(zoomr::fastest_cpu_path(), {seen.data(), {static_cast<index_t>(seen.size())}},
                                *std::max_element(largest, largest + lanes));
    each_lane([&](std::size_t l, float x) { sums[l] += x; });
    const float part = 1.0f / zoomr::halving_sum(sums);
    for (float& x : seen) x *= part;
  });
  std::fill(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(begin), 0.0f);
  std::fill(row.begin() + static_cast<std::ptrdiff_t>(end), row.end(), 0.0f);
}

std::vector<std::size_t> windows_of(const model_config& c) {
  std::vector<std::size_t> windows;
  for (std::size_t layer = 0; layer < c.layers; ++layer) windows.push_back(c.has_window(layer) ? c.window : 0);
  return windows;
}

}  // namespace

// What model::forward takes for a step: writes down what passes through it, and attends to all of it.
struct prefill::own_step {
  prefill& to;
  std::size_t first;  // token of the chunk
  bool last;          // chunk of the prompt

  void append(index_t layer, zoomr::view<const float, 3> keys, zoomr::view<const float, 3> values) {
    write(keys, to.of(layer).keys), write(values, to.of(layer).values);
  }
  void attend(index_t layer, zoomr::view<const float, 3> queries, zoomr::view<float, 3> out) {
    if (last || to.kept_ == kept_queries::all) write(queries, to.of(layer).queries);
    zoomr::detail::for_each_piece(to.threads_, to.shape_.heads, [&](index_t head, index_t thread) {
      const std::size_t window = to.windows_[static_cast<std::size_t>(layer)];
      to.attend_head(to.of(layer), window, head, first, queries, out, to.weights_[static_cast<std::size_t>(thread)]);
    });
  }
  static void write(zoomr::view<const float, 3> from, std::vector<float>& memory) {
    const auto size = static_cast<std::ptrdiff_t>(from.extent(0)) * from.extent(1) * from.extent(2);
    memory.insert(memory.end(), from.data(), from.data() + size);
  }
};

// visit(first, count, is it the last?)
template <class Visit>
void prefill::each_chunk(Visit visit) const {
  for (std::size_t first = 0; first < ids_.size();) {
    const std::size_t left = ids_.size() - first, count = chunk_of(left);
    visit(first, count, count == left);
    first += count;
  }
}

std::size_t prefill::tokens_alike_with(std::span<const token_id> ids) const {
  std::size_t alike = 0;
  for (;;) {
    const std::size_t own_left = ids_.size() - alike, left = ids.size() - alike, count = chunk_of(left);
    if (own_left <= chunk || left <= chunk || chunk_of(own_left) != count)
      return alike;  // a last chunk is no one else's
    if (!std::equal(&ids[alike], &ids[alike] + count, &ids_[alike])) return alike;
    alike += count;
  }
}

void prefill::copy_first(const prefill& known, std::size_t tokens) {
  const auto copy = [&](const std::vector<float>& from, index_t heads, std::vector<float>& to) {
    to.assign(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(tokens) * heads * shape_.head_dim);
  };
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const layer_memory& from = known.layers_[layer];
    copy(from.keys, shape_.kv_heads, layers_[layer].keys);
    copy(from.values, shape_.kv_heads, layers_[layer].values);
    if (kept_ == kept_queries::all) copy(from.queries, shape_.heads, layers_[layer].queries);
  }
}

prefill::prefill(model& net, std::span<const token_id> ids, const std::function<void(std::size_t)>& passed,
                 kept_queries kept, const prefill* known)
    : shape_(shape_of(net.config(), net.config().layers)),
      kept_(kept),
      windows_(windows_of(net.config())),
      scale_(net.config().attention_scale > 0 ? static_cast<float>(net.config().attention_scale)
                                              : 1.0f / std::sqrt(static_cast<float>(shape_.head_dim))),
      ids_(ids.begin(), ids.end()),
      layers_(net.config().layers),
      logits_(net.config().vocab),
      threads_(net.threads()),
      weights_(static_cast<std::size_t>(threads_.threads())) {
  if (!net.config().donors.empty())
    fail("studies pass a text through layers that each have keys, here some share them");
  const std::size_t copied = known == nullptr ? 0 : known->tokens_alike_with(ids);
  if (copied > 0) copy_first(*known, copied);
  each_chunk([&](std::size_t first, std::size_t count, bool last) {
    if (first < copied) return;
    own_step step{*this, first, last};
    std::vector<index_t> positions(count), row;
    std::iota(positions.begin(), positions.end(), static_cast<index_t>(first));
    if (last) row.push_back(static_cast<index_t>(count) - 1);
    net.forward(step, std::span(ids_).subspan(first, count), positions, row,
                {logits_.data(), {static_cast<index_t>(row.size()), static_cast<index_t>(logits_.size())}});
    passed(first + count);
  });
  weights_ = {};
}

void prefill::attend_from(index_t layer, index_t head, index_t back, std::span<float> weights) const {
  const auto rows = keys(layer), kept = last_queries(layer);
  const float* const query = kept[kept.extent(0) - 1 - back][head].data();
  const index_t dims = rows.extent(2);
  float largest = -zoomr::infinity;
  for (std::size_t t = 0; t < weights.size(); ++t) {
    const float* const key = rows[static_cast<index_t>(t)][head / shape_.group()].data();
    float product = 0;
    for (index_t d = 0; d < dims; ++d) product += query[d] * key[d];
    weights[t] = product * scale_;
    largest = std::max(largest, weights[t]);
  }
  double sum = 0;
  for (float& weight : weights) sum += weight = std::exp(weight - largest);
  for (float& weight : weights) weight = static_cast<float>(weight / sum);
}

template <class Cache>
void prefill::replay_with(Cache& cache, zoomr::sequence seq, std::span<const zoomr::token_span> spans) const {
  each_chunk([&](std::size_t first, std::size_t count, bool last) {
    const std::vector<zoomr::token_span> within = spans_in(spans, first, count);
    zoomr::step_item item{seq, std::span(ids_).subspan(first, count), last};
    item.spans = {within.data(), {static_cast<index_t>(within.size())}};
    auto step = cache.begin(zoomr::view<const zoomr::step_item>(&item, {1}));
    for (std::size_t l = 0; l < layers_.size(); ++l) {
      const auto own = static_cast<index_t>(l);
      const layer_memory& memory = layers_[l];
      step.append(own, rows(memory.keys, first, count), rows(memory.values, first, count));
      if (kept_ == kept_queries::all) {
        step.observe(own, queries(memory, first, count));
      } else if (last) {
        step.observe(own, queries(memory, 0, count));
      }
    }
    step.commit();
  });
}
template void prefill::replay_with(zoomr::any_kv_cache<>&, zoomr::sequence, std::span<const zoomr::token_span>) const;
template void prefill::replay_with(zoomr::grouped_kv_cache<>&, zoomr::sequence,
                                   std::span<const zoomr::token_span>) const;

void prefill::give(zoomr::any_kv_cache<>& cache, zoomr::step_item item, std::size_t first, std::size_t count,
                   bool of_prompt, std::span<const index_t> layers) const {
  const std::span<const token_id> ids = std::span(ids_).subspan(first, count);
  item.ids = ids;
  auto step = cache.begin(zoomr::view<const zoomr::step_item>(&item, {1}));
  std::vector<float> unused(
      of_prompt ? 0 : count * static_cast<std::size_t>(shape_.heads) * static_cast<std::size_t>(shape_.head_dim));
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const auto own = static_cast<index_t>(l);
    const layer_memory& memory = layers_[static_cast<std::size_t>(layers[l])];
    step.append(own, rows(memory.keys, first, count), rows(memory.values, first, count));
    const zoomr::view<const float, 3> asked = queries(memory, first, count);
    if (of_prompt) {
      step.observe(own, asked);
    } else {
      step.attend(own, asked, {unused.data(), {asked.extent(0), asked.extent(1), asked.extent(2)}});
    }
  }
  step.commit();
}

void prefill::attend_head(const layer_memory& memory, std::size_t window, index_t head, std::size_t first,
                          zoomr::view<const float, 3> queries, zoomr::view<float, 3> out, std::vector<float>& weights) {
  // [begin, end) are the keys that some token of the chunk sees
  const auto sees_from = [&](std::size_t token) { return window > 0 && token >= window ? token + 1 - window : 0; };
  const std::size_t begin = sees_from(first), end = first + static_cast<std::size_t>(queries.extent(0));
  const int tokens = queries.extent(0), dims = shape_.head_dim, seen = static_cast<int>(end - begin);
  const int query_row = shape_.heads * dims, key_row = shape_.kv_heads * dims;
  const std::ptrdiff_t of_query = head * dims;
  const std::ptrdiff_t of_key = static_cast<std::ptrdiff_t>(begin) * key_row + head / shape_.group() * dims;
  weights.resize(static_cast<std::size_t>(tokens) * static_cast<std::size_t>(seen));  // [tokens, seen]
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, tokens, seen, dims, scale_, queries.data() + of_query, query_row,
              memory.keys.data() + of_key, key_row, 0.0f, weights.data(), seen);
  for (int t = 0; t < tokens; ++t) {
    const std::size_t token = first + static_cast<std::size_t>(t);
    const std::span row(&weights[static_cast<std::size_t>(t) * (end - begin)], end - begin);
    softmax(row, sees_from(token) - begin, token + 1 - begin);
  }
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, tokens, dims, seen, 1.0f, weights.data(), seen,
              memory.values.data() + of_key, key_row, 0.0f, out.data() + of_query, query_row);
}

zoomr::view<const float, 3> prefill::queries(const layer_memory& memory, std::size_t first, std::size_t count) const {
  const std::size_t width = static_cast<std::size_t>(shape_.heads) * static_cast<std::size_t>(shape_.head_dim);
  return {memory.queries.data() + first * width, {static_cast<index_t>(count), shape_.heads, shape_.head_dim}};
}

zoomr::view<const float, 3> prefill::rows(const std::vector<float>& all, std::size_t first, std::size_t count) const {
  const auto width = static_cast<std::size_t>(shape_.kv_heads) * static_cast<std::size_t>(shape_.head_dim);
  return {all.data() + first * width, {static_cast<index_t>(count), shape_.kv_heads, shape_.head_dim}};
}

}  // namespace decode::perplexity
