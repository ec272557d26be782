// SPDX-License-Identifier: Apache-2.0
#include "reference.hpp"

#include <algorithm>  // std::clamp, std::max, std::min, std::sort
#include <cmath>      // std::exp, std::isfinite, std::log, std::sqrt, std::tanh

#include <cblas.h>

#include "../decode/input_error.hpp"

namespace replay {
namespace {

std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

/// C [rows, columns] = scale * A [rows, depth] · B [depth, columns], or + C; B may be transposed, [columns, depth].
void multiply(bool transposed, index_t rows, index_t columns, index_t depth, float scale, const float* a,
              const float* b, index_t b_stride, float before, float* c) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, transposed ? CblasTrans : CblasNoTrans, rows, columns, depth, scale, a,
              depth, b, b_stride, before, c, columns);
}

}  // namespace

reference::reference(trace& from, index_t most_tokens, index_t top_keys) : from_(from) {
  const zoomr::shape& model = from.facts().model;
  answers_.top_keys = top_keys;
  answers_.model = model;
  const std::size_t rows = at(std::int64_t{most_tokens} * model.heads);
  queries_.resize(rows * at(model.head_dim));
  sums_.resize(rows * at(model.value_width()));
  largest_.resize(rows), weights_.resize(rows), top_.resize(rows);
  for (auto& heap : top_) heap.reserve(at(top_keys));
  logits_.resize(at(std::int64_t{most_tokens} * model.group() * std::max(keys_at_once(model), most_tokens)));
}

index_t reference::keys_at_once(const zoomr::shape& model) {
  return std::clamp((1 << 20) / (model.kv_heads * std::max(model.head_dim, model.value_width())), 64, 1024);
}

std::int64_t reference::bytes(const trace_facts& facts, index_t most_tokens, index_t top_keys) {
  const zoomr::shape& model = facts.model;
  const std::int64_t rows = std::int64_t{most_tokens} * model.heads, keys = keys_at_once(model);
  const std::int64_t answers = rows * model.layers * (4 * model.value_width() + 4 + 4 * std::int64_t{top_keys});
  const std::int64_t states = rows * (4 * model.head_dim + 4 * model.value_width() + 12 + 8 * std::int64_t{top_keys});
  const std::int64_t prefix = 8 * keys * model.kv_heads * (model.head_dim + model.value_width());
  return answers + states + prefix + 4 * most_tokens * model.group() * std::max<std::int64_t>(keys, most_tokens);
}

const exact_answers& reference::attend(const token_rows& rows) {
  const zoomr::shape& model = answers_.model;
  const index_t count = rows.tokens.size(), chunk = keys_at_once(model);
  const std::size_t queries = at(std::int64_t{model.layers} * count * model.heads);
  answers_.tokens = rows.tokens;
  answers_.out.resize(queries * at(model.value_width()));
  answers_.lse.resize(queries);
  answers_.top.resize(queries * at(answers_.top_keys));
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const token_rows::layer& own = rows.layers[at(layer)];
    begin(own, count);
    for (index_t first = 0; first < rows.tokens.first; first += chunk) {
      const token_range some{first, std::min(first + chunk, rows.tokens.first)};
      from_.read(layer, part::keys, some, keys_);
      from_.read(layer, part::values, some, values_);
      add(first, some.size(), keys_.data(), values_.data(), rows.tokens);
    }
    add(rows.tokens.first, count, own.keys.data(), own.values.data(), rows.tokens);
    finish(layer, rows.tokens);
  }
  return answers_;
}

// Queries of a KV head side by side.
void reference::begin(const token_rows::layer& layer, index_t tokens) {
  const zoomr::shape& model = answers_.model;
  const index_t group = model.group(), width = model.head_dim;
  float* to = queries_.data();
  for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
    for (index_t t = 0; t < tokens; ++t, to += group * width)
      std::copy_n(&layer.queries[at((std::int64_t{t} * model.heads + kv_head * group) * width)], group * width, to);
  }
  std::fill(sums_.begin(), sums_.end(), 0.0f);
  std::fill(largest_.begin(), largest_.end(), -zoomr::infinity);
  std::fill(weights_.begin(), weights_.end(), 0.0);
  for (auto& heap : top_) heap.clear();
}

// Some adjacent keys for all queries, each of which sees those up to its own.
void reference::add(index_t first, index_t count, const float* keys, const float* values, token_range queries) {
  const zoomr::shape& model = answers_.model;
  const index_t group = model.group(), rows = queries.size() * group, width = model.value_width();
  const float usual = 1.0f / std::sqrt(static_cast<float>(model.head_dim));
  const float scale = from_.facts().scale > 0 ? from_.facts().scale : usual, cap = from_.facts().soft_cap;
  for (index_t kv_head = 0; kv_head < model.kv_heads; ++kv_head) {
    const std::size_t before = at(std::int64_t{kv_head} * rows);
    multiply(true, rows, count, model.head_dim, scale, &queries_[before * at(model.head_dim)],
             keys + kv_head * model.head_dim, model.kv_heads * model.head_dim, 0.0f, logits_.data());
    for (index_t row = 0; row < rows; ++row) {
      float* const logits = &logits_[at(std::int64_t{row} * count)];
      const index_t seen = std::min(count, queries.first + row / group + 1 - first);
      for (index_t key = 0; cap > 0 && key < seen; ++key) logits[key] = cap * std::tanh(logits[key] / cap);
      add_row(before + at(row), seen, first, logits, count);
    }
    multiply(false, rows, width, count, 1.0f, logits_.data(), values + kv_head * width, model.kv_heads * width, 1.0f,
             &sums_[before * at(width)]);
  }
}

// From logits to weights; what was added before is brought to the new largest logit.
void reference::add_row(std::size_t row, index_t seen, index_t first, float* logits, index_t count) {
  keep(row, first, logits, seen);
  const float before = largest_[row];
  float largest = before;
  for (index_t key = 0; key < seen; ++key) largest = std::max(largest, logits[key]);
  if (largest > before) {
    const float factor = std::exp(before - largest);
    const std::size_t width = at(answers_.model.value_width());
    for (std::size_t d = 0; d < width; ++d) sums_[row * width + d] *= factor;
    weights_[row] *= factor;
    largest_[row] = largest;
  }
  double sum = 0;
  for (index_t key = 0; key < seen; ++key) sum += logits[key] = std::exp(logits[key] - largest);
  std::fill(logits + seen, logits + count, 0.0f);
  weights_[row] += sum;
}

// Of equal logits the earlier key comes first.
void reference::keep(std::size_t row, index_t first, const float* logits, index_t count) {
  const auto better = [](const ranked& a, const ranked& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  };
  std::vector<ranked>& heap = top_[row];
  for (index_t key = 0; key < count; ++key) {
    const bool full = heap.size() == at(answers_.top_keys);
    if (full && !(logits[key] > heap.front().first)) continue;
    if (full) {
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.emplace_back(logits[key], first + key);
    std::push_heap(heap.begin(), heap.end(), better);
  }
}

void reference::finish(index_t layer, token_range tokens) {
  const zoomr::shape& model = answers_.model;
  const std::size_t width = at(model.value_width());
  for (index_t head = 0; head < model.heads; ++head) {
    for (index_t position = tokens.first; position < tokens.last; ++position) {
      const index_t kv_head = head / model.group();
      const index_t token = kv_head * tokens.size() + position - tokens.first;
      const std::size_t row = at(std::int64_t{token} * model.group() + head % model.group());
      const std::size_t query = answers_.query(layer, position, head);
      for (std::size_t d = 0; d < width; ++d)
        answers_.out[query * width + d] = static_cast<float>(sums_[row * width + d] / weights_[row]);
      answers_.lse[query] = static_cast<float>(largest_[row] + std::log(weights_[row]));
      if (!std::isfinite(answers_.lse[query])) {
        decode::fail("layer ", layer, ": query head ", head, " of token ", position,
                     " has logits that are too large for a float");
      }
      index_t* top = &answers_.top[query * at(answers_.top_keys)];
      for (const ranked& one : top_[row]) *top++ = one.second;
      std::sort(top - top_[row].size(), top);
    }
  }
}

}  // namespace replay
