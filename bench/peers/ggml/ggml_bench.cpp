// SPDX-License-Identifier: Apache-2.0
// One token's attention of all layers, on the CPU, in graphs of one ggml: a node of zoomr's under `full`, which reads
// ggml's own cells in place; FLASH_ATTN_EXT; and the nodes of llama.cpp without flash attention. Each iteration of a
// row computes the three graphs in turn, with the same threads, keys, values and queries; a row fails where outputs
// differ. Times are medians of the iterations; Google Benchmark's own is that of all three.
#include <benchmark/benchmark.h>
#include <ggml-cpu.h>
#include <ggml.h>
#include <zoomr/core/threads/crew.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/presets/full.hpp>

#include <algorithm>  // std::max, std::nth_element
#include <chrono>     // std::chrono::steady_clock
#include <cmath>      // std::abs, std::sqrt
#include <memory>     // std::unique_ptr
#include <numeric>    // std::iota
#include <optional>   // std::optional
#include <string>     // std::string
#include <vector>     // std::vector

namespace {

using zoomr::index_t, zoomr::view;

struct named_shape {
  const char* name;
  zoomr::shape model;
};
constexpr named_shape shapes[] = {{"30_layers_of_9_heads_of_64", {30, 9, 3, 64}},
                                  {"a_layer_of_32_heads_of_128", {1, 32, 8, 128}}};

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

/// Numbers between -1 and 1.
class noise {
 public:
  float next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 7, state_ ^= state_ << 17;
    return static_cast<float>(static_cast<double>(state_ >> 11) / static_cast<double>(std::uint64_t{1} << 52) - 1.0);
  }

 private:
  std::uint64_t state_ = 0x9e3779b97f4a7c15u;
};

template <auto Free>
struct freed_by {
  void operator()(auto* object) const { Free(object); }
};
using context = std::unique_ptr<ggml_context, freed_by<ggml_free>>;

/// A graph of one node, or a few, for each layer, and what it has made.
struct computed_graph {
  context in;
  ggml_cgraph* graph = nullptr;
  std::vector<ggml_tensor*> out;  // [layers]  [width, heads]
  ggml_cplan plan{};
  std::vector<std::uint8_t> work;

  explicit computed_graph(const zoomr::shape& model, index_t tokens) {
    const auto logits = static_cast<std::size_t>(model.layers) * static_cast<std::size_t>(model.heads) *
                        (static_cast<std::size_t>(tokens) * 8 + 4096);  // and their softmax
    in.reset(ggml_init({(std::size_t{16} << 20) + logits, nullptr, false}));
    graph = ggml_new_graph_custom(in.get(), 4096, false);
  }
  void finish(int threads, ggml_threadpool* pool) {
    for (ggml_tensor* const node : out) ggml_build_forward_expand(graph, node);
    plan = ggml_graph_plan(graph, threads, pool);
    work.resize(plan.work_size);
    plan.work_data = work.data();
  }
  double compute() {
    const auto from = std::chrono::steady_clock::now();
    if (ggml_graph_compute(graph, &plan) != GGML_STATUS_SUCCESS) throw std::runtime_error("a graph was not computed");
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  }
};

/// Keys and values of a context as llama.cpp lays them: of each layer [tokens][kv_heads * width], in blocks or not.
template <class T>
class scene {
  using cache_type = zoomr::any_kv_cache<T, zoomr::engine_pages>;

 public:
  scene(const zoomr::shape& model, index_t tokens, int threads)
      : model_(model), tokens_(tokens), threads_(threads), crew_(threads), cells_(ggml_init({1 << 20, nullptr, true})) {
    fill();
    open();
    ggml_threadpool_params p = ggml_threadpool_params_default(threads);
    pool_.reset(ggml_threadpool_new(&p));
    build();
  }

  double zoomr_seconds() {
    step_.emplace(cache_->begin(seq_, view<const zoomr::token_id>(&id_, {1})));
    const double seconds = ours_->compute();
    step_.reset();  // the sequence stays as long as it is
    return seconds;
  }
  double flash_seconds() { return flash_->compute(); }
  double softmax_seconds() { return softmax_->compute(); }

  /// The largest difference of outputs from ours.
  double off(const std::optional<computed_graph>& graph) const {
    double most = 0;
    for (index_t layer = 0; layer < model_.layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      const auto* const a = static_cast<const float*>(ours_->out[at]->data);
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

 private:
  struct node {
    scene* owner;
    index_t layer;
  };

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

  void open() {
    constexpr index_t in_page = 16;
    const index_t pages = zoomr::pages_for(tokens_);
    zoomr::config limits;
    limits.max_tokens = tokens_, limits.max_batched_tokens = 512, limits.max_draft_tokens = 1;
    limits.threads = crew_;
    limits.engine =
        zoomr::engine_memory::nhd(view<void* const>(keys_at_), view<void* const>(values_at_), pages, in_page, model_);
    const auto policy = with_placement(zoomr::presets::full, zoomr::engine_pages{});
    cache_.emplace(zoomr::kv_cache<std::remove_const_t<decltype(policy)>, T>(model_, policy, limits));
    seq_ = cache_->open();
    std::vector<index_t> table(static_cast<std::size_t>(pages));
    std::iota(table.begin(), table.end(), 0);
    const std::vector<zoomr::token_id> ids(512, id_);
    for (index_t at = 0; at < tokens_ - 1;) {  // all but the token that is measured; one ends the prompt
      const index_t count = at == tokens_ - 2 ? 1 : std::min(512, tokens_ - 2 - at);
      const zoomr::step_item item{seq_, view<const zoomr::token_id>(ids.data(), {count}), at + count == tokens_ - 1,
                                  view<const index_t>(table)};
      auto step = cache_->begin(view<const zoomr::step_item>(&item, {1}));
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
    at.owner->crew_.run(ith, nth, [&] {
      const zoomr::shape& m = at.owner->model_;
      at.owner->step_->append(at.layer);
      at.owner->step_->attend(at.layer, at.owner->query(at.layer),
                              {static_cast<float*>(dst->data), {1, m.heads, m.head_dim}});
    });
  }
  ggml_tensor* cells(ggml_type type, std::int64_t first, std::int64_t second, void* at) {
    ggml_tensor* const tensor = ggml_new_tensor_2d(cells_.get(), type, first, second);
    tensor->data = at;
    return tensor;
  }
  void build() {
    for (auto* const graph : {&ours_, &flash_, &softmax_}) graph->emplace(model_, tokens_);
    const float scale = 1.0f / std::sqrt(static_cast<float>(model_.head_dim));
    nodes_.reserve(static_cast<std::size_t>(model_.layers));
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

      nodes_.push_back({this, layer});
      ggml_tensor* q = query_in(ours_->in.get());
      ours_->out.push_back(ggml_custom_4d(ours_->in.get(), GGML_TYPE_F32, model_.head_dim, model_.heads, 1, 1, &q, 1,
                                          attend_in_node, GGML_N_TASKS_MAX, &nodes_.back()));
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
    for (auto* const graph : {&ours_, &flash_, &softmax_}) (*graph)->finish(threads_, pool_.get());
  }

  zoomr::shape model_;
  index_t tokens_;  // with the one that attends
  int threads_;
  zoomr::crew crew_;
  zoomr::token_id id_ = 1;
  std::vector<std::vector<T>> keys_, values_;               // [layers][tokens][kv_heads * width]
  std::vector<std::vector<zoomr::float16>> turned_values_;  // [layers][kv_heads * width][tokens]
  std::vector<std::vector<float>> queries_;                 // [layers][heads * width]
  std::vector<void*> keys_at_, values_at_;                  // [layers]
  context cells_;
  std::optional<cache_type> cache_;
  zoomr::sequence seq_;
  std::optional<typename cache_type::step_type> step_;
  std::unique_ptr<ggml_threadpool, freed_by<ggml_threadpool_free>> pool_;
  std::vector<node> nodes_;
  std::optional<computed_graph> ours_, flash_, softmax_;
};

double median(std::vector<double> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

template <class T>
void attend(benchmark::State& state, const zoomr::shape& model, index_t tokens, int threads) {
  try {
    scene<T> at(model, tokens, threads);
    std::vector<double> ours, flash, softmax;
    for (auto _ : state) {
      ours.push_back(at.zoomr_seconds());
      flash.push_back(at.flash_seconds());
      softmax.push_back(at.softmax_seconds());
      state.SetIterationTime(ours.back() + flash.back() + softmax.back());
    }
    state.counters["zoomr_us"] = 1e6 * median(ours);
    state.counters["flash_us"] = 1e6 * median(flash);
    state.counters["softmax_us"] = 1e6 * median(softmax);
    state.counters["flash_off"] = at.flash_off(), state.counters["softmax_off"] = at.softmax_off();
    if (!(at.flash_off() <= close_to_ours<T> && at.softmax_off() <= close_to_ours<T>)) {
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
