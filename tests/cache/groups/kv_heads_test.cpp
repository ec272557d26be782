// SPDX-License-Identifier: Apache-2.0
// KV heads in groups: each gets the bits that a cache gives which has this KV head alone, or, where a policy chooses
// for several, those of groups of layers that have one KV head each; and the pages of streaming heads go back to the
// pool.
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/reciting.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

using zoomr::any_kv_cache, zoomr::grouped_kv_cache, zoomr::sequence, zoomr::step_item;
using table = std::vector<index_t>;

constexpr index_t longest = 150;

/// A model whose layers may differ in KV heads, and the group of each of these.
struct kv_head_table {
  std::vector<shape> layers;  // [layers]  one layer each
  index_t most_kv_heads;
  table group_of;  // [layers, most KV heads]  -1: there is none

  view<const index_t, 2> groups() const {
    return {group_of.data(), {static_cast<index_t>(layers.size()), most_kv_heads}};
  }
  /// The groups of all KV heads, in their order.
  table in_a_row() const {
    table made = group_of;
    std::erase(made, -1);
    return made;
  }
  /// Every KV head a group of its own.
  table apart() const {
    table made = in_a_row();
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<index_t>(i);
    return made;
  }
  /// The shape of a group: of KV heads of one layer.
  shape of(index_t layer, index_t g) const {
    shape made = layers[static_cast<std::size_t>(layer)];
    made.heads = made.group(), made.kv_heads = 1;
    made.layers = static_cast<index_t>(std::count(group_of.begin(), group_of.end(), g));
    return made;
  }
};

/// A step over layers that have one KV head each, for a model whose layers have several: their rows are copied.
template <class Step>
class copied_step : public Step {
 public:
  copied_step(Step&& of, const kv_head_table& model) : Step(std::move(of)), model_(model) {
    index_t first = 0;
    for (const shape& layer : model.layers) firsts_.push_back(std::exchange(first, first + layer.kv_heads));
  }
  void append(index_t layer, view<float, 3> keys, view<float, 3> values) {
    each(layer, [&](index_t own, index_t head, const shape&) {
      std::vector<float> k = copied(keys, head, 1), v = copied(values, head, 1);
      Step::append(own, rows(k, keys, 1), rows(v, values, 1));
    });
  }
  void attend(index_t layer, view<float, 3> queries, view<float, 3> out, view<float, 2> lse) {
    each(layer, [&](index_t own, index_t head, const shape& of) {
      const index_t group = of.group(), tokens = queries.extent(0);
      std::vector<float> q = copied(queries, head * group, group), o(q.size());
      std::vector<float> l(static_cast<std::size_t>(tokens * group));
      const view<float, 3> outputs = rows(o, out, group);
      Step::attend(own, rows(q, queries, group), outputs, view<float, 2>(l.data(), {tokens, group}));
      for (index_t t = 0; t < tokens; ++t) {
        for (index_t h = 0; h < group; ++h) {
          std::copy_n(&outputs(t, h, 0), out.extent(2), &out(t, head * group + h, 0));
          lse(t, head * group + h) = l[static_cast<std::size_t>(t * group + h)];
        }
      }
    });
  }

 private:
  template <class Work>
  void each(index_t layer, Work work) {
    const shape& of = model_.layers[static_cast<std::size_t>(layer)];
    for (index_t head = 0; head < of.kv_heads; ++head) work(firsts_[static_cast<std::size_t>(layer)] + head, head, of);
  }
  static std::vector<float> copied(view<float, 3> from, index_t first, index_t heads) {
    std::vector<float> to;
    for (index_t t = 0; t < from.extent(0); ++t) {
      for (index_t h = first; h < first + heads; ++h) {
        to.insert(to.end(), &from(t, h, 0), &from(t, h, 0) + from.extent(2));
      }
    }
    return to;
  }
  static view<float, 3> rows(std::vector<float>& numbers, view<float, 3> like, index_t heads) {
    return {numbers.data(), {like.extent(0), heads, like.extent(2)}};
  }

  const kv_head_table& model_;
  table firsts_;  // [layers]  KV heads before each
};

/// Groups of layers that have one KV head each, for such a model.
template <class Placement = zoomr::placement>
class copied_cache : public grouped_kv_cache<float, Placement> {
  using base = grouped_kv_cache<float, Placement>;

 public:
  copied_cache(std::vector<typename base::cache_type> groups, const table& group_of, const kv_head_table& model)
      : base(std::move(groups), view<const index_t>(group_of)), model_(model) {}
  auto begin(view<const step_item> items) { return copied_step<typename base::step_type>(base::begin(items), model_); }

 private:
  const kv_head_table& model_;
};

inline constexpr auto quest_everywhere = with(small::quest, [](auto& p) { p.zone.dense_layers = 0; });

/// Four layers with 2, 3, 1 and 2 KV heads; the last ones are wider, in groups of their own.
const kv_head_table four_layers{
    {{1, 4, 2, 8}, {1, 6, 3, 8}, {1, 2, 1, 8}, {1, 6, 2, 16}}, 3, {0, 1, -1, 1, 2, 0, 1, -1, -1, 3, 4, -1}};
constexpr index_t first_layers[] = {0, 0, 1, 3, 3};  // of each group

std::vector<tape> texts(std::uint64_t seed, index_t count, bool with_later_prompts) {
  std::vector<tape> made;
  constexpr markup looks[] = {markup::pairs, markup::sentences, markup::summaries_alone};
  for (index_t s = 0; s < count; ++s) {
    made.push_back(make_tape({1, 4, 2, 8}, s % 2 == 0 ? kind::uniform : kind::peaked, looks[s % 3], longest - s * 9,
                             20 + s * 17, seed + static_cast<std::uint64_t>(s)));
  }
  if (with_later_prompts) made[0].later_prompts = {{60, 90}}, made[1].later_prompts = {{80, 83}, {100, 132}};
  return made;
}

/// Two caches that shall give the same, and what has happened to them.
template <class Expected, class Made>
void check_lives(Expected& expected_cache, Made& made_cache, const kv_head_table& model, const std::vector<tape>& says,
                 index_t back) {
  reciter expected(expected_cache, model.layers);
  reciter made(made_cache, model.layers);
  const auto same = [&](index_t v) {
    CHECK(difference(expected.at(v).log, made.at(v).log) == "");
    CHECK(made_cache.bytes(made.at(v).seq).details == expected_cache.bytes(expected.at(v).seq).details);
    CHECK(made_cache.tokens(made.at(v).seq) == made.tokens(v));
  };
  for (const tape& text : says) expected.open(text), made.open(text);
  for (std::uint64_t seed = 5; seed < 7; ++seed) {
    expected.recite(seed, back), made.recite(seed, back);
    for (index_t v = 0; v < static_cast<index_t>(says.size()); ++v) {
      same(v);
      const index_t to = says[static_cast<std::size_t>(v)].size() - back;
      expected.rollback(v, to), made.rollback(v, to);
    }
  }
  CHECK((back == 0 || made.rollbacks > 3));
  CHECK(made.cut_short > 10);

  // A fork of the first, and what was saved of it, go on as it does.
  const auto other = [](auto& of, auto& cache) {
    cache.close(of.at(1).seq);
    const sequence forked = cache.fork(of.at(0).seq);
    memory_sink sink;
    cache.save(of.at(0).seq, sink);
    CHECK(cache.save_bytes(of.at(0).seq) == static_cast<zoomr::byte_count>(sink.bytes.size()));
    cache.close(of.at(0).seq);
    const sequence loaded = cache.load(memory_source(sink.bytes));
    of.at(1).log = of.at(0).log, of.at(1).says = of.at(0).says;
    of.at(0).seq = forked, of.at(1).seq = loaded;
  };
  other(expected, expected_cache), other(made, made_cache);
  expected.recite(17, 0), made.recite(17, 0);
  for (index_t v = 0; v < 2; ++v) same(v);
  CHECK(difference(made.at(0).log, made.at(1).log) == "");
  const zoomr::statistics got = made_cache.stats(made.at(0).seq), wanted = expected_cache.stats(expected.at(0).seq);
  CHECK(got.prompt_tokens == wanted.prompt_tokens);
  CHECK(got.tokens == wanted.tokens);
  CHECK(got.passes == wanted.passes);
  CHECK(got.taken == wanted.taken);
  CHECK(got.attended == wanted.attended);
}

/// A cache of a policy, for each group.
template <class Add>
std::vector<any_kv_cache<>> caches_of(const kv_head_table& model, Add add) {
  std::vector<any_kv_cache<>> made;
  for (index_t g = 0; g < 5; ++g) add(made, g, model.of(first_layers[g], g));
  return made;
}

TEST_CASE("each KV head gets the bits of a cache that has it alone, in any lives") {
  const kv_head_table& model = four_layers;
  for (const index_t threads : {1, 3}) {
    CAPTURE(threads);
    zoomr::thread_pool pool(threads);
    zoomr::config limits = limits_for(longest, 3);
    if (threads > 1) limits.threads = zoomr::executor(pool, threads, 1);  // for whatever there is
    zoomr::config shorter = limits;
    shorter.max_draft_tokens = 5;
    const auto add = [&](std::vector<any_kv_cache<>>& to, index_t g, const shape& of) {
      if (g == 0) to.push_back(zoomr::kv_cache(of, small::full, limits));
      if (g == 1) to.push_back(zoomr::kv_cache(of, small::window, shorter));
      if (g == 2) to.push_back(zoomr::kv_cache(of, quest_everywhere, limits));
      if (g == 3) to.push_back(zoomr::kv_cache(of, small::by_kv_head, limits));
      if (g == 4) to.push_back(zoomr::kv_cache(of, small::window, limits));
    };
    std::vector<any_kv_cache<>> alone;
    for (const index_t g : model.in_a_row()) {
      shape of = model.of(first_layers[g], g);
      of.layers = 1;
      add(alone, g, of);
    }
    copied_cache<> expected(std::move(alone), model.apart(), model);
    grouped_kv_cache<> made(caches_of(model, add), model.groups());
    check_lives(expected, made, model, texts(11, 3, false), 20);
  }
}

TEST_CASE("policies that choose, or evict, for several KV heads see those of their group") {
  const kv_head_table& model = four_layers;
  const zoomr::config limits = limits_for(longest, 3);
  const auto check = [&](bool evicts) {
    CAPTURE(evicts);
    const auto add = [&](std::vector<any_kv_cache<>>& to, index_t g, const shape& of) {
      if (g == 0) to.push_back(zoomr::kv_cache(of, small::zoomr_second_pass, limits));
      if (g == 1 && evicts) to.push_back(zoomr::kv_cache(of, small::h2o, limits));
      if (g == 1 && !evicts) to.push_back(zoomr::kv_cache(of, small::zoomr_focus, limits));
      if (g == 2) to.push_back(zoomr::kv_cache(of, small::zoomr_one_pass, limits));
      if (g == 3) to.push_back(zoomr::kv_cache(of, small::full, limits));
      if (g == 4) to.push_back(zoomr::kv_cache(of, small::zoomr_focus, limits));
    };
    copied_cache<> expected(caches_of(model, add), model.in_a_row(), model);
    grouped_kv_cache<> made(caches_of(model, add), model.groups());
    check_lives(expected, made, model, texts(21, 3, true), evicts ? 0 : 20);
  };
  check(false), check(true);
}

TEST_CASE("over tiers KV heads in groups give the bits of memory") {
  const kv_head_table model{{{1, 4, 2, 8}, {1, 4, 2, 8}, {1, 4, 2, 8}}, 2, {0, 1, 1, 1, 1, 0}};
  const zoomr::config limits = limits_for(longest, 2);
  const auto moved = [](const auto& policy) { return with_placement(policy, zoomr::tiered<>{}); };
  std::vector<any_kv_cache<float, zoomr::tiered<>>> over_tiers;
  std::vector<any_kv_cache<>> resident;
  const auto add = [&](index_t g, const auto& policy) {
    const shape of = model.of(0, g);
    over_tiers.push_back(zoomr::kv_cache(of, moved(policy), tiered_limits<float>(of, moved(policy), limits, 12)));
    resident.push_back(zoomr::kv_cache(of, with_placement(policy, zoomr::placement{}), limits));
  };
  add(0, small::full), add(1, quest_everywhere);
  grouped_kv_cache<> expected(std::move(resident), model.groups());
  grouped_kv_cache<float, zoomr::tiered<>> made(std::move(over_tiers), model.groups());
  reciter all(expected, model.layers);
  reciter tiers(made, model.layers);
  const std::vector<tape> says = texts(31, 2, true);
  for (const tape& text : says) all.open(text), tiers.open(text);
  all.recite(3, 20), tiers.recite(3, 20);
  for (index_t v = 0; v < 2; ++v) CHECK(difference(all.at(v).log, tiers.at(v).log) == "");
}

/// Two layers with two KV heads, of which one is a retrieval head; the others stream.
struct one_retrieval_head {
  static constexpr shape model{1, 4, 2, 8};
  static constexpr index_t prompt = 64, tokens = 1500, window = 48;
  static constexpr index_t group_of[] = {1, 0, 1, 1};

  /// @param pool  tokens that the streaming heads have room for
  static grouped_kv_cache<> cache(index_t pool, zoomr::config limits = {}) {
    limits.max_tokens = tokens, limits.max_batched_tokens = limits.max_draft_tokens = 64, limits.max_sequences = 2;
    std::vector<any_kv_cache<>> two;
    two.push_back(zoomr::kv_cache(shape{1, 2, 1, 8}, zoomr::presets::full, limits));
    limits.pool_tokens = pool;
    constexpr auto streaming =
        with(zoomr::presets::window, [](auto& p) { p.zone.sinks = 4, p.zone.recent = window - 4; });
    two.push_back(zoomr::kv_cache(shape{3, 2, 1, 8}, streaming, limits));
    return grouped_kv_cache<>(std::move(two), view<const index_t, 2>(group_of, {2, 2}));
  }

  std::vector<float> numbers = std::vector<float>(64 * 4 * 8, 0.25f), out = numbers;
  template <class Step>
  void pass(Step& step) {
    const index_t count = step.tokens();
    for (index_t layer = 0; layer < 2; ++layer) {
      const view<const float, 3> rows(numbers.data(), {count, 2, 8});
      step.append(layer, rows, rows);
      step.attend(layer, view<const float, 3>(numbers.data(), {count, 4, 8}),
                  view<float, 3>(out.data(), {count, 4, 8}));
    }
  }
};

TEST_CASE("pages of streaming heads go back to the pool, so that a few hold any text") {
  constexpr index_t chunk = 64;
  constexpr index_t few = one_retrieval_head::window + 2 * chunk;  // the window, a prompt or a step, and parts of pages
  grouped_kv_cache<> cache = one_retrieval_head::cache(few);
  grouped_kv_cache<> roomy = one_retrieval_head::cache(0);
  constexpr zoomr::byte_count row = 2 * 8 * sizeof(float);  // a key and a value
  CHECK(cache.group(1).capacity().details == 3 * row * few);
  CHECK(roomy.capacity().details - cache.capacity().details == 3 * row * (2 * 1504 - few));
  one_retrieval_head plays;
  const sequence seq = cache.open();
  const std::vector<token_id> ids(std::size_t{chunk}, plain_id);
  for (index_t now = 0; now + chunk <= one_retrieval_head::tokens; now += chunk) {
    auto step = cache.begin(seq, view<const token_id>(ids), now == 0);
    plays.pass(step);
    step.commit();
    const index_t held = now + chunk;
    CHECK(cache.group(0).bytes(cache.in_group(seq, 0)).details == row * held);
    const zoomr::byte_count streaming = cache.group(1).bytes(cache.in_group(seq, 1)).details;
    CHECK(streaming <= 3 * row * (one_retrieval_head::window + 2 * 16));
    CHECK(cache.bytes(seq).details == row * held + streaming);
  }
  CHECK(cache.bytes(seq).details * 3 < 4 * row * cache.tokens(seq));  // of all four KV heads
  // A second sequence has the pages that the first one has given back.
  const sequence other = cache.open();
  auto step = cache.begin(other, view<const token_id>(ids), true);
  plays.pass(step);
  step.commit();
  CHECK(cache.tokens(other) == chunk);
}

TEST_CASE("slots are listed by the heads of the model, as outputs are written") {
  grouped_kv_cache<> cache = one_retrieval_head::cache(0);
  one_retrieval_head plays;
  const sequence seq = cache.open();
  const std::vector<token_id> ids(64, plain_id);
  for (index_t now = 0; now < 320; now += 64) {
    auto step = cache.begin(seq, view<const token_id>(ids), now == 0);
    plays.pass(step);
    step.commit();
  }
  auto step = cache.begin(seq, view<const token_id>(ids).slice(0, 1));
  for (index_t layer = 0; layer < 2; ++layer) {
    const view<const float, 3> rows(plays.numbers.data(), {1, 2, 8});
    step.append(layer, rows, rows);
    table first_heads;
    step.list_slots(layer, view<const float, 3>(plays.numbers.data(), {1, 4, 8}), [&](const zoomr::slots_read& read) {
      first_heads.push_back(read.heads.first);
      CHECK(read.heads == zoomr::token_range{2 * read.kv_head, 2 * read.kv_head + 2});
      index_t slots = 0;
      for (const zoomr::token_range& range : read.slots) slots += range.size();
      CHECK(slots == (layer == 0 && read.kv_head == 1 ? 321 : one_retrieval_head::window));
    });
    CHECK(first_heads == table{0, 2});
  }
  step.commit();
}

TEST_CASE("queries of 16 bits, and arrays with gaps, are read as rows of floats side by side") {
  zoomr::config limits;
  limits.half_queries = true;
  grouped_kv_cache<> cache = one_retrieval_head::cache(0, limits);
  one_retrieval_head plays;
  constexpr index_t count = 40;
  dice random(mixed(9));
  const auto number = [&] {
    return zoomr::from_float<zoomr::bfloat16>(static_cast<float>(random.between(-99, 99)) / 64);
  };
  // [tokens, 5 heads, 11 numbers], of which 4 heads and 8 numbers are the model's
  std::vector<zoomr::bfloat16> halves(std::size_t{count * 5 * 11}), half_out(halves.size());
  for (zoomr::bfloat16& half : halves) half = number();
  const auto gaps = [&](auto* data, index_t heads) {
    return view<std::remove_pointer_t<decltype(data)>, 3>(data, {count, heads, 8}, {55, 11, 1});
  };
  const std::vector<token_id> ids(std::size_t{count}, plain_id);
  std::vector<float> floats(std::size_t{count * 4 * 8}), out(floats.size()), lse(std::size_t{count * 4}), lse_gaps(400);
  for (index_t t = 0; t < count; ++t) {
    for (index_t h = 0; h < 4; ++h) {
      for (index_t d = 0; d < 8; ++d) {
        floats[static_cast<std::size_t>((t * 4 + h) * 8 + d)] =
            zoomr::to_float(halves[static_cast<std::size_t>(t * 55 + h * 11 + d)]);
      }
    }
  }
  const view<const float, 3> queries(floats.data(), {count, 4, 8}), keys(floats.data(), {count, 2, 8}, {32, 8, 1});
  const sequence first = cache.open(), second = cache.open();
  auto step = cache.begin(first, view<const token_id>(ids), true);
  std::vector<std::vector<float>> wanted, wanted_lse;
  for (index_t layer = 0; layer < 2; ++layer) {
    step.append(layer, keys, keys);
    step.attend(layer, queries, view<float, 3>(out.data(), {count, 4, 8}), view<float, 2>(lse.data(), {count, 4}));
    wanted.push_back(out), wanted_lse.push_back(lse);
  }
  step.commit();
  auto again = cache.begin(second, view<const token_id>(ids), true);
  for (index_t layer = 0; layer < 2; ++layer) {
    again.append(layer, gaps(std::as_const(halves).data(), 2), gaps(std::as_const(halves).data(), 2));
    again.attend(layer, gaps(std::as_const(halves).data(), 4), gaps(half_out.data(), 4),
                 view<float, 2>(lse_gaps.data(), {count, 4}, {7, 1}));
    for (index_t t = 0; t < count; ++t) {
      for (index_t h = 0; h < 4; ++h) {
        CHECK(lse_gaps[static_cast<std::size_t>(t * 7 + h)] ==
              wanted_lse[static_cast<std::size_t>(layer)][static_cast<std::size_t>(t * 4 + h)]);
        for (index_t d = 0; d < 8; ++d) {
          const float exact = wanted[static_cast<std::size_t>(layer)][static_cast<std::size_t>((t * 4 + h) * 8 + d)];
          CHECK(zoomr::to_float(half_out[static_cast<std::size_t>(t * 55 + h * 11 + d)]) ==
                zoomr::to_float(zoomr::from_float<zoomr::bfloat16>(exact)));
        }
      }
    }
  }
  again.commit();
}

TEST_CASE("a span is erased from all KV heads, and keys are turned by the layers of the model") {
  const kv_head_table& model = four_layers;
  const zoomr::config limits = limits_for(longest, 2);
  const auto add = [&](std::vector<any_kv_cache<>>& to, index_t g, const shape& of) {
    g % 2 == 0 ? to.push_back(zoomr::kv_cache(of, small::full, limits))
               : to.push_back(zoomr::kv_cache(of, quest_everywhere, limits));
  };
  copied_cache<> expected(caches_of(model, add), model.in_a_row(), model);
  grouped_kv_cache<> made(caches_of(model, add), model.groups());
  const tape says = texts(41, 2, false)[0], shorter = says.without({70, 83});
  const auto life = [&](auto& cache) {
    reciter plays(cache, model.layers);
    plays.open(says);
    while (plays.tokens(0) < 100) plays.play({plays.next(0, plays.tokens(0) < says.prompt ? says.prompt : 1)});
    cache.plan_erase(plays.at(0).seq, {70, 83});
    plays.erase(0, {70, 83}, shorter);
    while (!plays.done(0)) plays.play({plays.next(0, 3)});
    return plays.at(0);
  };
  const voice other = life(expected), mine = life(made);
  CHECK(difference(other.log, mine.log) == "");

  const auto key_of = [&](index_t layer, index_t head, index_t slot) {
    const zoomr::grouped_layer place = made.place(layer, head);
    return made.group(place.group).kv_lane(made.in_group(mine.seq, place.group), place.layer, 0).key(slot)[0];
  };
  const auto each = [&](auto work) {
    for (index_t layer = 0; layer < made.layers(); ++layer) {
      for (index_t head = 0; head < model.layers[static_cast<std::size_t>(layer)].kv_heads; ++head) work(layer, head);
    }
  };
  std::vector<float> before;
  each([&](index_t layer, index_t head) { before.push_back(key_of(layer, head, 31)); });
  made.erase(mine.seq, {30, 31}, [](index_t layer, view<float> key) { key[0] += static_cast<float>(layer + 1); });
  std::size_t i = 0;
  each([&](index_t layer, index_t head) {
    CHECK(key_of(layer, head, 30) == before[i++] + static_cast<float>(layer + 1));
  });
}

std::string refusal(const std::function<void()>& call) {
  const std::string said = sentence_of(call);
  return said.empty() ? "it is not refused" : said.substr(zoomr::error::prefix.size());
}

TEST_CASE("tables of KV heads that cannot be are refused") {
  const zoomr::config limits = limits_for(longest, 2);
  zoomr::config half = limits;
  half.half_queries = true;
  const auto refused = [&](const table& group_of, index_t kv_heads, const shape& first, const shape& second,
                           const zoomr::config& of_second) {
    return refusal([&] {
      std::vector<any_kv_cache<>> two;
      two.push_back(zoomr::kv_cache(first, small::full, limits));
      two.push_back(zoomr::kv_cache(second, small::window, of_second));
      const auto layers = static_cast<index_t>(group_of.size()) / kv_heads;
      grouped_kv_cache<>(std::move(two), view<const index_t, 2>(group_of.data(), {layers, kv_heads}));
    });
  };
  const shape one{1, 2, 1, 8}, three{3, 2, 1, 8}, wide{3, 2, 1, 16}, several{3, 2, 2, 8}, fewer{3, 1, 1, 8};
  const table four{1, 0, 1, 1};
  CHECK(refused(four, 2, one, three, limits) == "it is not refused");
  CHECK(refused({1, 0, 1, 2}, 2, one, three, limits) == "groups: the table of layers names group 2 of 2");
  CHECK(refused({1, 0, 1, -2}, 2, one, three, limits) == "groups: the table of layers names group -2 of 2");
  CHECK(refused({1, 1, -1, 0}, 2, one, three, limits) ==
        "groups: the table names a KV head of layer 1 behind an entry of -1");
  CHECK(refused({1, 1, -1, -1}, 2, one, three, limits) == "groups: the table has no KV head of layer 1");
  CHECK(refused({1, 0, 1, -1}, 2, one, three, limits) ==
        "groups: the shape of group 1 has 3 layers, the table of layers 2");
  CHECK(
      refused(four, 2, one, several, limits) ==
      "groups: the table is one of KV heads, each of which is a layer of its group: but the shape of group 1 has 2 KV "
      "heads");
  const std::string differ =
      "groups: the KV heads of layer 0 are in groups that differ in the shape of a KV head, or in config.half_queries";
  CHECK(refused(four, 2, one, wide, limits) == differ);
  CHECK(refused(four, 2, one, fewer, limits) == differ);
  CHECK(refused(four, 2, one, three, half) == differ);
  CHECK(refused({1, 1, 1, 0}, 1, one, wide, half) == "it is not refused");
}

TEST_CASE("mistakes in a step name the KV head, and no KV head of the layer has done anything") {
  grouped_kv_cache<> cache = one_retrieval_head::cache(0);
  CHECK(cache.layers() == 2);
  CHECK(cache.place(1, 0) == zoomr::grouped_layer{1, 1});
  CHECK(refusal([&] { cache.place(0); }) == "the table of groups is one of KV heads: name one of the layer");
  CHECK(refusal([&] { cache.place(0, 2); }) == "layer 0 has no KV head 2");
  CHECK(refusal([&] { cache.place(2, 0); }) == "place: there is no layer 2, the model has 2");
  const sequence seq = cache.open();
  const std::vector<token_id> ids(3, plain_id);
  std::vector<float> numbers(3 * 4 * 8);
  const auto rows = [&](index_t tokens, index_t heads) { return view<float, 3>(numbers.data(), {tokens, heads, 8}); };
  auto step = cache.begin(seq, view<const token_id>(ids), true);
  CHECK(refusal([&] { step.append(0, rows(3, 1), rows(3, 2)); }) ==
        "layer 0, KV head 0, which is layer 0 of group 1: append: keys are [3, 1, 8], wanted [3, 2, 8]");
  CHECK(refusal([&] { step.append(0, rows(3, 2), rows(3, 3)); }) ==
        "layer 0, KV head 0, which is layer 0 of group 1: append: values are [3, 3, 8], wanted [3, 2, 8]");
  CHECK(refusal([&] { step.append(0, rows(2, 2), rows(3, 2)); }) ==
        "layer 0, KV head 0, which is layer 0 of group 1: append: keys are [2, 1, 8], wanted [3, 1, 8]");
  CHECK(refusal([&] { step.attend(0, rows(3, 4), rows(3, 4)); }) ==
        "layer 0, KV head 0, which is layer 0 of group 1: attend: append the keys of layer 0 before, in the same pass");
  step.append(0, rows(3, 2), rows(3, 2));
  const auto attends = [&](index_t queries, index_t out, index_t lse) {
    return refusal([&] { step.attend(0, rows(3, queries), rows(3, out), view<float, 2>(numbers.data(), {3, lse})); });
  };
  const std::string where = "layer 0, KV head 0, which is layer 0 of group 1: attend: ";
  CHECK(attends(5, 4, 4) == where + "queries are [3, 5, 8], wanted [3, 4, 8]");
  CHECK(attends(4, 2, 4) == where + "out is [3, 2, 8], wanted [3, 4, 8]");
  CHECK(attends(4, 4, 3) == where + "lse is [3, 3], wanted [3, 4]");
  CHECK(refusal([&] { step.observe(0, rows(3, 3)); }) ==
        "layer 0, KV head 0, which is layer 0 of group 1: observe: queries are [3, 3, 8], wanted [3, 4, 8]");
  CHECK(attends(4, 4, 4) == "it is not refused");
  CHECK(refusal([&] { step.commit(3); }).find("group 1: commit: tokens of item 0 are accepted, but layer 1 of 3") == 0);
  step.append(1, rows(3, 2), rows(3, 2));
  step.observe(1, rows(3, 4));
  step.commit();
  CHECK(cache.tokens(seq) == 3);
}

TEST_CASE("a file of KV heads in groups is no file of layers in groups, nor of other groups") {
  const auto made = [](const table& group_of, bool by_kv_head) {
    const zoomr::config limits = limits_for(longest, 2);
    std::vector<any_kv_cache<>> two;
    two.push_back(zoomr::kv_cache(shape{2, 2, 1, 8}, small::full, limits));
    two.push_back(zoomr::kv_cache(shape{2, 2, 1, 8}, small::window, limits));
    if (!by_kv_head) return grouped_kv_cache<>(std::move(two), view<const index_t>(group_of));
    return grouped_kv_cache<>(std::move(two), view<const index_t, 2>(group_of.data(), {2, 2}));
  };
  const auto saved = [](grouped_kv_cache<>& of) {
    memory_sink sink;
    of.save(of.open(), sink);
    return sink.bytes;
  };
  grouped_kv_cache<> heads = made({0, 1, 1, 0}, true), others = made({1, 0, 1, 0}, true),
                     layers = made({0, 1, 1, 0}, false);
  const auto refused = [](grouped_kv_cache<>& by, const saved_bytes& bytes) {
    return refusal([&] { by.load(memory_source(bytes)); });
  };
  const saved_bytes of_heads = saved(heads);
  CHECK(refused(heads, of_heads) == "it is not refused");
  CHECK(refused(heads, saved(layers)) == "load: this is no saved sequence of groups of KV heads");
  CHECK(refused(layers, of_heads) == "load: this is no saved sequence of groups of layers");
  CHECK(refused(others, of_heads) == "load: the file's KV heads are in other groups than those of this cache");
}

}  // namespace
}  // namespace zoomr_test
