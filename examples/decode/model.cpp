// SPDX-License-Identifier: Apache-2.0
#include "model.hpp"

#include <algorithm>  // std::max, std::min
#include <cmath>      // std::cos, std::pow, std::sin, std::sqrt
#include <numbers>    // std::numbers::pi
#include <stdexcept>  // std::invalid_argument
#include <utility>    // std::move

namespace decode {

std::vector<double> rope_frequencies(const rotary& rope, std::size_t head_dim) {
  std::vector<double> frequencies;
  for (std::size_t d = 0; d < head_dim / 2; ++d) {
    double f = std::pow(rope.theta, -2.0 * double(d) / double(head_dim));
    if (rope.method == rotary::kind::linear) f /= rope.factor;
    if (rope.method == rotary::kind::llama3) {
      const double turns = rope.original_context * f / (2 * std::numbers::pi);
      const double blend = (turns - rope.low_frequency) / (rope.high_frequency - rope.low_frequency);
      const double keep = std::min(1.0, std::max(0.0, blend));  // 0: stretched, 1: as it is
      f = keep * f + (1 - keep) * f / rope.factor;
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

std::vector<float> voter_frequencies(const model_config& c) {
  const std::vector<double> frequencies = rope_frequencies(c.rope, c.head_dim);
  return {frequencies.begin(), frequencies.end()};
}

model::model(model_config config, model_weights weights, const zoomr::executor& threads)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      threads_(threads),
      angles_{rope_frequencies(config_.rope, config_.head_dim), {}, {}} {
  if (config_.window > 0) window_angles_.frequencies = rope_frequencies(config_.window_rope, config_.head_dim);
}

void model::check(zoomr::view<const token_id> tokens, zoomr::view<const zoomr::index_t> positions,
                  zoomr::view<const zoomr::index_t> rows, zoomr::view<float, 2> logits) const {
  const auto vocab = static_cast<zoomr::index_t>(config_.vocab);
  const auto expects = [](bool condition, const char* sentence) {
    if (!condition) throw std::invalid_argument(sentence);
  };
  expects(positions.size() == tokens.size(), "forward: each token needs one position");
  expects(rows.size() <= tokens.size(), "forward: more rows of logits than tokens");
  expects(logits.has_shape({rows.size(), vocab}), "forward: logits must be [rows, vocab]");
  for (const token_id token : tokens)
    expects(token >= 0 && token < vocab, "forward: a token id is not in the vocabulary");
  for (const zoomr::index_t position : positions) expects(position >= 0, "forward: a position is negative");
  for (const zoomr::index_t row : rows)
    expects(row >= 0 && row < tokens.size(), "forward: a row is not one of the tokens");
}

void model::reserve(std::size_t count) {
  const auto& c = config_;
  if (x_.size() >= count * c.hidden) return;
  for (auto* buffer : {&x_, &h_}) buffer->resize(count * c.hidden);
  for (auto* buffer : {&q_, &a_}) buffer->resize(count * c.heads * c.head_dim);
  for (auto* buffer : {&k_, &v_}) buffer->resize(count * c.kv_heads * c.head_dim);
  for (auto* buffer : {&gate_, &up_}) buffer->resize(count * c.intermediate);
  for (angles* of : {&angles_, &window_angles_})
    for (auto* buffer : {&of->cos, &of->sin}) buffer->resize(count * of->frequencies.size());
}

void model::rotate_by(zoomr::view<const zoomr::index_t> positions) {
  for (angles* of : {&angles_, &window_angles_}) {
    std::size_t i = 0;
    for (const zoomr::index_t position : positions)
      for (const double frequency : of->frequencies) {
        of->cos[i] = static_cast<float>(std::cos(position * frequency));
        of->sin[i++] = static_cast<float>(std::sin(position * frequency));
      }
  }
}

void model::rotate(float* x, std::size_t count, std::size_t heads, const angles& by) const {
  const std::size_t half = config_.head_dim / 2;
  for (std::size_t t = 0; t < count; ++t)
    for (std::size_t head = 0; head < heads; ++head, x += 2 * half)
      for (std::size_t d = 0; d < half; ++d) {
        const float cos = by.cos[t * half + d], sin = by.sin[t * half + d];
        const float first = x[d], second = x[d + half];
        x[d] = first * cos - second * sin;
        x[d + half] = second * cos + first * sin;
      }
}

void model::normalize(const float* x, std::size_t rows, const std::vector<float>& weight, float* out) const {
  const std::size_t width = weight.size();
  for (std::size_t row = 0; row < rows; ++row, x += width, out += width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += double{x[i]} * x[i];
    const double scale = 1.0 / std::sqrt(squares / double(width) + config_.norm_epsilon);
    for (std::size_t i = 0; i < width; ++i) out[i] = static_cast<float>(x[i] * scale) * weight[i];
  }
}

void model::multiply(const float* x, std::size_t rows, const linear& l, float* y) const {
  decode::multiply(x, rows, l.weight, threads_, y);
  for (std::size_t row = 0; row < rows && !l.bias.empty(); ++row)
    add(l.bias.data(), l.bias.size(), y + row * l.bias.size());
}

void model::add(const float* x, std::size_t size, float* sum) {
  for (std::size_t i = 0; i < size; ++i) sum[i] += x[i];
}

model load_model(const std::filesystem::path& directory, const zoomr::executor& threads) {
  const model_config config = read_config(directory);
  return model(config, read_weights(directory, config), threads);
}

}  // namespace decode
