// SPDX-License-Identifier: Apache-2.0
// A decoder in one file, which writes what a small model says to a problem of LEDGER, token by token.
// engine_before.cpp keeps keys and values in two flat arrays of its own, engine_after.cpp in a cache of zoomr's, under
// a policy that is chosen by name. What had to change for it:
//   diff -u examples/engines/engine_before.cpp examples/engines/engine_after.cpp
#include "checkpoint.hpp"

#include <algorithm>  // std::ranges::max, std::ranges::max_element
#include <cmath>      // std::cos, std::exp, std::pow, std::sin, std::sqrt
#include <cstdio>     // std::fprintf, std::printf
#include <exception>  // std::exception

constexpr int most_tokens = 1024;
constexpr const char* problem = "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>";

float dot(const float* x, const float* y, int size) {
  float sum = 0;
  for (int i = 0; i < size; ++i) sum += x[i] * y[i];
  return sum;
}

/// sum [size] += factor * x [size]
void add(float* sum, float factor, const float* x, int size) {
  for (int i = 0; i < size; ++i) sum[i] += factor * x[i];
}

/// [rows] w [rows, columns] times x [columns].
floats product(const floats& w, const floats& x) {
  floats y(w.size() / x.size());
  for (std::size_t row = 0; row < y.size(); ++row) y[row] = dot(&w[row * x.size()], x.data(), int(x.size()));
  return y;
}

void softmax(floats& x) {
  const float largest = std::ranges::max(x);
  float sum = 0;
  for (float& each : x) sum += each = std::exp(each - largest);
  for (float& each : x) each /= sum;
}

/// RMSNorm of each row of x, as long as `weight`: x / sqrt(mean(x * x) + epsilon) * weight.
floats normalized(floats x, const floats& weight, double epsilon) {
  const auto size = int(weight.size());
  for (auto row = x.begin(); row != x.end(); row += size) {
    const double scale = 1 / std::sqrt(dot(&*row, &*row, size) / float(size) + epsilon);
    for (int i = 0; i < size; ++i) row[i] = float(row[i] * scale) * weight[std::size_t(i)];
  }
  return x;
}

/// Rotary embedding: dimensions d and d + size / 2 of each head turn by position * theta^(-2 d / size).
void rotate(floats& x, int size, int position, double theta) {
  const int half = size / 2;
  for (auto head = x.begin(); head != x.end(); head += size) {
    for (int d = 0; d < half; ++d) {
      const double angle = position * std::pow(theta, -double(d) / half);
      const float cos = float(std::cos(angle)), sin = float(std::sin(angle)), a = head[d], b = head[d + half];
      head[d] = a * cos - b * sin;
      head[d + half] = b * cos + a * sin;
    }
  }
}

/// A model and one sequence.
struct engine {
  const checkpoint& net;
  floats keys, values;  // [layers, most_tokens, kv_heads, head_dim]

  /// Takes the next token in.
  /// @return  [words]  logits of the one after it
  floats forward(int token, int position) {
    const int size = net.head_dim, hidden = net.hidden;
    floats x = net.embedding_of(token);
    for (int layer = 0; layer < net.layers; ++layer) {
      const layer_weights& w = net.weights[layer];
      const floats h = normalized(x, w.attention_norm, net.norm_epsilon);
      floats q = normalized(product(w.q, h), w.q_norm, net.norm_epsilon);  // [heads, head_dim]: each head by itself
      floats k = normalized(product(w.k, h), w.k_norm, net.norm_epsilon);  // [kv_heads, head_dim]
      floats v = product(w.v, h);                                          // [kv_heads, head_dim]
      rotate(q, size, position, net.rope_theta);
      rotate(k, size, position, net.rope_theta);

      floats out(q.size());
      const int row = net.kv_heads * size;
      const int first = layer * most_tokens * row, last = first + position * row;
      for (int i = 0; i < row; ++i) keys[last + i] = k[i], values[last + i] = v[i];
      for (int head = 0; head < net.heads; ++head) {
        const int of = head * net.kv_heads / net.heads * size;  // where its KV head begins
        floats weights(position + 1);
        for (int t = 0; t <= position; ++t)
          weights[t] = dot(&q[head * size], &keys[first + t * row + of], size) / std::sqrt(float(size));
        softmax(weights);
        for (int t = 0; t <= position; ++t) add(&out[head * size], weights[t], &values[first + t * row + of], size);
      }
      add(x.data(), 1, product(w.o, out).data(), hidden);

      const floats m = normalized(x, w.mlp_norm, net.norm_epsilon), up = product(w.up, m);
      floats gate = product(w.gate, m);                                                           // [intermediate]
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));  // silu(gate) * up
      add(x.data(), 1, product(w.down, gate).data(), hidden);
    }
    return product(net.head, normalized(x, net.norm, net.norm_epsilon));
  }
};

int main(int count, char** arguments) {
  try {
    const checkpoint net = read_checkpoint(LEDGER_CHECKPOINTS "/indexed");
    std::vector<int> text = net.ids(count > 1 ? arguments[1] : problem);
    const int prompt = int(text.size());
    const floats empty(net.layers * most_tokens * net.kv_heads * net.head_dim);
    engine decoder{net, empty, empty};
    double probabilities = 0;
    for (int position = 0; position < most_tokens && net.words[text.back()] != "<ans>"; ++position) {
      floats next = decoder.forward(text[position], position);
      if (position + 1 < prompt) continue;
      softmax(next);
      text.push_back(int(std::ranges::max_element(next) - next.begin()));
      std::printf("%s ", net.words[text.back()].c_str());
      probabilities += next[text.back()];
    }
    std::printf("\nmean probability of what was written: %.6f\n", probabilities / (int(text.size()) - prompt));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", arguments[0], error.what());
    return 2;
  }
}
