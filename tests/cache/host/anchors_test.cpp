// SPDX-License-Identifier: Apache-2.0
// Layers that read what an earlier layer has chosen: against the naive reference, in random lives, and what they save.
#include <cache/support/against_reference.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>

#include <string>  // std::string
#include <vector>  // std::vector

namespace zoomr_test {
namespace {

constexpr shape model{5, 4, 2, 8};

/// Tables that some layers and KV heads read by.
struct drawn_anchors {
  std::vector<index_t> layers, kv_heads;

  /// @param dense  layers that choose nothing
  drawn_anchors(const shape& of, index_t dense, std::uint64_t seed) {
    dice random(mixed(seed));
    std::vector<index_t> chosen;
    for (index_t layer = 0; layer < of.layers; ++layer) {
      const bool own = layer < dense || chosen.empty() || random.chance(30);
      if (own && layer >= dense) chosen.push_back(layer);
      layers.push_back(own ? layer : chosen[static_cast<std::size_t>(random.between(0, size_of(chosen) - 1))]);
      for (index_t head = 0; head < of.kv_heads; ++head) kv_heads.push_back(random.between(0, of.kv_heads - 1));
    }
    if (seed % 4 == 0) kv_heads.clear();
  }
  zoomr::layer_anchors tables() const {
    zoomr::layer_anchors made{view<const index_t>(layers)};
    if (!kv_heads.empty()) made.kv_heads = {kv_heads.data(), {size_of(layers), size_of(kv_heads) / size_of(layers)}};
    return made;
  }
  index_t choosing() const {
    index_t count = 0;
    for (index_t layer = 0; layer < size_of(layers); ++layer) count += layers[static_cast<std::size_t>(layer)] == layer;
    return count;
  }

 private:
  static index_t size_of(const std::vector<index_t>& numbers) { return static_cast<index_t>(numbers.size()); }
};

template <class Policy>
constexpr bool chooses_by_layer(const Policy& policy) {
  return Policy::selects && policy.aggregate.per != zoomr::scope::sequence;
}

/// Exact top tokens of each KV head: what Kascade's anchors choose.
constexpr auto exact = zoomr::compose(zoomr::fixed_pages{.longest = 1}, zoomr::key_mass{}, zoomr::pooled_mass{},
                                      zoomr::top_k{.segments = 9}, zoomr::every_token{},
                                      zoomr::zones{.sinks = 2, .recent = 5, .dense_layers = 1});

template <class Test>
void for_each_choosing(Test test) {
  for_each_policy([&](const char* name, const auto& policy) {
    if (chooses_by_layer(policy)) test(name, policy);
  });
  test("exact", exact);
}

TEST_CASE("layers read what their anchors have chosen as the naive reference does") {
  index_t policies = 0;
  for_each_choosing([&](const char* name, const auto& policy) {
    ++policies;
    comparison all;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const drawn_anchors anchors(model, policy.zone.dense_layers, seed);
      tape says = conversation(model, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
      if (frees_pages(policy)) says.later_prompts.clear();
      zoomr::config limits = limits_for(says.size());
      limits.anchors = anchors.tables();
      check_against_reference(policy, says, limits, false, all);
      if (seed % 2 == 0) continue;
      limits = limits_for_whole(says);
      limits.anchors = anchors.tables();
      check_against_reference(policy, with_whole_items(policy, says, seed), limits, false, all);
    }
    check_rarely_stopped(name, all);
  });
  CHECK(policies > 5);
}

TEST_CASE("drafts, dropped steps, rollbacks, forks, saving and loading give the same bits under anchors") {
  for_each_choosing([](const char* name, const auto& policy) {
    if (frees_pages(policy)) return;
    happened all;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(std::string(name));
      CAPTURE(seed);
      const drawn_anchors anchors(model, policy.zone.dense_layers, seed);
      const auto limits_for = [&](const tape& says, index_t sequences) {
        zoomr::config limits = limits_for_whole(says, sequences);
        limits.anchors = anchors.tables();
        return limits;
      };
      tape says = conversation(model, seed);
      if (seed % 2 == 0) says = with_whole_items(policy, says, seed);
      check_lives(policy, limits_for, says, seed, all);
    }
    CAPTURE(std::string(name));
    CHECK(all.forked > 0);
  });
}

TEST_CASE("over tiers the same is read, and the blocks of a layer that chooses nothing come before its queries") {
  const auto moved = with_placement(small::by_layer, zoomr::tiered<>{});
  const tape says = make_tape(model, kind::peaked, markup::sentences, 170, 70, 3);
  const drawn_anchors anchors(model, moved.zone.dense_layers, 3);
  zoomr::config limits = limits_for(says.size());
  limits.anchors = anchors.tables();
  player<std::decay_t<decltype(small::by_layer)>> resident(model, small::by_layer, limits);
  player<std::remove_const_t<decltype(moved)>> tiers(model, moved, tiered_limits<float>(model, moved, limits, 12));
  resident.open(says), tiers.open(says);
  resident.play_plainly(), tiers.play_plainly();
  CHECK(difference(resident.at(0).log, tiers.at(0).log) == "");
}

TEST_CASE("a row says what its layer reads, and layers that choose nothing have no index") {
  const tape says = make_tape(model, kind::uniform, markup::sentences, 170, 70, 3);
  const drawn_anchors anchors(model, small::by_layer.zone.dense_layers, 5);
  REQUIRE(anchors.choosing() < model.layers);
  zoomr::config limits = limits_for(says.size());
  using policy = std::decay_t<decltype(small::by_layer)>;
  player<policy> all(model, small::by_layer, limits);
  limits.anchors = anchors.tables();
  player<policy> some(model, small::by_layer, limits);
  for (auto* plays : {&all, &some}) plays->open(says), plays->play_plainly();
  for (index_t layer = 0; layer < model.layers; ++layer) {
    const auto& row = some.cache.selected(some.at(0).seq, layer);
    const auto& read = some.cache.selected(some.at(0).seq, anchors.layers[static_cast<std::size_t>(layer)]);
    CHECK(std::equal(row.levels.begin(), row.levels.end(), read.levels.begin(), read.levels.end()));
  }
  CHECK(some.cache.bytes(some.at(0).seq).summaries * model.layers ==
        all.cache.bytes(all.at(0).seq).summaries * anchors.choosing());
  CHECK(some.cache.capacity().summaries * model.layers == all.cache.capacity().summaries * anchors.choosing());
}

TEST_CASE("tables that cannot be are refused, and so is a layer that comes before its anchor") {
  const auto refusal = [](std::vector<index_t> layers, std::vector<index_t> heads = {}) {
    zoomr::config limits = limits_for(100);
    limits.anchors.layers = view<const index_t>(layers);
    if (!heads.empty()) limits.anchors.kv_heads = {heads.data(), {3, 2}};
    return sentence_of([&] { zoomr::kv_cache cache(shape{3, 4, 2, 8}, small::by_kv_head, limits); });
  };
  const std::string of_layer =
      " must read its own choice, or that of an earlier layer that chooses, and its KV heads "
      "those of KV heads there";
  CHECK(refusal({0, 0, 2}) == "");
  CHECK(refusal({0, 0, 2}, {1, 0, 1, 1, 0, 0}) == "");
  CHECK(refusal({0, 0}) == "zoomr: config: anchors.layers are [2], wanted [3]");
  CHECK(refusal({0, 2, 2}) == "zoomr: config: anchors: layer 1" + of_layer);
  CHECK(refusal({0, 0, 1}) == "zoomr: config: anchors: layer 2" + of_layer);
  CHECK(refusal({0, -1, 2}) == "zoomr: config: anchors: layer 1" + of_layer);
  CHECK(refusal({0, 0, 2}, {0, 1, 0, 2, 0, 1}) == "zoomr: config: anchors: layer 1" + of_layer);

  const tape says = make_tape({3, 4, 2, 8}, kind::uniform, markup::sentences, 90, 70, 3);
  const std::vector<index_t> layers{0, 0, 2};
  zoomr::config limits = limits_for(says.size());
  limits.anchors.layers = view<const index_t>(layers);
  player<std::decay_t<decltype(small::by_kv_head)>> plays(says.numbers.model, small::by_kv_head, limits);
  plays.layers_backwards = true;
  plays.open(says);
  CHECK(sentence_of([&] { plays.play_plainly(); }) ==
        "zoomr: attend: layer 1 reads what layer 0 chooses: attend that one before, in the same pass");
}

}  // namespace
}  // namespace zoomr_test
