// SPDX-License-Identifier: Apache-2.0
// Contexts of several stretches (attention/stretches.hpp): outputs are those of a naive reference in double, and their
// bits depend neither on how many threads work, nor on how a prompt and its continuation are cut.
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/core/threads/crew.hpp>
#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <support/inputs.hpp>
#include <support/rounded_weights.hpp>
#include <support/tolerance.hpp>

#include <algorithm>    // std::copy_n, std::fill_n, std::max, std::min
#include <cmath>        // std::exp, std::log, std::sqrt
#include <cstring>      // std::memcmp
#include <string>       // std::string
#include <thread>       // std::thread
#include <type_traits>  // std::is_same_v, std::remove_const_t
#include <vector>       // std::vector

namespace zoomr_test::stretches_test {
namespace {

using zoomr::token_range;

constexpr index_t stretch = zoomr::detail::stretch_tokens;
constexpr std::int64_t worth = 1;  // numbers: threads are used for whatever there is

/// Does the pieces one after the other, the last first.
struct backwards {
  void operator()(index_t pieces, const zoomr::task_ref& task) const {
    for (index_t i = pieces - 1; i >= 0; --i) task(i);
  }
};

/// What all tokens of a text have: the same for any way to pass them.
struct text {
  shape model;
  std::vector<token_id> ids;
  std::vector<float> queries, keys, values;  // [tokens, heads or KV heads, width]

  text(const shape& of, index_t tokens, std::uint64_t seed) : model(of) {
    dice random(seed);
    const auto fill = [&](std::vector<float>& numbers, index_t heads, index_t width) {
      numbers.resize(static_cast<std::size_t>(std::int64_t{tokens} * heads * width));
      for (float& number : numbers) number = static_cast<float>(random.between(-8000, 8000)) / 4000.0f;
    };
    fill(queries, of.heads, of.head_dim), fill(keys, of.kv_heads, of.head_dim);
    fill(values, of.kv_heads, of.value_width());
    for (index_t t = 0; t < tokens; ++t) ids.push_back((t + 1) % 19 == 0 ? 1 : 0);  // sentences
  }
  index_t size() const { return static_cast<index_t>(ids.size()); }
  view<const float, 3> some(const std::vector<float>& numbers, index_t heads, index_t width, index_t at,
                            index_t count) const {
    return {numbers.data() + std::int64_t{at} * heads * width, {count, heads, width}};
  }
};

template <class Placement>
constexpr auto with_placement(Placement where) {
  const auto& full = zoomr::presets::full;
  return zoomr::compose(full.zone, where);
}

/// How it is passed.
struct cuts {
  index_t prompt = 1, chunk = 512, draft = 1;
};

struct result {
  std::vector<float> out;  // [tokens, heads, value width]
  std::vector<float> lse;  // [tokens, heads]
  double captured = 0;     // of an audit
  zoomr::attention_trace trace;
  zoomr::sequence seq;
  friend bool operator==(const result& a, const result& b) {
    return same(a.out, b.out) && same(a.lse, b.lse) && a.captured == b.captured;
  }
  static bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
};

zoomr::config limits_of(const text& says) {
  static constexpr std::array<zoomr::token_class, 2> classes{zoomr::token_class::plain, zoomr::token_class::delimiter};
  zoomr::config limits;
  limits.max_tokens = says.size(), limits.classes = classes;
  limits.max_batched_tokens = says.size();
  return limits;
}

/// @param from  tokens before this one are observed alone, if they are of the prompt; what was got is zeros
/// @param table  the block table, where pages are an engine's
template <class Cache>
result play(Cache& cache, const text& says, cuts how, index_t from = 0, bool traced = false,
            view<const index_t> table = {}) {
  const shape& model = says.model;
  const index_t width = model.value_width();
  result got;
  got.seq = cache.open();
  got.out.resize(static_cast<std::size_t>(std::int64_t{says.size()} * model.heads * width));
  got.lse.resize(static_cast<std::size_t>(std::int64_t{says.size()} * model.heads));
  if (traced) cache.trace(&got.trace);
  for (index_t at = 0; at < says.size();) {
    const bool prompt = at < how.prompt;
    const index_t wanted = prompt ? std::min(how.chunk, how.prompt - at) : std::min(how.draft, says.size() - at);
    const zoomr::step_item item{got.seq, view<const token_id>(says.ids).slice(at, at + wanted),
                                prompt && at + wanted == how.prompt, table};
    auto step = cache.begin(view<const zoomr::step_item>(&item, {1}));
    const index_t count = step.taken(0);
    step.append(
        0, says.some(says.keys, model.kv_heads, model.head_dim, at, count),
        model.values_in_keys ? view<const float, 3>{} : says.some(says.values, model.kv_heads, width, at, count));
    const auto queries = says.some(says.queries, model.heads, model.head_dim, at, count);
    if (prompt && at + count <= from) {
      step.observe(0, queries);
    } else {
      step.attend(0, queries, {got.out.data() + std::int64_t{at} * model.heads * width, {count, model.heads, width}},
                  {got.lse.data() + std::int64_t{at} * model.heads, {count, model.heads}});
    }
    REQUIRE_FALSE(step.needs_second_pass(count));
    step.commit(count);
    at += count;
  }
  std::fill_n(got.out.begin(), std::int64_t{from} * model.heads * width, 0.0f);
  std::fill_n(got.lse.begin(), std::int64_t{from} * model.heads, 0.0f);
  if (traced) cache.trace(nullptr);
  got.captured = cache.stats(got.seq).captured_sum;
  return got;
}
template <class T, class Policy>
result play(const Policy& policy, const text& says, const zoomr::config& limits, cuts how, index_t from = 0) {
  zoomr::kv_cache<Policy, T> cache(says.model, policy, limits);
  return play(cache, says, how, from);
}

/// One head's output and lse in double, over keys and values as they are stored.
template <class T>
void check_naive(const zoomr::any_kv_cache<T>& cache, const text& says, const result& got, index_t t, index_t head,
                 const std::vector<index_t>& slots) {
  const shape& model = says.model;
  const auto lane = cache.kv_lane(got.seq, 0, head / model.group());
  std::vector<float> key(static_cast<std::size_t>(model.head_dim)),
      value(static_cast<std::size_t>(model.value_width()));
  // Rows of floats are those of the text, also where pages were given back.
  const auto read = [&](const std::vector<float>& rows, index_t slot, auto place, std::vector<float>& row) {
    if (std::is_same_v<T, float> && !model.values_in_keys) {
      const auto width = static_cast<index_t>(row.size());
      std::copy_n(rows.begin() + (std::int64_t{slot} * model.kv_heads + head / model.group()) * width, width,
                  row.begin());
    } else {
      zoomr::detail::read_row(place(), slot, 1.0f, view<float>(row));
    }
  };
  std::vector<double> logits;
  double largest = -1e300, magnitude = 0, all = 0;
  const auto query = says.queries.begin() + (std::int64_t{t} * model.heads + head) * model.head_dim;
  const double scale = 1 / std::sqrt(static_cast<double>(model.head_dim));
  for (const index_t slot : slots) {
    read(
        says.keys, slot, [&] { return lane.key(slot); }, key);
    double logit = 0, sum = 0;
    for (std::size_t d = 0; d < key.size(); ++d) {
      logit += scale * query[static_cast<std::ptrdiff_t>(d)] * key[d];
      sum += std::abs(scale * query[static_cast<std::ptrdiff_t>(d)] * key[d]);
    }
    logits.push_back(logit), largest = std::max(largest, logit), magnitude = std::max(magnitude, sum);
  }
  std::vector<double> out(value.size());
  double most = 0;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const double weight = std::exp(logits[i] - largest);
    read(
        says.values, slots[i], [&] { return lane.value(slots[i]); }, value);
    for (std::size_t d = 0; d < value.size(); ++d) {
      out[d] += weight * value[d], most = std::max(most, std::abs(static_cast<double>(value[d])));
    }
    all += weight;
  }
  const double off = tolerance::end_to_end(model.head_dim, magnitude, static_cast<double>(slots.size()));
  const double weights = tolerance::of_path<T>(zoomr::kv_widths{model.head_dim, model.value_width()});
  const auto row = static_cast<std::size_t>(std::int64_t{t} * model.heads + head);
  CAPTURE(t);
  CAPTURE(head);
  CHECK(tolerance::within(got.lse[row], largest + std::log(all), off * (1 + std::abs(largest))));
  for (std::size_t d = 0; d < out.size(); ++d) {
    REQUIRE(tolerance::within(got.out[row * out.size() + d], out[d] / all, (off + weights) * most));
  }
}

std::vector<index_t> slots_between(index_t first, index_t last) {
  std::vector<index_t> slots;
  for (index_t slot = first; slot < last; ++slot) slots.push_back(slot);
  return slots;
}

/// Bits for any number of threads and any cuts are those of a prompt in one thread, or of single tokens.
template <class T, class Policy>
void check_same(const Policy& policy, const text& says, const zoomr::config& limits, cuts alone_cuts, index_t from,
                const std::vector<cuts>& ways) {
  zoomr::config alone_limits = limits;
  alone_limits.threads = {};
  const result alone = play<T>(policy, says, alone_limits, alone_cuts, from);
  for (const cuts& way : ways) {
    CAPTURE(way.prompt);
    CAPTURE(way.draft);
    CHECK(play<T>(policy, says, alone_limits, way, from) == alone);
    backwards run;
    for (const index_t threads : {2, 3, 8}) {
      CAPTURE(threads);
      zoomr::config shared = limits;
      shared.threads = zoomr::executor(run, threads, worth);
      CHECK(play<T>(policy, says, shared, way, from) == alone);
    }
    zoomr::thread_pool pool(3);
    zoomr::config pooled = limits;
    pooled.threads = zoomr::executor(pool, 3, worth);
    CHECK(play<T>(policy, says, pooled, way, from) == alone);
    zoomr::crew crew(8);  // two of which are there
    pooled.threads = zoomr::executor(crew, 8, worth);
    std::thread other([&] { crew.run(1, 2, [] {}); });
    result led;
    crew.run(0, 2, [&] { led = play<T>(policy, says, pooled, way, from); });
    other.join();
    CHECK(led == alone);
  }
}

/// The last tokens of a text, after a prompt whose own outputs are not looked at.
template <class T>
void check_ends(const shape& model, index_t tokens, std::uint64_t seed) {
  CAPTURE(tokens);
  CAPTURE(model.kv_heads);
  const text says(model, tokens, seed);
  const index_t from = std::max<index_t>(1, tokens - 5);
  const zoomr::config limits = limits_of(says);
  check_same<T>(zoomr::presets::full, says, limits, {from, tokens, 1}, from,
                {{from, 512, 3}, {std::min(from + 2, tokens), 300, 2}, {tokens, 512, 1}});
  zoomr::kv_cache<decltype(zoomr::presets::full), T> cache(model, zoomr::presets::full, limits);
  const result got = play(cache, says, {from, 512, 1}, from);
  for (index_t t = from; t < tokens; ++t) {
    for (index_t head = 0; head < model.heads; ++head) {
      check_naive<T>(cache, says, got, t, head, slots_between(0, t + 1));
    }
  }
}

/// What a token attends as its trace says, in double: some of them.
template <class Policy>
void check_traced(const Policy& policy, const text& says, const zoomr::config& limits, cuts how, index_t from) {
  zoomr::kv_cache<Policy> cache(says.model, policy, limits);
  const result got = play(cache, says, how, from, true);
  index_t largest = 0;
  for (const zoomr::attended_record& seen : got.trace) {
    if (seen.position % 7 != 0) continue;
    check_naive<float>(cache, says, got, seen.position, seen.head, seen.positions);
    largest = std::max(largest, static_cast<index_t>(seen.positions.size()));
  }
  CHECK(largest > stretch);
}

const shape many{1, 8, 8, 24}, grouped{1, 9, 3, 64}, one{1, 4, 1, 32};

}  // namespace

TEST_CASE("stretches: bits are those of one thread for any shape and length, and sums are right") {
  std::uint64_t seed = 1;
  for (const shape& model : {many, grouped, one}) {
    for (const index_t tokens : {index_t{1}, stretch - 1, stretch, stretch + 1, 2 * stretch, 2503}) {
      check_ends<float>(model, tokens, ++seed);
    }
  }
  shape latent{1, 5, 1, 64};
  latent.value_dim = 32, latent.values_in_keys = true;
  check_ends<float>(latent, 3 * stretch + 17, ++seed);
}

TEST_CASE("stretches: so they are in each storage type") {
  std::uint64_t seed = 100;
  const auto check = [&](auto number) {
    using T = decltype(number);
    CAPTURE(std::string(zoomr::storage_name<T>()));
    for (const index_t tokens : {stretch + 1, index_t{2311}}) check_ends<T>(grouped, tokens, ++seed);
  };
  check(bfloat16{}), check(float16{}), check(float8{}), check(int8{}), check(scaled_int8{});
}

TEST_CASE("stretches: KV heads whose rows lie in between are cut apart only for threads that would have nothing") {
  using zoomr::detail::piece_kv_heads;
  constexpr bool in_between = false, side_by_side = true;
  CHECK(piece_kv_heads(3, 2, 2, 128, in_between) == 3);  // heads of 64 in 16 bits
  CHECK(piece_kv_heads(3, 4, 2, 128, in_between) == 3);
  CHECK(piece_kv_heads(3, 2, 3, 128, in_between) == 1);  // the third thread
  CHECK(piece_kv_heads(8, 2, 2, 256, in_between) == 4);  // rows of a KiB, two pieces for each thread
  CHECK(piece_kv_heads(8, 4, 2, 256, in_between) == 8);
  CHECK(piece_kv_heads(8, 2, 8, 256, in_between) == 2);
  CHECK(piece_kv_heads(1, 2, 8, 256, in_between) == 1);
  CHECK(piece_kv_heads(3, 4, 2, 128, side_by_side) == 1);
  CHECK(piece_kv_heads(8, 4, 2, 256, side_by_side) == 2);  // eight pieces for each thread
  CHECK(piece_kv_heads(8, 16, 2, 256, side_by_side) == 8);
}

TEST_CASE("stretches: their memory is counted, and only where there may be several") {
  backwards run;
  const shape& model = grouped;
  const auto bytes = [&](index_t tokens, index_t threads, index_t draft = 16) {
    zoomr::config limits;
    limits.max_tokens = tokens, limits.max_batched_tokens = 100, limits.max_draft_tokens = draft;
    limits.max_segments = 8, limits.threads = zoomr::executor(run, threads);
    return zoomr::kv_cache<decltype(zoomr::presets::full)>::bytes(model, zoomr::presets::full, limits).workspace;
  };
  constexpr zoomr::byte_count state = 16, width = 64 * 4;
  CHECK(bytes(stretch + 1, 1) - bytes(stretch, 1) == 100 * (3 * 4 * state + 9 * width));
  const zoomr::byte_count thread = bytes(stretch, 2) - bytes(stretch, 1);
  const auto cut = [&](index_t tokens, index_t draft) {
    return bytes(tokens, 2, draft) - bytes(tokens, 1, draft) - thread;
  };
  // So many stretches, of 21 tokens whose 63 queries of a KV head attend together; and ranges.
  CHECK(cut(5000, 40) == 5 * (21 * (3 * 4 * state + 9 * width) + 8) + (2 * 8 + 2) * 8);
  CHECK(cut(5000, 2) == 5 * (2 * (3 * 4 * state + 9 * width) + 8) + (2 * 8 + 2) * 8);
}

TEST_CASE("stretches: prompts in any chunks, drafts and single tokens add up in one order, under a window too") {
  const shape model{1, 2, 1, 32};
  for (const index_t window : {index_t{0}, stretch - 1, stretch, stretch + 1, index_t{1500}, 2 * stretch}) {
    CAPTURE(window);
    const text says(model, 2 * stretch + 300, static_cast<std::uint64_t>(500 + window));
    zoomr::config limits = limits_of(says);
    limits.logits.window = window;
    check_same<float>(zoomr::presets::full, says, limits, {says.size(), 512, 1}, 0,
                      {{says.size(), 77, 1}, {1000, 130, 1}, {1030, 512, 5}});
    zoomr::kv_cache<decltype(zoomr::presets::full)> cache(model, zoomr::presets::full, limits);
    const result got = play(cache, says, {says.size(), 512, 1});
    for (index_t t = says.size() - 1; t > says.size() - 1000; t -= 97) {
      check_naive<float>(cache, says, got, t, 1, slots_between(window == 0 ? 0 : std::max(0, t + 1 - window), t + 1));
    }
  }
}

TEST_CASE("stretches: of what is chosen, and of zones with a gap between them") {
  const text says({1, 4, 2, 32}, 4000, 77);
  const index_t from = 3900;
  zoomr::config limits = limits_of(says);
  const auto check = [&](const auto& policy) {
    check_same<float>(policy, says, limits, {from, 512, 1}, from, {{from, 300, 1}, {from, 512, 5}});
    check_traced(policy, says, limits, {from, 512, 1}, from);
  };
  check(with(zoomr::presets::window, [](auto& p) { p.zone.sinks = 5, p.zone.recent = 1400; }));
  check(with(zoomr::presets::window, [](auto& p) { p.zone.sinks = 1003, p.zone.recent = 1030; }));
  for (const zoomr::scope per : {zoomr::scope::layer, zoomr::scope::kv_head}) {
    check(zoomr::compose(zoomr::sentences{.longest = 40}, zoomr::key_mean{}, zoomr::pooled_score{.per = per},
                         zoomr::fill_budget{.tokens = 2300}, zoomr::every_token{},
                         zoomr::zones{.sinks = 4, .recent = 20, .open = 40}));
  }
  limits.audit = true;
  check(zoomr::presets::full);
}

TEST_CASE("stretches: model logits, an engine's pages and tiers have the same order") {
  const text says({1, 6, 3, 32}, 2 * stretch + 200, 5);
  const index_t from = 2 * stretch + 100;
  zoomr::config limits = limits_of(says);
  const std::vector<float> slopes{0.01f, 0.02f, 0.0f, 0.3f, 0.1f, 0.05f}, sinks{0.5f, -1.0f, 2.0f, 0.0f, 1.0f, -2.0f};
  limits.logits.soft_cap = 20.0f, limits.logits.alibi_slopes = view<const float>(slopes);
  limits.logits.sinks = view<const float, 2>(sinks.data(), {1, 6});
  const std::vector<cuts> ways{{from, 300, 1}, {from, 512, 5}, {says.size(), 512, 1}};
  check_same<float>(zoomr::presets::full, says, limits, {says.size(), 512, 1}, from, ways);
  limits.logits = {};
  const result own = play<float>(zoomr::presets::full, says, limits, {from, 512, 1}, from);
  backwards run;
  for (const index_t in_page : {16, 5}) {
    CAPTURE(in_page);
    std::vector<index_t> table;
    for (index_t page = 0; page * in_page < says.size(); ++page)
      table.push_back((page + 7) % (says.size() / in_page + 1));
    const auto pages = static_cast<index_t>(table.size());
    std::vector<float> keys(static_cast<std::size_t>(pages * in_page * 96)), values(keys.size());
    void* const key_rows[] = {keys.data()};
    void* const value_rows[] = {values.data()};
    zoomr::config there = limits;
    there.engine = zoomr::engine_memory::nhd(view<void* const>(key_rows, {1}), view<void* const>(value_rows, {1}),
                                             pages, in_page, says.model);
    for (const index_t threads : {1, 3, 8}) {
      there.threads = zoomr::executor(run, threads, worth);
      const auto policy = with_placement(zoomr::engine_pages{});
      for (const cuts& way : ways) {
        zoomr::kv_cache<std::remove_const_t<decltype(policy)>> cache(says.model, policy, there);
        CHECK(play(cache, says, way, from, false, table) == own);
      }
    }
  }
  const auto tiered = with_placement(zoomr::tiered<>{});
  limits = tiered_limits(says.model, tiered, limits, 9);
  for (const cuts& way : ways) CHECK(play<float>(tiered, says, limits, way, from) == own);
}

}  // namespace zoomr_test::stretches_test
