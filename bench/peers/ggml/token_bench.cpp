// SPDX-License-Identifier: Apache-2.0
// A whole token on the CPU in graphs of one ggml, with products of a model's size between the layers' attention: the
// adaptor's nodes (examples/engines/ggml), with pages of their own, under `full` and under `sentence_kv` with 512
// tokens for each KV head; FLASH_ATTN_EXT; the nodes of llama.cpp without flash attention; and the same graph without
// attention. Each iteration of a row computes the five in turn, with the same threads, weights, keys and values.
// Weights are random numbers in q8_0. A row fails where the outputs of attention differ. Times are medians of the
// iterations, of one thread in processor time. What attention takes (`_attends_us`) is the least of them, less the
// least without it. Google Benchmark's own time is that of all five.
#include <benchmark/benchmark.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <zoomr/core/shape.hpp>
#include <zoomr/core/storage.hpp>
#include <zoomr/core/token_range.hpp>

#include <algorithm>   // std::copy, std::min
#include <cmath>       // std::abs, std::sqrt
#include <cstring>     // std::memcpy
#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <numeric>     // std::iota
#include <optional>    // std::optional
#include <string>      // std::string
#include <vector>      // std::vector

#include "graphs.hpp"
#include "zoomr_ggml.h"

namespace {

using namespace graphs;
using zoomr::index_t, zoomr::float16;

struct language_model {
  const char* name;
  zoomr::shape shape;  // of its attention
  index_t width, hidden, vocabulary;
};
constexpr language_model models[] = {{"smollm2_135m", {30, 9, 3, 64}, 576, 1536, 49152},
                                     {"qwen2.5_0.5b", {24, 14, 2, 64}, 896, 4864, 151936},
                                     {"qwen2.5_1.5b", {28, 12, 2, 128}, 1536, 8960, 151936},
                                     {"four_layers_of_llama_8b", {4, 32, 8, 128}, 4096, 14336, 32000}};
constexpr index_t sentence = 24, budget = 512, in_graph = 512;  // tokens

std::size_t size_of(std::int64_t count) { return static_cast<std::size_t>(count); }

/// Matrices of random numbers in q8_0, so that products with numbers around 1 are such numbers.
class weights {
 public:
  explicit weights(const language_model& m) {
    const std::int64_t heads = std::int64_t{m.shape.heads} * m.shape.head_dim,
                       kv_heads = std::int64_t{m.shape.kv_heads} * m.shape.head_dim;
    const std::int64_t layer = m.width * (2 * heads + 2 * kv_heads + std::int64_t{3} * m.hidden);
    const std::int64_t all = m.shape.layers * layer + std::int64_t{m.width} * m.vocabulary;
    in_.reset(ggml_init({size_of(all / 32 * 34) + (std::size_t{1} << 20), nullptr, false}));
    for (float16& block : pool_) block.bits = static_cast<std::uint16_t>(32767.0f * std::abs(random_.next()));
    for (index_t i = 0; i < m.shape.layers; ++i) {
      layers.push_back({matrix(m.width, heads), matrix(m.width, kv_heads), matrix(m.width, kv_heads),
                        matrix(heads, m.width), matrix(m.width, m.hidden), matrix(m.width, m.hidden),
                        matrix(m.hidden, m.width)});
    }
    out = matrix(m.width, m.vocabulary);
  }

  struct layer {
    ggml_tensor *q, *k, *v, *o, *gate, *up, *down;
  };
  std::vector<layer> layers;
  ggml_tensor* out = nullptr;

 private:
  ggml_tensor* matrix(std::int64_t columns, std::int64_t rows) {
    ggml_tensor* const made = ggml_new_tensor_2d(in_.get(), GGML_TYPE_Q8_0, columns, rows);
    const float16 scale = zoomr::from_float<float16>(1.0f / (73.0f * std::sqrt(static_cast<float>(columns))));
    auto* at = static_cast<float16*>(made->data);
    for (std::int64_t block = 0; block < columns * rows / 32; ++block, at += 17) {  // 32 bytes behind a scale
      at[0] = scale;
      const auto from = static_cast<std::size_t>(std::abs(random_.next()) * static_cast<float>(pool_.size() - 17));
      std::memcpy(at + 1, &pool_[from], 32);
    }
    return made;
  }

  noise random_;
  std::vector<float16> pool_ = std::vector<float16>(std::size_t{1} << 16);
  context in_;
};

/// Keys and values of a context: as ggml has them, and in the pages of two caches of ours.
class scene {
 public:
  scene(const language_model& m, index_t tokens, int threads)
      : model_(m), weights_(m), tokens_(tokens), threads_(threads), cells_(ggml_init({1 << 20, nullptr, true})) {
    ggml_threadpool_params p = ggml_threadpool_params_default(threads);
    pool_.reset(ggml_threadpool_new(&p));
    fill();
    for (ours* const by : {&full_, &sentences_}) {
      open(*by);
      pass_prompt(*by->cache);
      by->graph.emplace(numbers());
      build(*by->graph, [&](ggml_context* in, const rows& now, index_t layer) {
        return zoomr_ggml_attn(by->cache.get(), in, now.q, now.k, now.v, 0, layer);
      });
    }
    build(flash_, [&](ggml_context* in, const rows& now, index_t layer) { return flash(in, now, layer); });
    build(softmax_, [&](ggml_context* in, const rows& now, index_t layer) { return softmax(in, now, layer); });
    build(without_, [&](ggml_context*, const rows& now, index_t) { return now.q; });
  }

  double full_seconds() { return seconds_of(full_); }
  double sentences_seconds() { return seconds_of(sentences_); }
  double flash_seconds() { return flash_.compute(); }
  double softmax_seconds() { return softmax_.compute(); }
  double seconds_without() { return without_.compute(); }

  /// The largest difference between outputs of attention in a layer, which are means of numbers around 1.
  double off(index_t layer) const {
    double most = 0;
    const auto* const ours = numbers_of(*full_.graph, layer);
    for (const computed_graph* const graph : {&flash_, &softmax_}) {
      const auto* const theirs = numbers_of(*graph, layer);
      for (index_t i = 0; i < model_.shape.heads * model_.shape.head_dim; ++i) {
        const double apart = std::abs(double{ours[i]} - double{theirs[i]});
        most = apart <= most ? most : apart;  // NaN stays
      }
    }
    return most;
  }
  /// The median of the layers: products round activations to 8 bits, so that one layer or another drifts apart.
  double off() const {
    std::vector<double> layers;
    for (index_t layer = 0; layer < model_.shape.layers; ++layer) layers.push_back(off(layer));
    return median(layers);
  }
  /// Tokens that `sentence_kv` reads, a layer and head.
  double attended() const {
    zoomr_ggml_stats stats{};
    expect(sentences_.cache.get(), zoomr_ggml_seq_stats(sentences_.cache.get(), 0, &stats));
    return stats.attended_tokens;
  }

 private:
  /// The token's own, in a layer.
  struct rows {
    ggml_tensor *q, *k, *v;  // [head_dim, heads, 1]
  };
  using attention = std::function<ggml_tensor*(ggml_context*, const rows&, index_t)>;
  struct ours {
    const char* policy;
    index_t budget;
    std::unique_ptr<zoomr_ggml, freed_by<zoomr_ggml_free>> cache;
    std::optional<computed_graph> graph;
  };

  static void expect(const zoomr_ggml* z, int status) {
    if (status != ZOOMR_GGML_SUCCESS) throw std::runtime_error(zoomr_ggml_error(z));
  }
  static const float* numbers_of(const computed_graph& graph, index_t layer) {
    return static_cast<const float*>(graph.out[size_of(layer)]->data);
  }

  double seconds_of(ours& by) {
    begin(*by.cache, {tokens_ - 1, tokens_});
    const double seconds = by.graph->compute();
    expect(by.cache.get(), zoomr_ggml_commit(by.cache.get()));
    expect(by.cache.get(), zoomr_ggml_seq_rm(by.cache.get(), 0, tokens_ - 1, -1));
    return seconds;
  }

  index_t cell() const { return model_.shape.kv_heads * model_.shape.head_dim; }
  std::size_t numbers() const {  // of a graph's tensors: beside those of products, logits and their softmax
    const zoomr::shape& m = model_.shape;
    const std::int64_t layer =
        16 * (model_.width + model_.hidden) + std::int64_t{m.heads} * (2 * tokens_ + 8 * m.head_dim);
    return size_of(m.layers * layer + 2 * model_.vocabulary);
  }
  void fill() {
    noise random;
    const auto filled = [&](std::vector<std::vector<float16>>& cells, float scale) {
      for (index_t layer = 0; layer < model_.shape.layers; ++layer) {
        cells.emplace_back(size_of(std::int64_t{cell()} * tokens_));
        for (float16& number : cells.back()) number = zoomr::from_float<float16>(scale * random.next());
      }
    };
    filled(keys_, 3.0f), filled(values_, 1.0f);
    for (const std::vector<float16>& values : values_) {
      // Without flash attention llama.cpp keeps values dimension by dimension.
      turned_values_.emplace_back(values.size());
      for (index_t t = 0; t < tokens_; ++t) {
        for (index_t d = 0; d < cell(); ++d) {
          turned_values_.back()[size_of(std::int64_t{d} * tokens_ + t)] = values[size_of(std::int64_t{t} * cell() + d)];
        }
      }
    }
    for (float& number : embedded_) number = random.next();
    for (index_t t = sentence - 1; t < tokens_; t += sentence) ids_[size_of(t)] = 1;  // a sentence ends
    std::iota(positions_.begin(), positions_.end(), 0);
  }

  void open(ours& by) const {
    zoomr_ggml_params p = zoomr_ggml_default_params();
    const zoomr::shape& m = model_.shape;
    p.n_layer = m.layers, p.n_head = m.heads, p.n_head_kv = m.kv_heads, p.n_embd_head_k = m.head_dim;
    p.n_ctx_seq = tokens_, p.n_ubatch = in_graph, p.n_threads = threads_;
    p.policy = by.policy, p.budget = by.budget;
    static constexpr std::uint8_t classes[] = {ZOOMR_GGML_PLAIN, ZOOMR_GGML_DELIMITER};
    p.classes = classes, p.n_vocab = 2;
    by.cache.reset(zoomr_ggml_init(&p));
    if (by.cache == nullptr) throw std::runtime_error(zoomr_ggml_error(nullptr));
  }
  void begin(zoomr_ggml& cache, zoomr::token_range tokens) {
    const auto count = size_of(tokens.size());
    std::int32_t sequence = 0;
    const std::vector<std::int32_t*> sequences(count, &sequence);
    std::vector<std::int8_t> ends(count);
    ends.back() = tokens.last == tokens_ - 1;
    const zoomr_ggml_batch batch{
        tokens.size(), &ids_[size_of(tokens.first)], &positions_[size_of(tokens.first)], nullptr, sequences.data(),
        ends.data()};
    expect(&cache, zoomr_ggml_begin(&cache, &batch));
  }
  // All but the token that is measured, by nodes of attention alone.
  void pass_prompt(zoomr_ggml& cache) {
    const zoomr::shape& m = model_.shape;
    for (index_t first = 0; first < tokens_ - 1; first += in_graph) {
      const index_t count = std::min(in_graph, tokens_ - 1 - first);
      computed_graph graph(size_of(std::int64_t{m.layers} * 2 * count * m.heads * m.head_dim));
      ggml_tensor* const q = ggml_new_tensor_3d(graph.in.get(), GGML_TYPE_F32, m.head_dim, m.heads, count);
      noise random;
      for (std::int64_t i = 0; i < ggml_nelements(q); ++i) static_cast<float*>(q->data)[i] = random.next();
      for (index_t layer = 0; layer < m.layers; ++layer) {
        const auto rows_in = [&](std::vector<std::vector<float16>>& cells) {
          ggml_tensor* const made = ggml_new_tensor_3d(cells_.get(), GGML_TYPE_F16, m.head_dim, m.kv_heads, count);
          made->data = &cells[size_of(layer)][size_of(std::int64_t{first} * cell())];
          return made;
        };
        graph.out.push_back(zoomr_ggml_attn(&cache, graph.in.get(), q, rows_in(keys_), rows_in(values_), 0, layer));
      }
      graph.finish(threads_, pool_.get());
      begin(cache, {first, first + count});
      graph.compute();
      expect(&cache, zoomr_ggml_commit(&cache));
    }
  }

  // A transformer's layers, with what `attend` makes of each one's queries, keys and values.
  void build(computed_graph& graph, const attention& attend) {
    ggml_context* const in = graph.in.get();
    const zoomr::shape& m = model_.shape;
    ggml_tensor* x = ggml_new_tensor_1d(in, GGML_TYPE_F32, model_.width);
    std::copy(embedded_.begin(), embedded_.end(), static_cast<float*>(x->data));
    ggml_tensor* const position = ggml_new_tensor_1d(in, GGML_TYPE_I32, 1);
    *static_cast<std::int32_t*>(position->data) = tokens_ - 1;
    for (index_t layer = 0; layer < m.layers; ++layer) {
      const weights::layer& w = weights_.layers[size_of(layer)];
      ggml_tensor* const normed = ggml_rms_norm(in, x, 1e-5f);
      const auto heads = [&](ggml_tensor* matrix, index_t count) {
        return ggml_reshape_3d(in, ggml_mul_mat(in, matrix, normed), m.head_dim, count, 1);
      };
      const auto rotated = [&](ggml_tensor* of_heads) {
        return ggml_rope(in, of_heads, position, m.head_dim, GGML_ROPE_TYPE_NEOX);
      };
      const rows now{rotated(heads(w.q, m.heads)), rotated(heads(w.k, m.kv_heads)), heads(w.v, m.kv_heads)};
      for (ggml_tensor* const row : {now.q, now.k, now.v}) ggml_build_forward_expand(graph.graph, row);
      ggml_tensor* const attended = attend(in, now, layer);
      graph.out.push_back(attended);
      x = ggml_add(in, x, ggml_mul_mat(in, w.o, ggml_reshape_1d(in, attended, ggml_nelements(attended))));
      ggml_tensor* const again = ggml_rms_norm(in, x, 1e-5f);
      ggml_tensor* const gated = ggml_swiglu_split(in, ggml_mul_mat(in, w.gate, again), ggml_mul_mat(in, w.up, again));
      x = ggml_add(in, x, ggml_mul_mat(in, w.down, gated));
      ggml_build_forward_expand(graph.graph, x);
    }
    ggml_build_forward_expand(graph.graph, ggml_mul_mat(in, weights_.out, ggml_rms_norm(in, x, 1e-5f)));
    graph.finish(threads_, pool_.get());
  }
  ggml_tensor* cells(std::int64_t columns, std::int64_t lines, std::vector<float16>& numbers) {
    ggml_tensor* const tensor = ggml_new_tensor_2d(cells_.get(), GGML_TYPE_F16, columns, lines);
    tensor->data = numbers.data();
    return tensor;
  }
  ggml_tensor* by_head(ggml_context* in, ggml_tensor* cells) const {  // [head_dim, tokens, kv_heads]
    const zoomr::shape& m = model_.shape;
    const std::size_t head = ggml_row_size(cells->type, m.head_dim);
    return ggml_view_3d(in, cells, m.head_dim, tokens_, m.kv_heads, cells->nb[1], head, 0);
  }
  // The token's row is written where `to` has it, before anything after it is computed.
  static void write(ggml_context* in, ggml_cgraph* graph, ggml_tensor* row, ggml_tensor* to) {
    ggml_build_forward_expand(graph, ggml_cpy(in, row, to));
  }
  ggml_tensor* keys_with(computed_graph& graph, const rows& now, index_t layer) {
    ggml_context* const in = graph.in.get();
    ggml_tensor* const keys = cells(cell(), tokens_, keys_[size_of(layer)]);
    write(in, graph.graph, ggml_reshape_1d(in, now.k, cell()),
          ggml_view_1d(in, keys, cell(), keys->nb[1] * size_of(tokens_ - 1)));
    return by_head(in, keys);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(model_.shape.head_dim)); }
  ggml_tensor* flash(ggml_context* in, const rows& now, index_t layer) {
    ggml_tensor* const keys = keys_with(flash_, now, layer);
    ggml_tensor* const values = cells(cell(), tokens_, values_[size_of(layer)]);
    write(in, flash_.graph, ggml_reshape_1d(in, now.v, cell()),
          ggml_view_1d(in, values, cell(), values->nb[1] * size_of(tokens_ - 1)));
    ggml_tensor* const q = ggml_permute(in, now.q, 0, 2, 1, 3);
    return ggml_flash_attn_ext(in, q, keys, by_head(in, values), nullptr, scale(), 0.0f, 0.0f);
  }
  ggml_tensor* softmax(ggml_context* in, const rows& now, index_t layer) {
    const zoomr::shape& m = model_.shape;
    ggml_tensor* const keys = keys_with(softmax_, now, layer);
    ggml_tensor* const turned = cells(tokens_, cell(), turned_values_[size_of(layer)]);
    write(in, softmax_.graph, ggml_reshape_2d(in, now.v, 1, cell()),
          ggml_view_2d(in, turned, 1, cell(), turned->nb[1], sizeof(float16) * size_of(tokens_ - 1)));
    ggml_tensor* const q = ggml_permute(in, now.q, 0, 2, 1, 3);
    ggml_tensor* const shares = ggml_soft_max_ext(in, ggml_mul_mat(in, keys, q), nullptr, scale(), 0.0f);
    return ggml_mul_mat(in,
                        ggml_view_3d(in, turned, tokens_, m.head_dim, m.kv_heads, turned->nb[1],
                                     turned->nb[1] * size_of(m.head_dim), 0),
                        shares);
  }

  language_model model_;
  weights weights_;
  index_t tokens_;  // with the one that is measured
  int threads_;
  context cells_;
  std::unique_ptr<ggml_threadpool, freed_by<ggml_threadpool_free>> pool_;
  std::vector<std::vector<float16>> keys_, values_;  // [layers][tokens][kv_heads * head_dim]
  std::vector<std::vector<float16>> turned_values_;  // [layers][kv_heads * head_dim][tokens]
  std::vector<float> embedded_ = std::vector<float>(size_of(model_.width));
  std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(size_of(tokens_)), positions_ = ids_;
  ours full_{"full", 0, {}, {}}, sentences_{"sentence_kv", budget, {}, {}};
  computed_graph flash_{numbers()}, softmax_{numbers()}, without_{numbers()};
};

void token(benchmark::State& state, const language_model& model, index_t tokens, int threads) {
  try {
    scene at(model, tokens, threads);
    std::vector<double> full, sentences, flash, softmax, without;
    for (auto _ : state) {
      full.push_back(at.full_seconds());
      flash.push_back(at.flash_seconds());
      sentences.push_back(at.sentences_seconds());
      softmax.push_back(at.softmax_seconds());
      without.push_back(at.seconds_without());
      state.SetIterationTime(full.back() + flash.back() + sentences.back() + softmax.back() + without.back());
    }
    const auto row = [&](const std::string& name, const std::vector<double>& times) {
      state.counters[name + "_us"] = 1e6 * median(times);
      if (&times != &without) state.counters[name + "_attends_us"] = 1e6 * (least(times) - least(without));
    };
    row("full", full), row("sentence_kv", sentences), row("flash", flash), row("softmax", softmax);
    row("without", without);
    state.counters["attended"] = at.attended();
    state.counters["off"] = at.off(0);
    // FLASH_ATTN_EXT adds up in float16. Only in the first layer both have the same queries.
    if (!(at.off(0) <= 1e-2 && at.off() <= 5e-2)) state.SkipWithError("outputs differ");
  } catch (const std::exception& why) {
    state.SkipWithError(why.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  for (const language_model& model : models) {
    for (const int threads : {1, 2}) {
      for (index_t tokens = 1024; tokens <= 32768; tokens *= 2) {
        const std::string name = std::string("token/") + model.name + "/threads:" + std::to_string(threads) +
                                 "/tokens:" + std::to_string(tokens);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { token(state, model, tokens, threads); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
