// SPDX-License-Identifier: Apache-2.0
// A small engine on ggml: its layers are attention alone, over random queries, keys and values, rotated by ggml. It
// keeps what it has passed, and attends to it again by ggml_flash_attn_ext and by plain loops.
#pragma once

#include <doctest/doctest.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <zoomr_ggml.h>
#include <zoomr/core/block_rows.hpp>
#include <zoomr/math/hadamard.hpp>

#include <algorithm>  // std::lower_bound, std::max
#include <cmath>      // std::exp, std::abs
#include <cstring>    // std::memcpy
#include <map>        // std::map
#include <memory>     // std::unique_ptr
#include <string>     // std::string
#include <vector>     // std::vector

namespace ggml_test {

/// Outputs are means of values between -1 and 1. Plain loops round nowhere; ggml_flash_attn_ext over f16 rounds queries
/// and the sums of values to f16.
constexpr double close_to_loops = 2e-5;
constexpr double close_to_flash_f32 = 2e-5;
constexpr double close_to_flash_f16 = 4e-3;
/// Keys of f16 that were turned are rounded once more.
constexpr double close_to_turned = 4e-3;

/// Numbers between -1 and 1.
class numbers {
 public:
  explicit numbers(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 1) {}
  float next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<float>(static_cast<double>(state_ >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0);
  }

 private:
  std::uint64_t state_;
};

/// A graph's tensors, with their memory.
class context {
 public:
  explicit context(std::size_t megabytes = 96) {
    made_.reset(ggml_init({megabytes << 20, nullptr, false}));
    REQUIRE(made_ != nullptr);
  }
  operator ggml_context*() const { return made_.get(); }

  /// [width, heads, tokens]
  ggml_tensor* filled(std::int64_t width, std::int64_t heads, const std::vector<float>& from) const {
    const auto tokens = static_cast<std::int64_t>(from.size()) / (width * heads);
    ggml_tensor* const made = ggml_new_tensor_3d(made_.get(), GGML_TYPE_F32, width, heads, tokens);
    std::memcpy(made->data, from.data(), from.size() * sizeof(float));
    return made;
  }
  ggml_tensor* filled(const std::vector<std::int32_t>& from) const {
    ggml_tensor* const made = ggml_new_tensor_1d(made_.get(), GGML_TYPE_I32, static_cast<std::int64_t>(from.size()));
    std::memcpy(made->data, from.data(), from.size() * sizeof(std::int32_t));
    return made;
  }
  void compute(const std::vector<ggml_tensor*>& wanted, int threads) const {
    ggml_cgraph* const graph = ggml_new_graph(made_.get());
    for (ggml_tensor* const tensor : wanted) ggml_build_forward_expand(graph, tensor);
    REQUIRE(ggml_graph_compute_with_ctx(made_.get(), graph, threads) == GGML_STATUS_SUCCESS);
  }

 private:
  struct release {
    void operator()(ggml_context* made) const { ggml_free(made); }
  };
  std::unique_ptr<ggml_context, release> made_;
};

inline float element(const ggml_tensor& t, std::int64_t i, std::int64_t j, std::int64_t k) {
  const char* const at = static_cast<const char*>(t.data) + i * static_cast<std::int64_t>(t.nb[0]) +
                         j * static_cast<std::int64_t>(t.nb[1]) + k * static_cast<std::int64_t>(t.nb[2]);
  if (t.type == GGML_TYPE_F32) return *reinterpret_cast<const float*>(at);
  return ggml_fp16_to_fp32(*reinterpret_cast<const ggml_fp16_t*>(at));
}

/// Of one token in one layer, before rotation.
struct token_rows {
  std::vector<float> q, k, v;
};

/// What the engine has passed in one sequence.
struct passed_text {
  std::vector<std::int32_t> positions;
  std::vector<std::vector<token_rows>> tokens;  // [tokens][layers]

  void keep(std::size_t first, std::size_t last) {
    positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(last), positions.end());
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(last), tokens.end());
    positions.erase(positions.begin(), positions.begin() + static_cast<std::ptrdiff_t>(first));
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(first));
  }
  void erase_positions(std::int32_t p0, std::int32_t p1) {
    const auto before = [&](std::int32_t p) {
      return static_cast<std::size_t>(std::lower_bound(positions.begin(), positions.end(), p) - positions.begin());
    };
    erase(before(p0), before(p1));
  }
  void erase(std::size_t first, std::size_t last) {
    positions.erase(positions.begin() + static_cast<std::ptrdiff_t>(first),
                    positions.begin() + static_cast<std::ptrdiff_t>(last));
    tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(first),
                 tokens.begin() + static_cast<std::ptrdiff_t>(last));
  }
};

/// One sequence's part of a graph.
struct part {
  std::int32_t seq;
  int tokens;
  bool prompt_ends = false;
};

struct engine_options {
  ggml_type type = GGML_TYPE_F16;
  int threads = 1;
  bool mixed = false;             // tokens of sequences take turns in a graph
  bool fused = false;             // q, k and v are parts of one tensor, as a fused projection has them
  bool neox = true;               // how keys are rotated
  std::vector<float> bases = {};  // [layers]  rotary bases, where they are not 10000; 0: its keys are not rotated
  float kq_scale = 0;             // 0: 1 / sqrt(width)
  double loops = close_to_loops;
};

class engine {
 public:
  static constexpr int layers = 2, heads = 6, kv_heads = 2, width = 32;

  static zoomr_ggml_params params(const engine_options& options) {
    zoomr_ggml_params p = zoomr_ggml_default_params();
    p.n_layer = layers, p.n_head = heads, p.n_head_kv = kv_heads, p.n_embd_head_k = width;
    p.n_ctx_seq = 1024, p.n_seq_max = 4, p.n_ubatch = 128;
    p.type_kv = options.type;
    p.n_threads = std::min(options.threads, 2);  // of three threads one only waits
    p.rope.n_rot = width, p.rope.neox = options.neox;
    return p;
  }

  explicit engine(engine_options options) : engine(options, params(options)) {}
  engine(engine_options options, const zoomr_ggml_params& p)
      : options_(options),
        scale_(options.kq_scale > 0 ? options.kq_scale : 1.0f / std::sqrt(static_cast<float>(width))),
        softcap_(p.logit_softcap),
        random_(7),
        z_(zoomr_ggml_init(&p)) {
    if (p.window != nullptr) window_.assign(p.window, p.window + layers);
    if (z_ == nullptr) FAIL(zoomr_ggml_error(nullptr));
  }
  ~engine() { zoomr_ggml_free(z_); }
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  zoomr_ggml* z() const { return z_; }
  passed_text& text(std::int32_t seq) { return texts_[seq]; }

  /// Passes random tokens. Outputs are compared with those of full attention, if `full`.
  void pass(const std::vector<part>& parts, bool full = true) {
    plan(parts);
    build();
    REQUIRE_MESSAGE(zoomr_ggml_begin(z_, &batch_) == ZOOMR_GGML_SUCCESS, zoomr_ggml_error(z_));
    compute();
    REQUIRE_MESSAGE(zoomr_ggml_commit(z_) == ZOOMR_GGML_SUCCESS, zoomr_ggml_error(z_));
    accept(parts, full);
  }
  /// One token, some times.
  void decode(std::int32_t seq, int tokens, bool full = true) {
    for (int t = 0; t < tokens; ++t) pass({{seq, 1}}, full);
  }

  // What `pass` is made of.
  void plan(const std::vector<part>& parts) {
    rows_.clear(), position_.clear(), id_.clear(), ends_.clear(), seq_.clear(), owner_.clear();
    std::vector<int> left;
    for (const part& p : parts) left.push_back(p.tokens);
    for (bool any = true; any;) {
      any = false;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        const int turn = options_.mixed ? std::min(left[i], 1) : left[i];
        for (int t = 0; t < turn; ++t) add(parts[i], parts[i].tokens - left[i]), --left[i];
        any = any || left[i] > 0;
      }
    }
    for (std::int32_t& seq : owner_) seq_.push_back(&seq);
    batch_ = {static_cast<std::int32_t>(id_.size()), id_.data(), position_.data(), nullptr, seq_.data(), ends_.data()};
  }
  void build() {
    graph_ = std::make_unique<context>();
    nodes_.clear();
    for (int layer = 0; layer < layers; ++layer) {
      ggml_tensor *q = nullptr, *k = nullptr, *v = nullptr;
      sources(layer, q, k, v);
      nodes_.push_back(zoomr_ggml_attn(z_, *graph_, q, k, v, options_.kq_scale, layer));
      REQUIRE_MESSAGE(nodes_.back() != nullptr, zoomr_ggml_error(z_));
    }
  }
  void compute() {
    for (ggml_tensor* const node : nodes_) std::memset(node->data, 0xff, ggml_nbytes(node));  // NaN
    graph_->compute(nodes_, options_.threads);
  }
  void accept(const std::vector<part>& parts, bool full) {
    for (std::size_t row = 0; row < rows_.size(); ++row) {
      passed_text& text = texts_[owner_[row]];
      text.positions.push_back(position_[row]);
      text.tokens.push_back(rows_[row]);
    }
    for (std::size_t i = 0; full && i < parts.size(); ++i) {
      for (int layer = 0; layer < layers; ++layer) compare(parts[i], layer);
    }
  }
  zoomr_ggml_batch& batch() { return batch_; }
  const std::vector<ggml_tensor*>& nodes() const { return nodes_; }
  void use_ids(std::vector<std::int32_t> ids) { next_ids_ = std::move(ids); }

 private:
  void add(const part& p, int offset) {
    const passed_text& text = texts_[p.seq];
    const std::int32_t first = text.positions.empty() ? 0 : text.positions.back() + 1;
    position_.push_back(first + offset);
    owner_.push_back(p.seq);
    id_.push_back(next_ids_.empty() ? 1 : next_ids_[static_cast<std::size_t>(first + offset) % next_ids_.size()]);
    ends_.push_back(p.prompt_ends ? 1 : 0);
    std::vector<token_rows> made(layers);
    for (token_rows& rows : made) {
      const auto fill = [&](std::vector<float>& to, int heads_of, float scale) {
        for (int i = 0; i < heads_of * width; ++i) to.push_back(scale * random_.next());
      };
      fill(rows.q, heads, 3), fill(rows.k, kv_heads, 1), fill(rows.v, kv_heads, 1);
    }
    rows_.push_back(made);
  }

  ggml_tensor* turned(ggml_context* in, ggml_tensor* rows, ggml_tensor* positions, int layer) const {
    const float base = options_.bases.empty() ? 10000.0f : options_.bases[static_cast<std::size_t>(layer)];
    if (base == 0) return rows;
    return ggml_rope_ext(in, rows, positions, nullptr, width,
                         options_.neox ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL, 0, base, 1, 0, 1, 0, 0);
  }
  ggml_tensor* stored(ggml_context* in, ggml_tensor* rows) const {
    return options_.type == GGML_TYPE_F32 ? rows : ggml_cast(in, rows, options_.type);
  }
  bool in_blocks() const { return ggml_is_quantized(options_.type); }
  // As the node takes them: zoomr makes blocks itself.
  ggml_tensor* for_node(ggml_context* in, ggml_tensor* rows) const { return in_blocks() ? rows : stored(in, rows); }
  // As zoomr rounds rows to blocks, after a Walsh-Hadamard transform: in place, and as the model has them again.
  template <class T>
  static void round_to(ggml_tensor* rows) {
    T block[static_cast<std::size_t>(zoomr::block_size<T>)];
    auto* const numbers = static_cast<float*>(rows->data);
    for (std::int64_t first = 0; first < ggml_nelements(rows); first += width) {
      const zoomr::view<float> row(numbers + first, {width});
      zoomr::hadamard_transform(row, width);
      zoomr::store_block(row.data(), 1.0f, block);
      for (int d = 0; d < width; ++d) row[d] = zoomr::number_at(block, d);
      zoomr::hadamard_transform(row, width);
    }
  }
  void round_rows(ggml_tensor* rows) const {
    if (options_.type == GGML_TYPE_Q8_0) round_to<zoomr::q8_0>(rows);
    if (options_.type == GGML_TYPE_Q4_0) round_to<zoomr::q4_0>(rows);
  }
  // A tensor that later graphs do not compute again.
  static std::vector<float> rows_in(const ggml_tensor& from) {
    const auto* const first = static_cast<const float*>(from.data);
    return {first, first + ggml_nelements(&from)};
  }
  void sources(int layer, ggml_tensor*& q, ggml_tensor*& k, ggml_tensor*& v) {
    const context& in = *graph_;
    std::vector<float> all_q, all_k, all_v, together;
    for (const auto& token : rows_) {
      const token_rows& rows = token[static_cast<std::size_t>(layer)];
      const auto put = [](std::vector<float>& to, const std::vector<float>& from) {
        to.insert(to.end(), from.begin(), from.end());
      };
      put(all_q, rows.q), put(all_k, rows.k), put(all_v, rows.v);
      put(together, rows.q), put(together, rows.k), put(together, rows.v);
    }
    ggml_tensor* const positions = in.filled(position_);
    q = in.filled(width, heads, all_q), k = in.filled(width, kv_heads, all_k), v = in.filled(width, kv_heads, all_v);
    if (options_.fused) {
      ggml_tensor* const all = in.filled(width, heads + 2 * kv_heads, together);
      const auto part_of = [&](int first, int count) {
        return ggml_view_3d(in, all, width, count, all->ne[2], all->nb[1], all->nb[2],
                            static_cast<std::size_t>(first) * all->nb[1]);
      };
      q = part_of(0, heads), k = part_of(heads, kv_heads), v = part_of(heads + kv_heads, kv_heads);
      // Rotation would make rows of their own: fused rows are attended as they are, and k and v stay f32.
      return;
    }
    q = turned(in, q, positions, layer);
    k = for_node(in, turned(in, k, positions, layer)), v = for_node(in, v);
  }

  // Full attention of the last tokens of a sequence, which the graph has computed, by ggml and by plain loops.
  void compare(const part& p, int layer) {
    const passed_text& text = texts_[p.seq];
    const auto all = static_cast<std::int64_t>(text.tokens.size());
    const std::int64_t first = all - p.tokens;
    const context in(160);
    std::vector<float> raw_q, raw_k, raw_v;
    for (std::int64_t t = 0; t < all; ++t) {
      const token_rows& rows = text.tokens[static_cast<std::size_t>(t)][static_cast<std::size_t>(layer)];
      if (t >= first) raw_q.insert(raw_q.end(), rows.q.begin(), rows.q.end());
      raw_k.insert(raw_k.end(), rows.k.begin(), rows.k.end());
      raw_v.insert(raw_v.end(), rows.v.begin(), rows.v.end());
    }
    ggml_tensor *q = in.filled(width, heads, raw_q), *k = in.filled(width, kv_heads, raw_k),
                *v = in.filled(width, kv_heads, raw_v);
    if (!options_.fused) {
      q = turned(in, q, in.filled({text.positions.begin() + first, text.positions.end()}), layer);
      k = turned(in, k, in.filled(text.positions), layer);
    }
    if (in_blocks()) {
      in.compute({k, v}, 1);
      round_rows(k), round_rows(v);
      k = in.filled(width, kv_heads, rows_in(*k)), v = in.filled(width, kv_heads, rows_in(*v));
    } else {
      k = stored(in, k), v = stored(in, v);
    }
    ggml_tensor* const mask = ggml_new_tensor_2d(in, GGML_TYPE_F16, all, p.tokens);
    for (std::int64_t i = 0; i < p.tokens; ++i) {
      for (std::int64_t j = 0; j < all; ++j) {
        static_cast<ggml_fp16_t*>(mask->data)[i * all + j] =
            ggml_fp32_to_fp16(sees(text, layer, first + i, j) ? 0.0f : -INFINITY);
      }
    }
    const auto by_head = [&](ggml_tensor* t) { return ggml_permute(in, t, 0, 2, 1, 3); };
    ggml_tensor* const flash =
        ggml_flash_attn_ext(in, by_head(q), by_head(k), by_head(v), mask, scale_, 0.0f, softcap_);
    in.compute({flash, k, v}, 1);
    const double tolerance = options_.type == GGML_TYPE_F16 ? close_to_flash_f16 : close_to_flash_f32;
    double from_flash = 0, from_loops = 0;
    std::int64_t t = 0;
    for (std::size_t row = 0; row < owner_.size(); ++row) {
      if (owner_[row] != p.seq) continue;
      for (int head = 0; head < heads; ++head) {
        const std::vector<double> loops = by_loops(text, *q, *k, *v, layer, first, t, head);
        for (int d = 0; d < width; ++d) {
          const double got = element(*nodes_[static_cast<std::size_t>(layer)], d, head, static_cast<int>(row));
          from_flash = std::max(from_flash, std::abs(got - element(*flash, d, head, t)));
          const double off = std::abs(got - loops[static_cast<std::size_t>(d)]);
          from_loops = off <= from_loops ? from_loops : off;  // NaN stays
        }
      }
      ++t;
    }
    CHECK(from_flash <= tolerance);
    CHECK(from_loops <= options_.loops);
  }
  bool sees(const passed_text& text, int layer, std::int64_t query, std::int64_t key) const {
    const std::int32_t window = window_.empty() ? 0 : window_[static_cast<std::size_t>(layer)];
    const auto at = [&](std::int64_t token) { return text.positions[static_cast<std::size_t>(token)]; };
    return key <= query && (window == 0 || at(query) - at(key) < window);
  }
  std::vector<double> by_loops(const passed_text& text, const ggml_tensor& q, const ggml_tensor& k,
                               const ggml_tensor& v, int layer, std::int64_t first, std::int64_t t, int head) const {
    const int kv_head = head / (heads / kv_heads);
    std::vector<double> weights, out(width);
    double largest = -INFINITY, sum = 0;
    for (std::int64_t j = 0; j < k.ne[2]; ++j) {
      double logit = 0;
      for (int d = 0; d < width; ++d) logit += double{element(q, d, head, t)} * double{element(k, d, kv_head, j)};
      logit *= static_cast<double>(scale_);
      if (softcap_ > 0) logit = static_cast<double>(softcap_) * std::tanh(logit / static_cast<double>(softcap_));
      weights.push_back(sees(text, layer, first + t, j) ? logit : -INFINITY);
      largest = std::max(largest, weights.back());
    }
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (std::int64_t j = 0; j < k.ne[2]; ++j) {
      for (int d = 0; d < width; ++d) {
        out[static_cast<std::size_t>(d)] +=
            weights[static_cast<std::size_t>(j)] / sum * double{element(v, d, kv_head, j)};
      }
    }
    return out;
  }

  engine_options options_;
  float scale_, softcap_;
  std::vector<std::int32_t> window_;
  numbers random_;
  zoomr_ggml* z_;
  std::map<std::int32_t, passed_text> texts_;
  std::vector<std::int32_t> next_ids_;

  std::vector<std::vector<token_rows>> rows_;  // [tokens of the graph][layers]
  std::vector<std::int32_t> position_, id_, owner_;
  std::vector<std::int8_t> ends_;
  std::vector<std::int32_t*> seq_;
  zoomr_ggml_batch batch_{};
  std::unique_ptr<context> graph_;
  std::vector<ggml_tensor*> nodes_;
};

}  // namespace ggml_test
