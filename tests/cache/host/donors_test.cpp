// SPDX-License-Identifier: Apache-2.0
// Layers that share keys: a cache in which some layers attend what an earlier one stores gives what one gives in which
// they store copies, bit for bit, and what the naive reference gives; and holds the bytes of those that store.
#include <cache/support/against_reference.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <support/paged_engine.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <string>   // std::string
#include <utility>  // std::move
#include <vector>   // std::vector

namespace zoomr_test {
namespace {

constexpr shape model{5, 4, 2, 8};

/// Layers that share keys, in any way, or as models have it: the last ones with the last two that store.
std::vector<index_t> drawn_donors(const shape& of, std::uint64_t seed) {
  dice random(mixed(seed + 11));
  std::vector<index_t> donors, stored;
  for (index_t layer = 0; layer < of.layers; ++layer) {
    const bool stores = layer == 0 || (seed % 4 == 0 ? layer < 3 : random.chance(40));
    if (stores) stored.push_back(layer);
    const auto last = static_cast<index_t>(stored.size()) - 1;
    const index_t any = seed % 4 == 0 ? last - layer % 2 : random.between(0, last);
    donors.push_back(stores ? layer : stored[static_cast<std::size_t>(any)]);
  }
  return donors;
}

/// A text in which these layers have the keys and values of their donors; and, where tokens are evicted by queries, the
/// queries: a copy evicts by those of its own layer.
template <class Policy>
tape shared(const Policy&, tape says, const std::vector<index_t>& donors) {
  says.numbers.donors = donors;
  says.numbers.donors_queries = decltype(Policy::evict)::observes;
  return says;
}
zoomr::config sharing(zoomr::config limits, const std::vector<index_t>& donors) {
  limits.donors = view<const index_t>(donors);
  return limits;
}

/// Two caches of one policy: one shares, the other has copies.
template <class Policy, class T = float>
struct pair_of_players {
  player<Policy, T> shares, copies;

  pair_of_players(const Policy& policy, const zoomr::config& limits, const std::vector<index_t>& donors)
      : shares(model, policy, sharing(limits, donors)), copies(model, policy, limits) {}
  template <class Work>
  void both(Work work) {
    work(shares), work(copies);
  }
  void check() {
    REQUIRE(difference(copies.at(0).log, shares.at(0).log) == "");
    const auto &one = shares.cache.stats(shares.at(0).seq), &other = copies.cache.stats(copies.at(0).seq);
    CHECK(one.attended == other.attended);
    CHECK(one.chosen == other.chosen);
    CHECK(one.refreshes == other.refreshes);
    CHECK(one.captured_sum == other.captured_sum);
    for (index_t row = 0; row < shares.cache.selection_rows(); ++row) {
      const auto &of_one = shares.cache.selected(shares.at(0).seq, row),
                 &of_other = copies.cache.selected(copies.at(0).seq, row);
      CHECK(std::equal(of_one.levels.begin(), of_one.levels.end(), of_other.levels.begin(), of_other.levels.end()));
    }
  }
};

TEST_CASE("layers that share keys give the bits of layers that store copies") {
  index_t policies = 0;
  for_each_policy([&](const char* name, const auto& policy) {
    ++policies;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const std::vector<index_t> donors = drawn_donors(model, seed);
      tape says = shared(policy, conversation(model, seed), donors);
      if (frees_pages(policy)) says.later_prompts.clear();
      if (seed % 3 == 0) says = with_whole_items(policy, says, seed);
      zoomr::config limits = limits_for_whole(says);
      limits.audit = seed == 2;
      pair_of_players plays(policy, limits, donors);
      plays.both([&](auto& one) { one.open(says), one.play_plainly(); });
      plays.check();
    }
  });
  CHECK(policies > 10);
}

TEST_CASE("the same in 16 bits, and where a layer has scales of its own") {
  const std::vector<index_t> donors{0, 1, 0, 3, 1};
  const tape says = shared(small::by_mass, conversation(model, 5), donors);
  const std::vector<float> scales{1, 1, 2, 2, 1, 1, 8, 8, 2, 2};  // softmaxes of scores depend on them
  zoomr::config limits = limits_for(says.size());
  limits.key_scale = view<const float, 2>(scales.data(), {5, 2});
  limits.value_scale = limits.key_scale;
  pair_of_players<std::decay_t<decltype(small::by_mass)>, bfloat16> plays(small::by_mass, limits, donors);
  plays.both([&](auto& one) { one.open(says), one.play_plainly(); });
  plays.check();
}

TEST_CASE("layers that share keys attend and choose as the naive reference does") {
  for_each_policy([&](const char* name, const auto& policy) {
    comparison all;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const std::vector<index_t> donors = drawn_donors(model, seed);
      tape says = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      says.numbers.donors = donors;
      if (frees_pages(policy)) says.later_prompts.clear();
      check_against_reference(policy, says, sharing(limits_for(says.size()), donors), false, all);
    }
    check_rarely_stopped(name, all);
  });
}

TEST_CASE("drafts, dropped steps, rollbacks, forks, saving and loading give the same bits under donors") {
  for_each_policy([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    happened all;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const std::vector<index_t> donors = drawn_donors(model, seed);
      const auto limits_of = [&](const tape& says, index_t sequences) {
        return sharing(limits_for_whole(says, sequences), donors);
      };
      tape says = conversation(model, seed);
      says.numbers.donors = donors;
      if (seed % 2 == 0) says = with_whole_items(policy, says, seed);
      check_lives(policy, limits_of, says, seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
  });
}

TEST_CASE("spans are erased and shifted alike, and keys turned in the layers that store") {
  for_each_policy([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const std::vector<index_t> donors = drawn_donors(model, seed);
      const tape says = shared(policy, conversation(model, seed), donors);
      const zoomr::token_range span{static_cast<index_t>(10 + seed * 5), static_cast<index_t>(17 + seed * 9)};
      const tape left = says.without(span);
      pair_of_players plays(policy, limits_for(says.size() + 40), donors);
      std::vector<std::string> refusals;
      plays.both([&](auto& one) {
        one.open(says), one.play_plainly(0, 90);
        std::vector<index_t> turned, stored;
        for (index_t layer = 0; layer < model.layers; ++layer) {
          if (one.donors.empty() || one.donors[static_cast<std::size_t>(layer)] == layer) stored.push_back(layer);
        }
        const auto turn = [&](index_t layer, view<float> key) {
          if (turned.empty() || turned.back() != layer) turned.push_back(layer);
          quarter_turn(-span.size())(layer, key);
        };
        refusals.push_back(sentence_of([&] { one.cache.erase(one.at(0).seq, span, turn); }));
        if (refusals.back().empty()) {
          CHECK(turned == stored);
          one.at(0).says = &left;
          const index_t tokens = one.tokens(0);
          one.cache.shift(one.at(0).seq, {tokens - 20, tokens}, 3, quarter_turn(3));
        }
        one.play_plainly();
      });
      CHECK(refusals[0] == refusals[1]);
      plays.check();
    }
  });
}

TEST_CASE("over tiers, and in an engine's pages that only layers have that store, the same is read") {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    const std::vector<index_t> donors = drawn_donors(model, seed);
    tape says = make_tape(model, kind::peaked, markup::sentences, 170, 70, seed);
    says.numbers.donors = donors;
    const zoomr::config limits = sharing(limits_for(says.size()), donors);
    const auto check = [&](const auto& policy) {
      player<std::decay_t<decltype(policy)>> resident(model, policy, limits);
      resident.open(says), resident.play_plainly();
      const auto moved = with_placement(policy, zoomr::tiered<>{});
      player<std::remove_const_t<decltype(moved)>> tiers(model, moved, tiered_limits<float>(model, moved, limits, 12));
      tiers.open(says), tiers.play_plainly();
      CHECK(difference(resident.at(0).log, tiers.at(0).log) == "");
      CHECK(tiers.cache.tiers().misses > 0);
      paged_engine<float> engine(model, policy, limits, {.page_tokens = 16});
      driver<paged_engine<float>> in_pages(engine);
      in_pages.donors = donors;
      in_pages.open(says), in_pages.play_plainly();
      CHECK(difference(resident.at(0).log, in_pages.at(0).log) == "");
    };
    check(small::by_layer), check(small::by_kv_head), check(small::snapkv), check(small::zoomr_second_pass);
  }
}

TEST_CASE("bytes are those of the layers that store") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 170, 70, 3);
  const std::vector<index_t> donors{0, 1, 0, 1, 1};
  for_each_policy([&](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    pair_of_players plays(policy, limits_for(says.size()), donors);
    tape shares = says;
    shares.numbers.donors = donors;
    plays.both([&](auto& one) { one.open(shares), one.play_plainly(); });
    const auto held = plays.shares.cache.bytes(plays.shares.at(0).seq);
    const auto of_copies = plays.copies.cache.bytes(plays.copies.at(0).seq);
    CHECK(held.details > 0);
    CHECK(held.details * 5 == of_copies.details * 2);
    CHECK(held.summaries * 5 == of_copies.summaries * 2);
    CHECK(held.metadata <= of_copies.metadata);
    const auto most = plays.shares.cache.capacity(), most_of_copies = plays.copies.cache.capacity();
    CHECK(most.details * 5 == most_of_copies.details * 2);
    CHECK(most.summaries * 5 == most_of_copies.summaries * 2);
    CHECK(most.total() < most_of_copies.total());
    const zoomr::config limits = sharing(limits_for(says.size()), donors);
    CHECK(most.total() ==
          zoomr::kv_cache<std::decay_t<decltype(policy)>>::bytes(model, policy, with_voters(policy, limits, model))
              .total());
  });
}

TEST_CASE("groups have donors of their own, among their layers") {
  // Sliding-window layers 0, 1, 3, 4 and full ones 2, 5 of a model whose last three layers share keys.
  const std::vector<index_t> of_window{0, 1, 1, 1}, of_full{0, 0}, group_of{0, 0, 1, 0, 0, 1};
  const shape window{4, 4, 2, 8}, full{2, 4, 1, 16};
  const auto made = [&](bool shares) {
    zoomr::config limits = limits_for(120);
    std::vector<zoomr::any_kv_cache<>> groups;
    if (shares) limits.donors = view<const index_t>(of_full);
    const zoomr::config full_limits = limits;
    if (shares) limits.donors = view<const index_t>(of_window);
    limits.logits.window = 24;
    groups.push_back(zoomr::kv_cache(window, small::full, limits));
    groups.push_back(zoomr::kv_cache(full, small::by_kv_head, full_limits));
    return zoomr::grouped_kv_cache<>(std::move(groups), group_of);
  };
  auto shares = made(true), copies = made(false);
  const auto play = [&](auto& cache, bool appends_all) {
    std::vector<float> outputs;
    const zoomr::sequence seq = cache.open();
    const std::vector<index_t> donor_of{0, 1, 2, 1, 1, 2};
    for (index_t now = 0; now < 100;) {
      const index_t count = now < 40 ? 40 : 1;
      const std::vector<token_id> ids = text_of(markup::sentences, 100, 40, 7);
      auto step = cache.begin(seq, view<const token_id>(ids).slice(now, now + count), now < 40);
      REQUIRE(step.tokens() == count);
      for (index_t layer = 0; layer < 6; ++layer) {
        const shape& of = group_of[static_cast<std::size_t>(layer)] == 0 ? window : full;
        const tensors numbers{of, kind::uniform, 3};
        const index_t donor = donor_of[static_cast<std::size_t>(layer)];
        const auto rows = [&](role what, index_t from, index_t heads) {
          std::vector<float> all(static_cast<std::size_t>(count * heads * of.head_dim));
          for (index_t t = 0; t < count; ++t) {
            for (index_t head = 0; head < heads; ++head)
              numbers.fill(what, 9, now + t, from, head, 0, all.data() + (t * heads + head) * of.head_dim);
          }
          return all;
        };
        const std::vector<float> keys = rows(role::key, donor, of.kv_heads),
                                 values = rows(role::value, donor, of.kv_heads);
        const std::vector<float> queries = rows(role::query, layer, of.heads);
        const zoomr::extents<3> stored{{count, of.kv_heads, of.head_dim}}, asked{{count, of.heads, of.head_dim}};
        if (appends_all || donor == layer) {
          step.append(layer, view<const float, 3>(keys.data(), stored), view<const float, 3>(values.data(), stored));
        } else if (now == 0) {
          const index_t own = layer == 3 ? 2 : layer == 4 ? 3 : 1;
          CHECK(sentence_of([&] {
                  step.append(layer, view<const float, 3>(keys.data(), stored),
                              view<const float, 3>(values.data(), stored));
                }) == "zoomr: layer " + std::to_string(layer) + ", which is layer " + std::to_string(own) +
                          " of group " + (layer == 5 ? "1" : "0") + ": append: layer " + std::to_string(own) +
                          " has no keys of its own: by config.donors it attends those of layer " +
                          (layer == 5 ? "0" : "1"));
        }
        outputs.resize(outputs.size() + queries.size());
        step.attend(layer, view<const float, 3>(queries.data(), asked),
                    view<float, 3>(outputs.data() + outputs.size() - queries.size(), asked));
      }
      step.commit();
      now += count;
    }
    return std::pair(bits_of{outputs}, cache.bytes(seq).details);
  };
  const auto of_shares = play(shares, false), of_copies = play(copies, true);
  CHECK(of_shares.first == of_copies.first);
  CHECK(of_shares.second * 2 == of_copies.second);
}

TEST_CASE("what cannot be is refused with a sentence") {
  const shape three{3, 4, 2, 8};
  const auto refusal = [&](std::vector<index_t> donors, auto change) {
    zoomr::config limits = sharing(limits_for(100), donors);
    change(limits);
    return sentence_of([&] { zoomr::kv_cache cache(three, small::by_kv_head, limits); });
  };
  const auto as_it_is = [](zoomr::config&) {};
  const std::string keys = " must have keys of its own, or attend those of an earlier layer that has some";
  CHECK(refusal({0, 0, 2}, as_it_is) == "");
  CHECK(refusal({0, 1, 2}, as_it_is) == "");
  CHECK(refusal({0, 0}, as_it_is) == "zoomr: config: donors are [2], wanted [3]");
  CHECK(refusal({0, 2, 2}, as_it_is) == "zoomr: config: donors: layer 1" + keys);
  CHECK(refusal({0, 0, 1}, as_it_is) == "zoomr: config: donors: layer 2" + keys);
  CHECK(refusal({0, -1, 2}, as_it_is) == "zoomr: config: donors: layer 1" + keys);
  const std::vector<index_t> anchors{0, 0, 2};
  CHECK(refusal({0, 0, 2}, [&](zoomr::config& limits) { limits.anchors.layers = view<const index_t>(anchors); }) ==
        "zoomr: config: donors and anchors: layers that share keys choose for themselves");
  const std::vector<float> scales{1, 1, 1, 2, 1, 1};
  CHECK(refusal({0, 0, 2}, [&](zoomr::config& limits) {
          limits.value_scale = view<const float, 2>(scales.data(), {3, 2});
        }) == "zoomr: config: donors: layer 1 must have the scales of layer 0, whose keys and values it attends");

  const tape says = make_tape(three, kind::uniform, markup::sentences, 90, 70, 3);
  const std::vector<index_t> donors{0, 0, 2};
  player<std::decay_t<decltype(small::by_kv_head)>> plays(three, small::by_kv_head,
                                                          sharing(limits_for(says.size()), donors));
  plays.layers_backwards = true;
  plays.open(says);
  CHECK(sentence_of([&] { plays.play_plainly(); }) ==
        "zoomr: attend: layer 1 attends the keys of layer 0: attend or observe that one before, in the same pass");
  plays.layers_backwards = false;
  plays.donors.clear();
  CHECK(sentence_of([&] { plays.play_plainly(); }) ==
        "zoomr: append: layer 1 has no keys of its own: by config.donors it attends those of layer 0");
  plays.donors = donors;
  plays.play_plainly();

  memory_sink saved;
  plays.cache.save(plays.at(0).seq, saved);
  const auto loaded = [&](const saved_bytes& bytes, const std::vector<index_t>& here) {
    zoomr::kv_cache cache(three, small::by_kv_head, sharing(limits_for(says.size()), here));
    memory_source from(bytes);
    return sentence_of([&] { static_cast<void>(cache.load(from)); });
  };
  const std::string other = "zoomr: load: other layers of its model share keys than this cache's config.donors says";
  CHECK(loaded(saved.bytes, {0, 0, 2}) == "");
  CHECK(loaded(saved.bytes, {0, 1, 1}) == other);
  CHECK(loaded(saved.bytes, {}) == other);
  player<std::decay_t<decltype(small::by_kv_head)>> alone(three, small::by_kv_head, limits_for(says.size()));
  alone.open(says), alone.play_plainly();
  memory_sink own;
  alone.cache.save(alone.at(0).seq, own);
  CHECK(loaded(own.bytes, {0, 0, 2}) == other);
  CHECK(loaded(own.bytes, {0, 1, 2}) == "");
}

TEST_CASE("keys of voters that are kept beside the pages are refused") {
  const std::vector<index_t> donors{0, 0, 2};
  zoomr::config limits = sharing(limits_for(100), donors);
  limits.voter_keys = zoomr::voter_storage::q8_0;
  const std::string why = sentence_of([&] {
    player<std::decay_t<decltype(small::sentence_voters)>> plays({3, 4, 2, 32}, small::sentence_voters, limits);
  });
  CHECK(why ==
        "zoomr: config: donors do not go with keys of voters that are kept beside the pages: over tiers, or as q8_0");
}

}  // namespace
}  // namespace zoomr_test
