// SPDX-License-Identifier: Apache-2.0
// One token's attention of all layers, on the CPU, in graphs of one ggml: a node of zoomr's under `full`, which reads
// ggml's own cells in place; one under `sentence_kv`, of sentences of 24 tokens, and one under `quest`, which choose
// 512 tokens of them; FLASH_ATTN_EXT; and the nodes of llama.cpp without flash attention. Each iteration of a row
// computes the five graphs in turn, with the same threads, keys, values and queries. A row fails where outputs differ:
// those of policies that choose from plain attention over the slots that they list. Times are medians of the
// iterations, of one thread in processor time; Google Benchmark's own is that of all five.
#include <benchmark/benchmark.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <zoomr/core/threads/crew.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/presets/full.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/sentence_kv.hpp>

#include <algorithm>  // std::max
#include <array>      // std::array
#include <cmath>      // std::abs, std::exp, std::sqrt
#include <numeric>    // std::iota
#include <optional>   // std::optional
#include <string>     // std::string
#include <vector>     // std::vector

#include "graphs.hpp"

namespace {

using namespace graphs;
using zoomr::index_t, zoomr::view;

struct named_shape {
  const char* name;
  zoomr::shape model;
};
constexpr named_shape shapes[] = {{"30_layers_of_9_heads_of_64", {30, 9, 3, 64}},
                                  {"a_layer_of_32_heads_of_128", {1, 32, 8, 128}}};

/// `sentence_kv` with 512 tokens for each KV head. It evicts nothing at the prompt's end: other graphs read the cells.
inline auto some_sentences() {
  auto policy = zoomr::presets::sentence_kv_with(512);
  policy.evict.tokens = zoomr::unlimited;
  return policy;
}
/// `quest` with as many chosen. A single layer is one of those that choose.
inline auto some_pages(const zoomr::shape& model) {
  auto policy = zoomr::presets::quest;
  policy.select.segments = 32;
  if (model.layers == 1) policy.zone.dense_layers = 0;
  return policy;
}

template <class T>
constexpr ggml_type type_of = GGML_TYPE_F16;
template <>
constexpr ggml_type type_of<zoomr::q8_0> = GGML_TYPE_Q8_0;

/// How far outputs may lie apart: means of values between -1 and 1, whose sums FLASH_ATTN_EXT rounds to f16; over q8_0
/// ggml rounds queries to 8 bits.
template <class T>
constexpr double close_to_ours = 4e-3;
template <>
constexpr double close_to_ours<zoomr::q8_0> = 2e-2;

/// Keys and values of a context as llama.cpp lays them: of each layer [tokens][kv_heads * width], in blocks or not.
template <class T>
class scene {
  using cache_type = zoomr::any_kv_cache<T, zoomr::engine_pages>;

 public:
  scene(const zoomr::shape& model, index_t tokens, int threads)
      : model_(model), tokens_(tokens), threads_(threads), crew_(threads), cells_(ggml_init({1 << 20, nullptr, true})) {
    fill();
    open(full_, zoomr::presets::full);
    open(quest_, some_pages(model));
    open(sentences_, some_sentences());
    ggml_threadpool_params p = ggml_threadpool_params_default(threads);
    pool_.reset(ggml_threadpool_new(&p));
    build();
  }

  double full_seconds() { return seconds_of(full_); }
  double quest_seconds() { return seconds_of(quest_); }
  double sentences_seconds() { return seconds_of(sentences_); }
  double flash_seconds() { return flash_->compute(); }
  double softmax_seconds() { return softmax_->compute(); }

  /// The largest difference of outputs from ours.
  double off(const std::optional<computed_graph>& graph) const {
    double most = 0;
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      const auto* const a = static_cast<const float*>(full_.graph->out[at]->data);
      const auto* const b = static_cast<const float*>(graph->out[at]->data);
      for (index_t i = 0; i < model_.heads * model_.head_dim; ++i) {
        const double apart = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        most = apart <= most ? most : apart;  // NaN stays
      }
    }
    return most;
  }
  double flash_off() const { return off(flash_); }
  double softmax_off() const { return off(softmax_); }
  /// The same of a node that chooses, from attention in double over the slots that it reads.
  double quest_off() { return off(quest_); }
  double sentences_off() { return off(sentences_); }

 private:
  struct attending;
  struct node {
    attending* by;
    index_t layer;
  };
  // A cache over the cells, and its graph.
  struct attending {
    scene* owner;
    std::optional<cache_type> cache;
    zoomr::sequence seq;
    std::optional<typename cache_type::step_type> step;
    std::vector<node> nodes;
    std::optional<computed_graph> graph;
  };

  double seconds_of(attending& by) {
    by.step.emplace(by.cache->begin(by.seq, view<const zoomr::token_id>(&id_, {1})));
    const double seconds = by.graph->compute();
    by.step.reset();  // the sequence stays as long as it is
    return seconds;
  }
  double off(attending& by) {
    double most = 0;
    auto step = by.cache->begin(by.seq, view<const zoomr::token_id>(&id_, {1}));
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      step.append(layer);
      const auto* const out = static_cast<const float*>(by.graph->out[static_cast<std::size_t>(layer)]->data);
      step.list_slots(layer, query(layer), [&](const zoomr::slots_read& reads) {
        for (index_t head = reads.heads.first; head < reads.heads.last; ++head) {
          const std::vector<double> wanted = plain_attention(layer, reads, head);
          for (index_t d = 0; d < model_.head_dim; ++d) {
            const double apart =
                std::abs(static_cast<double>(out[head * model_.head_dim + d]) - wanted[static_cast<std::size_t>(d)]);
            most = apart <= most ? most : apart;
          }
        }
      });
    }
    return most;
  }
  std::vector<double> plain_attention(index_t layer, const zoomr::slots_read& reads, index_t head) const {
    const T* const keys = keys_[static_cast<std::size_t>(layer)].data();
    const T* const values = values_[static_cast<std::size_t>(layer)].data();
    const std::int64_t row = zoomr::stored_size<T>(width());
    const index_t first = reads.kv_head * model_.head_dim;
    std::vector<double> logits, out(static_cast<std::size_t>(model_.head_dim));
    double largest = -1e30, sum = 0;
    const auto each = [&](auto visit) {
      for (const zoomr::token_range& slots : reads.slots) {
        for (index_t slot = slots.first; slot < slots.last; ++slot) visit(slot);
      }
    };
    each([&](index_t slot) {
      double product = 0;
      for (index_t d = 0; d < model_.head_dim; ++d) {
        product += static_cast<double>(query(layer)(0, head, d)) *
                   static_cast<double>(zoomr::number_at(keys + slot * row, first + d));
      }
      logits.push_back(product / std::sqrt(static_cast<double>(model_.head_dim)));
      largest = std::max(largest, logits.back());
    });
    std::size_t next = 0;
    each([&](index_t slot) {
      const double weight = std::exp(logits[next++] - largest);
      sum += weight;
      for (index_t d = 0; d < model_.head_dim; ++d) {
        out[static_cast<std::size_t>(d)] +=
            weight * static_cast<double>(zoomr::number_at(values + slot * row, first + d));
      }
    });
    for (double& number : out) number /= sum;
    return out;
  }

  index_t width() const { return model_.kv_heads * model_.head_dim; }
  void fill() {
    noise random;
    const std::int64_t row = zoomr::stored_size<T>(width());
    std::vector<float> numbers(static_cast<std::size_t>(width()));
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      for (auto* const cells : {&keys_, &values_}) {
        cells->emplace_back(static_cast<std::size_t>(row * tokens_));
        for (index_t t = 0; t < tokens_; ++t) {
          for (float& number : numbers) number = random.next();
          zoomr::detail::narrow(zoomr::fastest_cpu_path(), view<const float>(numbers), 1.0f,
                                cells->back().data() + t * row);
        }
      }
      queries_.emplace_back(static_cast<std::size_t>(model_.heads * model_.head_dim));
      for (float& number : queries_.back()) number = 3 * random.next();
      // Without flash attention llama.cpp keeps values dimension by dimension, and so not in blocks.
      std::vector<zoomr::float16> turned(static_cast<std::size_t>(width()) * static_cast<std::size_t>(tokens_));
      for (index_t t = 0; t < tokens_; ++t) {
        for (index_t d = 0; d < width(); ++d) {
          const float number = zoomr::number_at(values_.back().data() + t * row, d);
          turned[static_cast<std::size_t>(std::int64_t{d} * tokens_ + t)] = zoomr::from_float<zoomr::float16>(number);
        }
      }
      turned_values_.push_back(std::move(turned));
    }
    for (auto& cells : keys_) keys_at_.push_back(cells.data());
    for (auto& cells : values_) values_at_.push_back(cells.data());
  }

  template <class Policy>
  void open(attending& by, const Policy& preset) {
    constexpr index_t in_page = 16;
    by.owner = this;
    const index_t pages = zoomr::pages_for(tokens_);
    zoomr::config limits;
    limits.max_tokens = tokens_, limits.max_batched_tokens = 512, limits.max_draft_tokens = 1;
    limits.threads = crew_;
    limits.classes = classes_;
    limits.engine =
        zoomr::engine_memory::nhd(view<void* const>(keys_at_), view<void* const>(values_at_), pages, in_page, model_);
    const auto policy = with_placement(preset, zoomr::engine_pages{});
    by.cache.emplace(zoomr::kv_cache<std::remove_const_t<decltype(policy)>, T>(model_, policy, limits));
    by.seq = by.cache->open();
    std::vector<index_t> table(static_cast<std::size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    std::vector<zoomr::token_id> ids(static_cast<std::size_t>(tokens_), id_);
    for (index_t t = 23; t < tokens_; t += 24) ids[static_cast<std::size_t>(t)] = 1;  // a sentence ends
    for (index_t at = 0; at < tokens_ - 1;) {  // all but the token that is measured; one ends the prompt
      const index_t count = at == tokens_ - 2 ? 1 : std::min(512, tokens_ - 2 - at);
      const zoomr::step_item item{by.seq, view<const zoomr::token_id>(ids.data() + at, {count}),
                                  at + count == tokens_ - 1, view<const index_t>(table)};
      auto step = by.cache->begin(view<const zoomr::step_item>(&item, {1}));
      for (index_t layer = 0; layer < model_.layers; ++layer) {
        step.append(layer);
        if (!item.prompt_ends) continue;
        std::vector<float> out(queries_[0].size());
        step.attend(layer, query(layer), {out.data(), {1, model_.heads, model_.head_dim}});
      }
      step.commit();
      at += count;
    }
  }
  view<const float, 3> query(index_t layer) const {
    return {queries_[static_cast<std::size_t>(layer)].data(), {1, model_.heads, model_.head_dim}};
  }

  static void attend_in_node(ggml_tensor* dst, int ith, int nth, void* userdata) {
    const node& at = *static_cast<node*>(userdata);
    scene& all = *at.by->owner;
    all.crew_.run(ith, nth, [&] {
      const zoomr::shape& m = all.model_;
      at.by->step->append(at.layer);
      at.by->step->attend(at.layer, all.query(at.layer), {static_cast<float*>(dst->data), {1, m.heads, m.head_dim}});
    });
  }
  ggml_tensor* cells(ggml_type type, std::int64_t first, std::int64_t second, void* at) {
    ggml_tensor* const tensor = ggml_new_tensor_2d(cells_.get(), type, first, second);
    tensor->data = at;
    return tensor;
  }
  void build() {
    const std::size_t numbers = static_cast<std::size_t>(model_.layers) * static_cast<std::size_t>(model_.heads) *
                                (static_cast<std::size_t>(tokens_) * 2 + 1024);  // logits and their softmax
    for (auto* const graph : {&full_.graph, &quest_.graph, &sentences_.graph, &flash_, &softmax_})
      graph->emplace(numbers);
    const float scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim));
    for (attending* const by : {&full_, &quest_, &sentences_})
      by->nodes.reserve(static_cast<std::size_t>(model_.layers));
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      const auto query_in = [&](ggml_context* in) {  // [width, 1, heads]
        ggml_tensor* const q = ggml_new_tensor_3d(in, GGML_TYPE_F32, model_.head_dim, 1, model_.heads);
        std::copy(queries_[at].begin(), queries_[at].end(), static_cast<float*>(q->data));
        return q;
      };
      const auto by_head = [&](ggml_context* in, ggml_tensor* rows) {  // [width, tokens, kv_heads]
        const std::size_t head = ggml_row_size(rows->type, model_.head_dim);
        return ggml_view_3d(in, rows, model_.head_dim, tokens_, model_.kv_heads, rows->nb[1], head, 0);
      };
      ggml_tensor* const keys = cells(type_of<T>, width(), tokens_, keys_at_[at]);
      ggml_tensor* const values = cells(type_of<T>, width(), tokens_, values_at_[at]);

      for (attending* const by : {&full_, &quest_, &sentences_}) {
        by->nodes.push_back({by, layer});
        ggml_context* const of = by->graph->in.get();
        ggml_tensor* q = query_in(of);
        by->graph->out.push_back(ggml_custom_4d(of, GGML_TYPE_F32, model_.head_dim, model_.heads, 1, 1, &q, 1,
                                                attend_in_node, GGML_N_TASKS_MAX, &by->nodes.back()));
      }
      ggml_context* in = flash_->in.get();
      flash_->out.push_back(
          ggml_flash_attn_ext(in, query_in(in), by_head(in, keys), by_head(in, values), nullptr, scale, 0.0f, 0.0f));
      in = softmax_->in.get();
      ggml_tensor* const weights =
          ggml_soft_max_ext(in, ggml_mul_mat(in, by_head(in, keys), query_in(in)), nullptr, scale, 0.0f);
      ggml_tensor* const turned = cells(GGML_TYPE_F16, tokens_, width(), turned_values_[at].data());
      ggml_tensor* const by_dim = ggml_view_3d(in, turned, tokens_, model_.head_dim, model_.kv_heads, turned->nb[1],
                                               turned->nb[1] * static_cast<std::size_t>(model_.head_dim), 0);
      softmax_->out.push_back(ggml_mul_mat(in, by_dim, weights));
    }
    for (auto* const graph : {&full_.graph, &quest_.graph, &sentences_.graph, &flash_, &softmax_}) {
      (*graph)->finish(threads_, pool_.get());
    }
  }

  zoomr::shape model_;
  index_t tokens_;  // with the one that attends
  int threads_;
  zoomr::crew crew_;
  zoomr::token_id id_ = 0;
  std::array<zoomr::token_class, 2> classes_{zoomr::token_class::plain, zoomr::token_class::delimiter};
  std::vector<std::vector<T>> keys_, values_;               // [layers][tokens][kv_heads * width]
  std::vector<std::vector<zoomr::float16>> turned_values_;  // [layers][kv_heads * width][tokens]
  std::vector<std::vector<float>> queries_;                 // [layers][heads * width]
  std::vector<void*> keys_at_, values_at_;                  // [layers]
  context cells_;
  std::unique_ptr<ggml_threadpool, freed_by<ggml_threadpool_free>> pool_;
  attending full_{}, quest_{}, sentences_{};
  std::optional<computed_graph> flash_, softmax_;
};

template <class T>
void attend(benchmark::State& state, const zoomr::shape& model, index_t tokens, int threads) {
  try {
    scene<T> at(model, tokens, threads);
    std::vector<double> full, quest, sentences, flash, softmax;
    for (auto _ : state) {
      full.push_back(at.full_seconds());
      flash.push_back(at.flash_seconds());
      quest.push_back(at.quest_seconds());
      sentences.push_back(at.sentences_seconds());
      softmax.push_back(at.softmax_seconds());
      state.SetIterationTime(full.back() + quest.back() + sentences.back() + flash.back() + softmax.back());
    }
    state.counters["full_us"] = 1e6 * median(full);
    state.counters["quest_us"] = 1e6 * median(quest);
    state.counters["sentence_kv_us"] = 1e6 * median(sentences);
    state.counters["flash_us"] = 1e6 * median(flash);
    state.counters["softmax_us"] = 1e6 * median(softmax);
    state.counters["flash_off"] = at.flash_off(), state.counters["softmax_off"] = at.softmax_off();
    const double chosen_off = std::max(at.quest_off(), at.sentences_off());
    state.counters["chosen_off"] = chosen_off;
    if (!(at.flash_off() <= close_to_ours<T> && at.softmax_off() <= close_to_ours<T> && chosen_off <= 1e-4)) {
      state.SkipWithError("outputs differ");
    }
  } catch (const std::exception& why) {
    state.SkipWithError(why.what());
  }
}

template <class T>
void add_rows() {
  for (const named_shape& shape : shapes) {
    for (const int threads : {1, 2}) {
      for (index_t tokens = 1024; tokens <= 32768; tokens *= 2) {
        const std::string name = std::string("attend/") + shape.name + "/" + ggml_type_name(type_of<T>) +
                                 "/threads:" + std::to_string(threads) + "/tokens:" + std::to_string(tokens);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { attend<T>(state, shape.model, tokens, threads); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  add_rows<zoomr::float16>();
  add_rows<zoomr::q8_0>();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
