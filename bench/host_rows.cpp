// SPDX-License-Identifier: Apache-2.0
// The host half: attention over runs, a choice, whole steps of a cache, one thread; and the ceilings beside them.
#include <zoomr/zoomr.hpp>

#include <host_ceilings.hpp>

#include <array>   // std::array
#include <cmath>   // std::sqrt
#include <map>     // std::map
#include <string>  // std::string

namespace zoomr_bench {

namespace {

using namespace zoomr;
using zoomr::index;

constexpr index head_dim = toy ? 16 : 128;
constexpr index group = 4;

/// Noise in [-1, 1).
class noise {
 public:
  explicit noise(std::uint32_t seed) : state_(seed * 2654435761u + 1u) {}
  float next() {
    state_ = state_ * 1664525u + 1013904223u;
    return static_cast<float>(static_cast<std::int32_t>(state_)) * 4.656612873e-10f;
  }
  void fill(std::vector<float>& numbers) {
    for (float& each : numbers) each = next();
  }

 private:
  std::uint32_t state_;
};

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, float>) return "f32";
  if constexpr (std::is_same_v<T, bfloat16>) return "bf16";
  if constexpr (std::is_same_v<T, float16>) return "f16";
  if constexpr (std::is_same_v<T, float8>) return "fp8";
  return "int8";
}

/// One lane's keys and values, in shuffled pages.
template <class T>
struct lane {
  std::vector<T> numbers;  // [page][key | value][16][head_dim]
  std::vector<index> pages;

  explicit lane(index tokens) {
    const index count = pages_for(tokens);
    numbers.resize(static_cast<std::size_t>(std::int64_t{count} * 2 * page_tokens * head_dim));
    noise random(5);
    for (T& each : numbers) each = from_float<T>(random.next());
    for (index page = 0; page < count; ++page) pages.push_back(page);
    for (index i = count - 1; i > 0; --i) {
      const auto other = static_cast<std::size_t>((random.next() + 1.0f) * 0.5f * static_cast<float>(i));
      std::swap(pages[static_cast<std::size_t>(i)], pages[other]);
    }
  }
  paged_lane<const T> view_of() const {
    index dim = head_dim;
    asm("" : "+r"(dim));  // no constant, as in a cache
    const std::int64_t half = std::int64_t{page_tokens} * dim;
    return {numbers.data(), 2 * half, half, dim, pages};
  }
};

constexpr index stretch(index length) { return length * 3 / 2; }

template <class T>
void add_attend(index tokens, index length) {
  const std::string name = std::string("host/attend/") + type_name<T>() + "/tokens:" + std::to_string(tokens) +
                           "/runs_of:" + std::to_string(length);
  add_row(name, 10, [=](int iterations) {
    const auto held = kept<lane<T>>("lane of " + name,
                                    [&] { return std::make_unique<lane<T>>((tokens / length + 1) * stretch(length)); });
    std::vector<run> runs;
    for (index first = 0, left = tokens; left > 0; first += stretch(length), left -= length) {
      runs.push_back({first, first + std::min(left, length)});
    }
    std::vector<float> queries(static_cast<std::size_t>(group * head_dim)), out(queries.size());
    noise(9).fill(queries);
    std::vector<attention_state> states(static_cast<std::size_t>(group));
    const float scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
    auto seconds = timed_on_host(iterations, [&] {
      std::fill(out.begin(), out.end(), 0.0f);
      for (index h = 0; h < group; ++h) {
        states[static_cast<std::size_t>(h)] = {-infinity, 0.0f, out.data() + h * head_dim};
      }
      gather_attend(view<const run>(runs), held->view_of(), view<const float, 2>(queries.data(), {group, head_dim}),
                    scale, view<attention_state>(states));
      use(out[0]);
    });
    const double bytes = 2.0 * tokens * head_dim * sizeof(T);
    return against_ceilings(std::move(seconds), bytes, 4.0 * tokens * head_dim * group, bytes < (16 << 20));
  });
}

template <class T>
void add_attend_grid() {
  for (const index tokens : toy ? std::vector<index>{100} : std::vector<index>{8192, 131072}) {
    for (const index length : toy ? std::vector<index>{24} : std::vector<index>{24, 400, tokens}) {
      add_attend<T>(tokens, length);
    }
  }
}

/// Scores alone: `group` queries with the mean keys of some segments, in the contract's order.
void add_scores(index segments) {
  add_row("host/score/segments:" + std::to_string(segments), 20, [=](int iterations) {
    std::vector<float> summaries(static_cast<std::size_t>(segments * head_dim));
    std::vector<float> queries(static_cast<std::size_t>(group * head_dim));
    noise(1).fill(summaries), noise(2).fill(queries);
    auto seconds = timed_on_host(iterations, [&] {
      float all = 0.0f;
      for (index h = 0; h < group; ++h) {
        for (index s = 0; s < segments; ++s) {
          all += dot(queries.data() + h * head_dim, summaries.data() + std::int64_t{s} * head_dim, head_dim);
        }
      }
      use(all);
    });
    const double bytes = 4.0 * segments * head_dim;
    return against_ceilings(std::move(seconds), bytes, 2.0 * segments * head_dim * group, bytes < (16 << 20));
  });
}

/// The choice alone: a budget of tokens is filled with segments of 24, best first.
void add_fill(index segments) {
  add_row("host/fill_budget/segments:" + std::to_string(segments), 20, [=](int iterations) {
    noise random(3);
    const auto count = static_cast<std::size_t>(segments);
    std::vector<tally> tallies(count);
    std::vector<index> tokens(count, 24), order(count);
    std::vector<level> levels(count);
    for (tally& each : tallies) each = sortable(random.next());
    auto seconds = timed_on_host(iterations, [&] {
      selection_row made{view<level>(levels)};
      for (level& each : levels) each = level::summary;
      best_first best(segments, by_tally{tallies}, view<index>(order));
      fill_budget{.tokens = 2048}.choose(best, selection_input{tokens, 68, not_eligible + 1, 0, 0}, made);
      use(static_cast<float>(made.cut_tokens));
    });
    return against_ceilings(std::move(seconds), 0, 0, true);
  });
}

/// What a cache's text looks like: sentences of 24; for ZoomR thoughts of 400 with summaries of 30 after a prompt.
struct host_text {
  index prompt;
  bool thoughts;

  static constexpr std::array<token_class, 4> classes{token_class::plain, token_class::delimiter,
                                                      token_class::summary_begin, token_class::summary_end};
  token_id at(index position) const {
    if (thoughts && position >= prompt) {
      const index of_pair = (position - prompt) % 430;
      if (of_pair == 400) return 2;
      if (of_pair == 429) return 3;
    }
    return (position + 1) % 24 == 0 ? 1 : 0;
  }
};

/// A cache with a context, one layer of 8 KV heads and 32 heads; each call of `step` makes a token.
template <class Policy, class T>
struct host_scene {
  static constexpr index kv_heads = toy ? 2 : 8;
  shape model{1, kv_heads* group, kv_heads, head_dim};
  host_text says;
  kv_cache<Policy, T> cache;
  sequence seq;
  std::vector<float> keys, values, queries, out;
  index position = 0;
  noise random{17};

  static config limits(index context) {
    config made;
    made.tokens = context + 512;
    made.classes = host_text::classes;
    return made;
  }
  host_scene(const Policy& policy, index context, bool thoughts)
      : says{thoughts ? std::min<index>(512, context / 4) : context, thoughts},
        cache(model, policy, limits(context)),
        seq(cache.open()) {
    while (position < context) {
      const index end = position < says.prompt ? says.prompt : context;
      advance(position < says.prompt ? std::min<index>(256, end - position) : 1, position < says.prompt);
    }
    for (index warm_up = 0; warm_up < 24; ++warm_up) advance(1, false);
  }

  void advance(index tokens, bool prompt) {
    const auto resized = [&](std::vector<float>& numbers, index heads) {
      numbers.resize(static_cast<std::size_t>(tokens * heads * head_dim));
      random.fill(numbers);
      return view<float, 3>(numbers.data(), {tokens, heads, head_dim});
    };
    const auto k = resized(keys, kv_heads), v = resized(values, kv_heads), q = resized(queries, model.heads);
    const auto o = resized(out, model.heads);
    std::vector<token_id> ids;
    for (index t = 0; t < tokens; ++t) ids.push_back(says.at(position + t));
    const double from = now();
    auto step = cache.begin(seq, ids, prompt && position + tokens == says.prompt);
    step.append(0, view<const float, 3>(k), view<const float, 3>(v));
    if (prompt) {
      step.observe(0, view<const float, 3>(q));
    } else {
      step.attend(0, view<const float, 3>(q), o);
    }
    step.commit(tokens);
    last_seconds = now() - from;
    position += tokens;
  }
  double last_seconds = 0;
};

std::map<std::string, std::vector<double>>& full_times() {
  static std::map<std::string, std::vector<double>> all;
  return all;
}

template <class T, class Policy>
void add_step(const std::string& name, const Policy& policy, index context, bool thoughts) {
  const std::string place = std::string("/") + type_name<T>() + "/context:" + std::to_string(context);
  add_row("host/step/" + name + place, 24, [=](int iterations) {
    using scene_type = host_scene<Policy, T>;
    const auto made = kept<scene_type>("host " + name + place,
                                       [&] { return std::make_unique<scene_type>(policy, context, thoughts); });
    const statistics before = made->cache.stats(made->seq);
    result of;
    double sum = 0;
    for (int i = 0; i < iterations; ++i) {
      made->advance(1, false);
      of.seconds.push_back(made->last_seconds);
      sum += made->last_seconds;
    }
    const auto& after = made->cache.stats(made->seq);
    const double attended = static_cast<double>(after.attended - before.attended) / iterations / made->model.heads;
    const double bytes = 2.0 * attended * scene_type::kv_heads * head_dim * sizeof(T);
    auto seconds = std::move(of.seconds);
    of = against_ceilings(std::move(seconds), bytes, 2.0 * bytes / sizeof(T) * group, bytes < (16 << 20), 1);
    auto& full = full_times()[place];
    if (name == "full") full.push_back(sum);
    of.figures.push_back({"attended", attended});
    if (!full.empty()) of.figures.push_back({"times_full", quantile(full, 0.5) / std::max(sum, 1e-12)});
    return of;
  });
}

template <class T>
void add_steps(index context) {
  constexpr auto sentence_kv =
      compose(sentences{.longest = 24}, key_mean{}, mean_dot{}, running_mean{}, fill_budget{.tokens = toy ? 60 : 1024},
              every_token{}, zones{.sinks = 4, .recent = 32, .open = 24});
  add_step<T>("full", policies::full, context, false);
  add_step<T>("sentence_kv", sentence_kv, context, false);
  add_step<T>("zoomr_focus", policies::zoomr_focus, context, true);
}

/// What a call of a step takes before it does anything: the checks of `append` and `attend`, and of the commit behind
/// a pass, divided by the calls.
void add_checks(index layers) {
  add_row("host/checks/layers:" + std::to_string(layers), 24, [=](int iterations) {
    const extents<3> of_queries{{1, 4 * group, head_dim}}, of_keys{{1, 4, head_dim}};
    const view<const float, 3> queries(nullptr, of_queries), keys(nullptr, of_keys);
    step_layers pass(layers);
    const int passes = toy ? 1 : 1000;
    result of;
    for (int i = 0; i < iterations; ++i) {
      const double from = now();
      for (int p = 0; p < passes; ++p) {
        pass.clear();
        for (index layer = 0; layer < layers; ++layer) {
          pass.expect_layer("append", layer);
          expect_extents("append: keys are", keys, of_keys), expect_extents("append: values are", keys, of_keys);
          pass.expect_append(layer);
          pass.append(layer);
          pass.expect_layer("attend", layer);
          expect_extents("attend: queries are", queries, of_queries);
          expect_extents("attend: out is", queries, of_queries);
          pass.expect_queries("attend", layer);
          pass.see(layer);
        }
        pass.expect_complete("commit", 0, true);
      }
      of.seconds.push_back((now() - from) / (2.0 * passes * layers));
    }
    return of;
  });
}

void add_ceiling(const std::string& name, double ceilings::*of, const std::string& unit) {
  add_row("host/ceiling/" + name, 1, [=](int iterations) {
    result made;
    made.seconds.assign(static_cast<std::size_t>(iterations), 1e-6);
    made.figures = {{unit, the_ceilings().*of * 1e-9}};
    return made;
  });
}

}  // namespace

void add_host_rows() {
  add_ceiling("read_512MiB", &ceilings::far, "GB_per_second");
  add_ceiling("read_8MiB", &ceilings::near, "GB_per_second");
  add_ceiling("fma", &ceilings::flops, "GFLOP_per_second");
  add_attend_grid<float>();
  add_attend_grid<bfloat16>();
  add_attend_grid<float16>();
  add_attend_grid<float8>();
  add_attend_grid<int8>();
  for (const index segments : toy ? std::vector<index>{10} : std::vector<index>{341, 1365, 5461}) {
    add_scores(segments);
    add_fill(segments);
  }
  for (const index layers : {32, 96}) add_checks(layers);
  for (const index context : toy ? std::vector<index>{100} : std::vector<index>{2048, 8192}) {
    add_steps<float>(context);
    add_steps<bfloat16>(context);
  }
}

}  // namespace zoomr_bench
