// SPDX-License-Identifier: Apache-2.0
// A cache in the pages of an engine: in any layout the bits of a cache with pages of its own, for the engine's own
// kernel too, and no key or value copied.
#include <cache/support/conversations.hpp>
#include <cache/support/model_logits.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <support/naive_attention.hpp>
#include <support/paged_engine.hpp>
#include <support/tolerance.hpp>
#include <zoomr/core/threads/thread_pool.hpp>

#include <doctest/doctest.h>

#include <algorithm>    // std::max
#include <array>        // std::array
#include <cmath>        // std::abs, std::sqrt
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::bfloat16, zoomr::float16, zoomr::float8;

constexpr shape model{2, 8, 4, 16};

/// An engine, and what drives its cache.
template <class T>
class engine_player : public cache_holder<paged_engine<T>>, public driver<paged_engine<T>> {
 public:
  template <class Policy>
  engine_player(const shape& of, const Policy& policy, const zoomr::config& limits, const engine_layout& lies)
      : cache_holder<paged_engine<T>>{paged_engine<T>(of, policy, with_voters(policy, limits, of), lies)},
        driver<paged_engine<T>>(this->cache) {}
};

constexpr engine_layout layouts[] = {
    {16, false, false, 0}, {16, true, true, 8},  {1, false, false, 0},  {3, true, false, 24},
    {32, false, true, 0},  {48, true, false, 0}, {64, false, false, 8}, {5, false, true, 0},
};

/// Chunks, drafts, rollbacks and batches of two, from the same dice in either cache.
/// @param whole  drafts may be passed whole
template <class Player>
void play_at_random(Player& plays, const tape& one, const tape& other, std::uint64_t seed, bool whole = false) {
  dice random(seed);
  plays.open(one), plays.open(other);
  while (!plays.done(0) || !plays.done(1)) {
    std::vector<part> parts;
    for (index_t v = 0; v < 2; ++v) {
      if (plays.done(v) || (random.chance(30) && !plays.done(1 - v))) continue;
      const tape& says = *plays.at(v).says;
      const index_t now = plays.tokens(v);
      parts.push_back(part_of(says, v, now, random.between(1, says.in_prompt(now) ? 40 : 5)));
      parts.back().whole = whole && random.chance(30);
    }
    if (parts.empty()) continue;
    if (random.chance(15)) plays.play(parts, fate::dropped_between_layers);
    plays.play(parts);
    const index_t v = random.between(0, 1), now = plays.tokens(v);
    if (now <= plays.at(v).says->prompt || !random.chance(15)) continue;
    try {
      plays.rollback(v, std::max(plays.at(v).says->prompt, now - random.between(1, 6)));
    } catch (const zoomr::error& why) {
      REQUIRE(why.code() == zoomr::errc::rollback_depth);
    }
  }
}

template <class T, class Policy>
void check_layouts(const char* name, const Policy& policy, std::uint64_t seed) {
  tape one = make_tape(model, kind::uniform, markup::pairs, 150, 61, seed);
  tape other = make_tape(model, kind::peaked, markup::sentences, 120, 33, seed + 1);
  if (!frees_pages(policy)) one.later_prompts = {{90, 113}}, other.later_prompts = {{50, 54}, {80, 120}};
  player<Policy, T> own(model, policy, limits_for(150, 2));
  const bool whole = !requires { policy.evict.every; };
  play_at_random(own, one, other, seed, whole);
  for (const std::size_t which : {seed % std::size(layouts), (seed + 3) % std::size(layouts)}) {
    CAPTURE(std::string(name));
    CAPTURE(layouts[which].name());
    engine_player<T> engine(model, policy, limits_for(150, 2), layouts[which]);
    const index_t pages = engine.cache.free_pages();
    play_at_random(engine, one, other, seed, whole);
    REQUIRE(difference(own.at(0).log, engine.at(0).log) == "");
    REQUIRE(difference(own.at(1).log, engine.at(1).log) == "");
    engine.cache.close(engine.at(0).seq), engine.cache.close(engine.at(1).seq);
    CHECK(engine.cache.free_pages() == pages);
  }
}

TEST_CASE("in an engine's pages, of any layout, each token gets the bits that it gets in the cache's own") {
  std::uint64_t seed = 0;
  for_each_policy([&](const char* name, const auto& policy) { check_layouts<float>(name, policy, ++seed); });
}

TEST_CASE("the same for keys and values in 16 and 8 bits") {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    check_layouts<bfloat16>("quest", small::quest, seed);
    check_layouts<bfloat16>("h2o", small::h2o, seed);
    check_layouts<float16>("full", small::full, seed);
    check_layouts<float16>("sentence_kv", small::sentence_kv, seed);
    check_layouts<float8>("zoomr_focus", small::zoomr_focus, seed);
  }
}

TEST_CASE("the same for what a model does to its logits, for scales of each KV head, and under an audit") {
  std::vector<float> scales;
  for (index_t i = 0; i < model.kv_lanes(); ++i) scales.push_back(0.5f + 0.25f * static_cast<float>(i));
  const view<const float, 2> of_heads(scales.data(), {model.layers, model.kv_heads});
  std::size_t which = 0;
  const auto check = [&](const char* name, const auto& policy) {
    for (const model_rule& rule : all_model_rules(model)) {
      zoomr::config limits = limits_for(110, 2);
      limits.logits = rule.rule(), limits.audit = true, limits.key_scale = of_heads, limits.value_scale = of_heads;
      const tape one = make_tape(model, kind::uniform, markup::pairs, 110, 61, which);
      const tape other = make_tape(model, kind::peaked, markup::sentences, 90, 33, which + 1);
      player<std::decay_t<decltype(policy)>> own(model, policy, limits);
      engine_player<float> engine(model, policy, limits, layouts[++which % std::size(layouts)]);
      play_at_random(own, one, other, which), play_at_random(engine, one, other, which);
      CAPTURE(std::string(name));
      CAPTURE(rule.name);
      REQUIRE(difference(own.at(0).log, engine.at(0).log) == "");
      REQUIRE(difference(own.at(1).log, engine.at(1).log) == "");
    }
  };
  check("full", small::full), check("window", small::window), check("by_layer", small::by_layer);
  check("sentence_kv", small::sentence_kv);
}

/// One text, passed by an engine that attends, or stores, by itself, or hands over 16 bits.
template <class T>
class engine_run {
 public:
  template <class Policy>
  engine_run(const Policy& policy, const tape& says, const engine_layout& lies, const zoomr::executor& on = {})
      : says_(says),
        engine_(model, policy, with_voters(policy, lent(limits_for(says.size()), on), model), lies),
        seq_(engine_.open()) {}

  bool attends_by_itself = false;
  bool stores_by_itself = false;

  /// What all tokens got.  [tokens, layers, heads, head_dim]
  /// @tparam Number  of the keys and values that are handed over
  template <class Number>
  std::vector<float> play() {
    std::vector<float> all;
    for (index_t now = 0; now < says_.size(); now = engine_.tokens(seq_)) {
      const index_t end = now < says_.prompt ? std::min(says_.prompt, now + 17) : now + 3;
      const std::vector<token_id> ids = says_.between(now, end);
      const zoomr::step_item item{seq_, view<const token_id>(ids), end == says_.prompt};
      auto step = engine_.begin(view<const zoomr::step_item>(&item, {1}));
      pass<Number>(step, 0);
      if (step.needs_second_pass(step.taken(0))) pass<Number>(step, 1);
      all.insert(all.end(), out_.begin(), out_.end());
      step.commit();
    }
    return all;
  }
  paged_engine<T>& engine() { return engine_; }

 private:
  static zoomr::config lent(zoomr::config limits, const zoomr::executor& on) {
    limits.threads = on;
    return limits;
  }

  template <class Number>
  void pass(typename paged_engine<T>::step_type& step, index_t number) {
    const index_t tokens = step.tokens(), first = step.position(0);
    const auto size = [&](index_t heads) { return static_cast<std::size_t>(tokens * heads * model.head_dim); };
    out_.assign(size(model.heads) * model.layers, 0.0f);
    std::vector<float> queries(size(model.heads)), row(std::size_t{model.head_dim});
    // Each head has all of its tokens side by side, and a gap behind each row.
    const std::int64_t stride = model.head_dim + 3;
    std::vector<Number> keys(static_cast<std::size_t>(tokens * model.kv_heads * stride)), values(keys.size());
    const auto strided = [&](std::vector<Number>& of) {
      return view<Number, 3>(of.data(), {tokens, model.kv_heads, model.head_dim}, {stride, tokens * stride, 1});
    };
    const view<float, 3> q(queries.data(), {tokens, model.heads, model.head_dim});
    for (index_t layer = 0; layer < model.layers; ++layer) {
      const view<float, 3> out(out_.data() + static_cast<std::size_t>(layer) * size(model.heads),
                               {tokens, model.heads, model.head_dim});
      for (index_t t = 0; t < tokens; ++t) {
        const index_t position = first + t;
        const token_id id = says_.ids[static_cast<std::size_t>(position)];
        for (index_t head = 0; head < model.heads; ++head)
          says_.numbers.fill(role::query, id, position, layer, head, number, &q(t, head, 0));
        for (index_t head = 0; head < model.kv_heads; ++head) {
          for (const role of : {role::key, role::value}) {
            says_.numbers.fill(of, id, position, layer, head, number, row.data());
            for (index_t d = 0; d < model.head_dim; ++d)
              strided(of == role::key ? keys : values)(t, head, d) =
                  zoomr::from_float<Number>(row[static_cast<std::size_t>(d)]);
          }
        }
      }
      const view<const Number, 3> k = strided(keys), v = strided(values);
      if (stores_by_itself) {
        store(step, layer, k, v);
        step.append(layer);
      } else {
        step.append(layer, k, v);
      }
      if (attends_by_itself) {
        step.list_slots(layer, q, [&](const zoomr::slots_read& reads) { attend(layer, q, reads, out); });
      } else {
        step.attend(layer, q, out);
      }
    }
  }

  // Straight into the engine's pages, past the cache.
  template <class Number>
  void store(typename paged_engine<T>::step_type& step, index_t layer, view<const Number, 3> keys,
             view<const Number, 3> values) {
    for (index_t head = 0; head < model.kv_heads; ++head) {
      const auto lane = engine_.writable_kv_lane(seq_, layer, head);
      for (index_t t = 0; t < step.tokens(); ++t) {
        for (index_t d = 0; d < model.head_dim; ++d) {
          lane.key(step.slot(0) + t)[d] = zoomr::from_float<T>(zoomr::to_float(keys(t, head, d)));
          lane.value(step.slot(0) + t)[d] = zoomr::from_float<T>(zoomr::to_float(values(t, head, d)));
        }
      }
    }
  }

  // An attention kernel of the engine's own, over what the cache has listed.
  void attend(index_t layer, view<const float, 3> queries, const zoomr::slots_read& reads, view<float, 3> out) {
    const auto lane = engine_.cache().kv_lane(seq_, layer, reads.kv_head);
    std::vector<index_t> slots;
    for (const zoomr::token_range& r : reads.slots) {
      for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
    }
    for (index_t head = reads.heads.first; head < reads.heads.last; ++head) {
      const float* const query = &queries(reads.token, head, 0);
      const auto exact = naive_attention(
          static_cast<index_t>(slots.size()), model.head_dim,
          [&](index_t i) {
            return naive_dot(model.head_dim, query, lane.key(slots[static_cast<std::size_t>(i)])) /
                   std::sqrt(static_cast<double>(model.head_dim));
          },
          [&](index_t i) { return lane.value(slots[static_cast<std::size_t>(i)]); });
      for (index_t d = 0; d < model.head_dim; ++d)
        out(reads.token, head, d) = static_cast<float>(exact.out[static_cast<std::size_t>(d)]);
    }
  }

  const tape& says_;
  paged_engine<T> engine_;
  zoomr::sequence seq_;
  std::vector<float> out_;
};

TEST_CASE("threads that share the KV heads of a page change no bit") {
  zoomr::thread_pool pool(3);
  for_each_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using run = engine_run<float>;
    const tape says = make_tape(model, kind::uniform, markup::pairs, 100, 45, 8);
    const std::vector<float> expected = run(policy, says, layouts[1]).template play<float>();
    for (const index_t threads : {1, 2, 3}) {
      for (const std::size_t which : {0, 2}) {
        run shared(policy, says, layouts[which], zoomr::executor(pool, threads, 1));
        REQUIRE(bits_of{shared.template play<float>()} == bits_of{expected});
      }
    }
  });
}

/// What the sequence of an engine has cost: choices and slots.
template <class Run>
std::array<std::int64_t, 4> engine_stats(Run& of) {
  const zoomr::statistics& stats = of.engine().cache().stats({0, 0});
  return {stats.attended, stats.refreshes, stats.chosen, stats.passes};
}

TEST_CASE("an engine that stores keys and values itself, or attends itself to what is listed, gets the same") {
  for_each_policy([](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    using run = engine_run<float>;
    const tape says = make_tape(model, kind::uniform, markup::pairs, 120, 45, 6);
    const std::vector<float> expected = run(policy, says, layouts[0]).template play<float>();
    run stores(policy, says, layouts[1]);
    stores.stores_by_itself = true;
    REQUIRE(bits_of{stores.template play<float>()} == bits_of{expected});
    run attends(policy, says, layouts[2]);
    attends.stores_by_itself = attends.attends_by_itself = true;
    const std::vector<float> made = attends.template play<float>();
    REQUIRE(made.size() == expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < made.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(made[i]) - static_cast<double>(expected[i])));
    CHECK(worst <= tolerance::end_to_end(model.head_dim, std::sqrt(model.head_dim), says.size()));
    CHECK(engine_stats(attends) == engine_stats(stores));  // what was chosen is counted the same way
  });
}

TEST_CASE("keys and values come in 16 bits, with any strides, as their floats would") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 90, 30, 9);
  const auto check = [&](auto number) {
    using Number = decltype(number);
    using run = engine_run<Number>;
    const std::vector<float> expected =
        run(small::quest, says, layouts[0]).template play<float>();  // rounded when stored
    CHECK(bits_of{run(small::quest, says, layouts[0]).template play<Number>()} == bits_of{expected});
    CHECK(bits_of{run(small::quest, says, layouts[3]).template play<Number>()} == bits_of{expected});
  };
  check(bfloat16{}), check(float16{});
}

/// What a text gets from its middle on, in a cache that has loaded it there.
template <class Player>
result_log goes_on(Player& plays, const tape& says, const saved_bytes& bytes) {
  memory_source source(bytes);
  plays.voices.push_back({plays.cache.load(source), &says, {}});
  plays.play_plainly(0);
  return plays.at(0).log;
}

TEST_CASE("a sequence is saved from an engine's pages, and loaded into them, or the cache's own") {
  const auto check = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = make_tape(model, kind::uniform, markup::pairs, 130, 45, 12);
    for (const index_t until : {30, 45, 90}) {
      CAPTURE(until);
      player<std::decay_t<decltype(policy)>> own(model, policy, limits_for(130));
      engine_player<float> engine(model, policy, limits_for(130), layouts[3]);
      const auto play = [&](auto& plays) {
        plays.open(says);
        if (until < 45) plays.play({{0, says.between(0, until), false}});
        if (until >= 45) plays.play_plainly(0, until);
        memory_sink sink;
        plays.cache.save(plays.at(0).seq, sink);
        plays.at(0).log.clear();
        plays.play_plainly(0);
        return sink.bytes;
      };
      const saved_bytes of_own = play(own), of_engine = play(engine);
      REQUIRE(difference(own.at(0).log, engine.at(0).log) == "");
      engine_player<float> other(model, policy, limits_for(130), layouts[4]),
          same(model, policy, limits_for(130), layouts[0]);
      player<std::decay_t<decltype(policy)>> resident(model, policy, limits_for(130));
      CHECK(difference(goes_on(other, says, of_own), own.at(0).log) == "");
      CHECK(difference(goes_on(same, says, of_engine), own.at(0).log) == "");
      CHECK(difference(goes_on(resident, says, of_engine), own.at(0).log) == "");
    }
  };
  check("full", small::full), check("sentence_kv", small::sentence_kv), check("zoomr_mass", small::zoomr_mass);
  check("quest", small::quest), check("h2o", small::h2o);
}

TEST_CASE("what lies behind an erased span moves up in an engine's pages too") {
  const tape says = make_tape(model, kind::uniform, markup::pairs, 150, 45, 3);
  const zoomr::token_range span{30, 67};
  const tape left = says.without(span);
  const std::vector<float> frequencies = {1.0f, 0.1f, 0.01f};
  const zoomr::key_rotation turn(view<const float>(frequencies), -span.size());
  const auto play = [&](auto& plays) {
    plays.open(says);
    plays.play_plainly(0, 100);
    plays.cache.erase(plays.at(0).seq, span, turn);
    plays.at(0).says = &left;
    plays.play_plainly(0);
    return plays.at(0).log;
  };
  player<std::decay_t<decltype(small::quest)>> own(model, small::quest, limits_for(150));
  const result_log expected = play(own);
  for (const engine_layout& lies : layouts) {
    CAPTURE(lies.name());
    engine_player<float> engine(model, small::quest, limits_for(150), lies);
    CHECK(difference(play(engine), expected) == "");
  }
}

TEST_CASE("details take no bytes of the cache, and none is copied") {
  const auto moved = with_placement(small::quest, zoomr::engine_pages{});
  using cache_type = zoomr::kv_cache<std::remove_const_t<decltype(moved)>>;
  zoomr::config limits = limits_for(300, 2);
  engine_pool_memory<float> held(model, 40, layouts[0]);
  limits.engine = held.memory;
  const zoomr::memory_use use = cache_type::bytes(model, moved, limits);
  const zoomr::memory_use own =
      zoomr::kv_cache<std::decay_t<decltype(small::quest)>>::bytes(model, small::quest, limits);
  CHECK(use.details == 0);
  CHECK(own.details == 2 * zoomr::pages_for(300) * zoomr::page_pool<float>::page_bytes(model));
  CHECK(use.metadata <= own.metadata);
  CHECK(use.workspace == own.workspace);
  paged_engine<float> engine(model, small::quest, limits, layouts[5]);
  const zoomr::sequence seq = engine.open();
  const std::vector<token_id> ids(50, 9);
  const zoomr::step_item item{seq, view<const token_id>(ids), false};
  {
    auto step = engine.begin(view<const zoomr::step_item>(&item, {1}));
    const std::vector<float> rows(static_cast<std::size_t>(50 * model.heads * model.head_dim), 0.5f);
    const view<const float, 3> few(rows.data(), {50, model.kv_heads, model.head_dim});
    for (index_t layer = 0; layer < model.layers; ++layer) {
      step.append(layer, few, few);
      step.observe(layer, {rows.data(), {50, model.heads, model.head_dim}});
    }
    step.commit();
  }
  CHECK(engine.cache().bytes(seq).details == 2 * model.kv_lanes() * 2 * 48 * model.head_dim * 4);  // two pages of 48
  // What lies there is what was handed over, in place.
  CHECK(engine.cache().kv_lane(seq, 1, 1).key(49) == engine.writable_kv_lane(seq, 1, 1).key(49));
  CHECK(engine.cache().kv_lane(seq, 1, 1).value(49)[3] == 0.5f);
  CHECK(engine.cache().slots(seq) == 50);
  CHECK(engine.cache().slots_of(seq, 0, 0).position_of(17) == 17);
}

TEST_CASE("moved slots are those that an eviction writes, and no others") {
  const auto check = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    paged_engine<float> engine(model, policy, limits_for(160), layouts[0]);
    tape says = make_tape(model, kind::uniform, markup::pairs, 160, 70, 4);
    says.later_prompts = {{95, 130}, {140, 147}};
    const zoomr::sequence seq = engine.open();
    index_t moves = 0;
    for (index_t now = 0; now < says.size(); now = engine.tokens(seq)) {
      const part next = part_of(says, 0, now, now < 70 ? 70 : says.in_prompt(now) ? 20 : 1);
      const std::vector<token_id>& ids = next.ids;
      const zoomr::step_item item{seq, view<const token_id>(ids), next.prompt_ends, {}, next.prompt_begins};
      auto step = engine.begin(view<const zoomr::step_item>(&item, {1}));
      const index_t count = step.tokens();
      std::vector<float> rows(static_cast<std::size_t>(count * model.heads * model.head_dim)), out(rows.size());
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const auto fill = [&](role of, index_t heads) {
          for (index_t row = 0; row < count * heads; ++row) {
            says.numbers.fill(of, ids[static_cast<std::size_t>(row / heads)], now + row / heads, layer, row % heads, 0,
                              &rows[static_cast<std::size_t>(row * model.head_dim)]);
          }
          return view<const float, 3>(rows.data(), {count, heads, model.head_dim});
        };
        const auto keys = fill(role::key, model.kv_heads);
        step.append(layer, keys, keys);
        const auto queries = fill(role::query, model.heads);
        step.attend(layer, queries, {out.data(), {count, model.heads, model.head_dim}});
      }
      if (step.needs_second_pass(count)) return;
      const zoomr::token_range moved = step.moved_slots(0);
      const index_t held = step.slot(0) + count;
      const auto lane = engine.writable_kv_lane(seq, 1, 1);
      std::vector<float> before;
      for (index_t slot = 0; slot < held; ++slot) before.push_back(lane.key(slot)[0]);
      step.commit();
      moves += moved.size() > 0 ? 1 : 0;
      for (index_t slot = 0; slot < engine.cache().slots(seq); ++slot) {
        if (slot >= moved.first && slot < moved.last) continue;
        REQUIRE(lane.key(slot)[0] == before[static_cast<std::size_t>(slot)]);
      }
      CHECK((moved.size() > 0) == (engine.cache().slots(seq) < held));
    }
    CHECK((moves > 0) == decltype(std::decay_t<decltype(policy)>::evict)::observes);
  };
  check("full", small::full), check("snapkv", small::snapkv), check("h2o", small::h2o), check("r_kv", small::r_kv);
  check("pinned_prompt", small::pinned_prompt), check("sentence_kv", small::sentence_kv);
}

TEST_CASE("block tables that cannot be are refused, and nothing has changed") {
  const auto policy = with_placement(small::full, zoomr::engine_pages{});
  engine_pool_memory<float> held(model, 4, layouts[0]);
  zoomr::config limits = limits_for(64, 2);
  limits.engine = held.memory;
  zoomr::kv_cache<std::remove_const_t<decltype(policy)>> cache(model, policy, limits);
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids(20, 9);
  const auto refused = [&](std::vector<index_t> pages, std::string_view why) {
    CAPTURE(std::string(why));
    const zoomr::step_item item{seq, view<const token_id>(ids), false, view<const index_t>(pages)};
    try {
      static_cast<void>(cache.begin(view<const zoomr::step_item>(&item, {1})));
      FAIL("this is not refused");
    } catch (const zoomr::precondition_error& mistake) {
      CHECK(std::string_view(mistake.what()).find(why) != std::string_view::npos);
    }
    CHECK(cache.tokens(seq) == 0);
    CHECK(cache.bytes(seq).details == 0);
  };
  refused({}, "the block table of item 0 has 0 pages, its tokens need 2 of 16 tokens: set step_item::pages");
  refused({1}, "the block table of item 0 has 1 pages, its tokens need 2 of 16 tokens");
  refused({1, -1}, "has page -1, config.engine.pages is 4");
  refused({4, 1}, "has page 4, config.engine.pages is 4");
  {
    player<std::decay_t<decltype(small::full)>> own(model, small::full, limits_for(64));
    const tape says = make_tape(model, kind::uniform, markup::sentences, 40, 33, 2);
    own.open(says);
    own.play_plainly(0, 33);
    const saved_bytes bytes = saved(own.cache, own.at(0).seq);
    const std::vector<index_t> two{0, 1}, wrong{0, 1, 4};
    memory_source source(bytes), again(bytes);
    CHECK_THROWS_WITH_AS(cache.load(source, view<const index_t>(two)),
                         "zoomr: load: the block table has 2 pages, its tokens need 3 of 16 tokens", zoomr::error);
    CHECK_THROWS_WITH_AS(cache.load(again, view<const index_t>(wrong)),
                         "zoomr: load: the block table has page 4, config.engine.pages is 4",
                         zoomr::precondition_error);
    CHECK(cache.bytes(seq).details == 0);
  }
  const std::vector<index_t> two{3, 0, 99};  // what comes behind is not looked at
  const zoomr::step_item item{seq, view<const token_id>(ids), false, view<const index_t>(two)};
  { auto step = cache.begin(view<const zoomr::step_item>(&item, {1})); }
  CHECK(cache.bytes(seq).details == 0);
}

TEST_CASE("a block table is refused where pages are the cache's own") {
  zoomr::kv_cache cache(model, small::full, limits_for(64));
  const zoomr::sequence seq = cache.open();
  const std::vector<index_t> pages{0, 1};
  const std::vector<token_id> ids(20, 9);
  const zoomr::step_item item{seq, view<const token_id>(ids), false, view<const index_t>(pages)};
  CHECK_THROWS_AS(static_cast<void>(cache.begin(view<const zoomr::step_item>(&item, {1}))), zoomr::precondition_error);
  CHECK(cache.bytes(seq).details == 0);
  const saved_bytes bytes = saved(cache, seq);
  memory_source source(bytes);
  CHECK_THROWS_AS(cache.load(source, view<const index_t>(pages)), zoomr::precondition_error);
  CHECK(source.left == bytes.size());
}

TEST_CASE("memory that cannot be is refused with its reason") {
  const auto policy = with_placement(small::full, zoomr::engine_pages{});
  using cache_type = zoomr::kv_cache<std::remove_const_t<decltype(policy)>>;
  engine_pool_memory<float> held(model, 4, layouts[0]);
  const auto refused = [&](auto change, std::string_view why) {
    CAPTURE(std::string(why));
    zoomr::config limits = limits_for(64);
    limits.engine = held.memory;
    change(limits.engine);
    for (const bool only_bytes : {true, false}) {
      try {
        only_bytes ? static_cast<void>(cache_type::bytes(model, policy, limits))
                   : static_cast<void>(cache_type(model, policy, limits));
        FAIL("this is not refused");
      } catch (const zoomr::precondition_error& mistake) {
        CHECK(std::string_view(mistake.what()).find(why) != std::string_view::npos);
      }
    }
  };
  using memory = zoomr::engine_memory;
  std::vector<float> numbers(8);
  const std::array<void*, 2> odd{numbers.data(), reinterpret_cast<char*>(numbers.data()) + 1};
  const std::array<void*, 2> none{numbers.data(), nullptr};
  refused([](memory& of) { of = {}; }, "a pointer for each layer");
  refused([](memory& of) { of.keys = of.keys.slice(0, 1); }, "a pointer for each layer");
  refused([](memory& of) { of.pages = 0; }, "at least 1");
  refused([](memory& of) { of.page_tokens = 0; }, "at least 1");
  refused([](memory& of) { of.token_stride = model.head_dim - 1; }, "token_stride at least head_dim");
  refused([](memory& of) { of.page_stride = 0; }, "strides must be positive");
  refused([&](memory& of) { of.values = view<void* const>(none); }, "is null");
  refused([&](memory& of) { of.values = view<void* const>(odd); }, "whole numbers of the storage type");
}

}  // namespace
}  // namespace zoomr_test
