// SPDX-License-Identifier: Apache-2.0
// What is read, by what its poison does; and what is attended when nothing limits it.
#include <cache/support/players.hpp>

#include <doctest/doctest.h>

#include <cmath>   // std::isnan
#include <limits>  // std::numeric_limits

namespace zoomr_test::reading_test {
namespace {

constexpr float poison = std::numeric_limits<float>::quiet_NaN();
constexpr shape model{2, 4, 2, 8};

/// One token in sixty has a poisoned value in one KV lane.
bool is_poisoned(index_t position, index_t layer, index_t kv_head) {
  return mixed(static_cast<std::uint64_t>(position * 64 + layer * 8 + kv_head)) % 60 == 0;
}

void poison_values(token_id, index_t position, index_t layer, index_t kv_head, float*, float* value, index_t dim) {
  if (is_poisoned(position, layer, kv_head)) std::fill_n(value, dim, poison);
}

void poison_everything(token_id, index_t, index_t, index_t, float* key, float* value, index_t dim) {
  std::fill_n(key, dim, poison);
  std::fill_n(value, dim, poison);
}

tape tape_of(std::uint64_t seed, index_t tokens, index_t prompt) {
  constexpr markup texts[] = {markup::pairs, markup::summaries_alone, markup::stray, markup::sentences};
  return make_tape(model, kind::uniform, texts[seed % 4], tokens, prompt, seed);
}

TEST_CASE("an output is NaN exactly if a poisoned value was attended, and otherwise has the bits of a clean run") {
  for_each_preset([](const char* name, const auto& policy) {
    using player_type = player<std::decay_t<decltype(policy)>>;
    std::int64_t clean_outputs = 0, poisoned_outputs = 0;
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const tape says = tape_of(seed, 260, 50);
      player_type clean(model, policy, limits_for(says.size()));
      clean.open(says);
      clean.play_plainly();
      player_type poisoned(model, policy, limits_for(says.size()));
      poisoned.spoil = poison_values;
      poisoned.open(says);
      poisoned.play_plainly();
      CAPTURE(std::string(name));
      CAPTURE(seed);
      for (const auto& [at, want] : clean.at(0).log) {
        if (at.first < says.prompt) continue;
        const token_result& got = poisoned.at(0).log.at(at);
        REQUIRE(got.attended == want.attended);
        REQUIRE(got.lse == want.lse);
        for (index_t row = 0; row < model.layers * model.heads; ++row) {
          const index_t layer = row / model.heads;
          const index_t kv_head = row % model.heads / model.group();
          bool reads_poison = false;
          for (const index_t t : want.attended[static_cast<std::size_t>(row)]) {
            reads_poison = reads_poison || is_poisoned(t, layer, kv_head);
          }
          for (index_t d = 0; d < model.head_dim; ++d) {
            const auto i = static_cast<std::size_t>(row * model.head_dim + d);
            if (reads_poison) REQUIRE(std::isnan(got.out.numbers[i]));
            if (!reads_poison) REQUIRE(got.out.numbers[i] == want.out.numbers[i]);
          }
          ++(reads_poison ? poisoned_outputs : clean_outputs);
        }
      }
    }
    CHECK(poisoned_outputs > 0);
    const bool attends_all = policy.zone.recent == zoomr::unlimited;
    CHECK((clean_outputs > 0 || attends_all));
  });
}

TEST_CASE("what an earlier owner of the pages, or a rejected draft, has left behind is never read") {
  for_each_preset([](const char* name, const auto& policy) {
    using player_type = player<std::decay_t<decltype(policy)>>;
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      const tape says = tape_of(seed, 230, 41);
      player_type clean(model, policy, limits_for(says.size()));
      clean.open(says);
      clean.play_plainly();

      player_type used(model, policy, limits_for(says.size()));
      const tape before = tape_of(seed + 100, says.size(), says.size());
      used.open(before);
      used.spoil = poison_everything;
      used.play({{0, before.ids, false}});
      used.cache.close(used.at(0).seq);
      used.spoil = nullptr;
      const index_t mine = used.open(says);
      used.play({{mine, says.between(0, says.prompt), true}});
      dice random(seed);
      while (!used.done(mine)) {
        used.spoil = poison_everything;
        const index_t room = std::min<index_t>(5, says.size() - used.tokens(mine));
        part rejected{mine, std::vector<token_id>(static_cast<std::size_t>(random.between(1, room)), unspoken_id)};
        used.play({rejected}, random.one_of(std::array{fate::committed, fate::dropped_after_pass}));
        used.spoil = nullptr;
        used.play({used.next(mine, random.between(1, 3))});
      }
      CAPTURE(std::string(name));
      CAPTURE(seed);
      REQUIRE(difference(clean.at(0).log, used.at(mine).log) == "");
    }
  });
}

/// Every limit above the context, so that nothing is left out; by the window, or (`by_choice`) by what is chosen.
template <class Policy>
Policy without_limits(Policy policy, bool by_choice) {
  if (!by_choice) policy.zone.recent = zoomr::unlimited;
  policy.zone.open = zoomr::unlimited;
  policy.zone.dense_layers = 0;
  if constexpr (decltype(policy.evict)::observes) policy.evict.tokens = zoomr::unlimited;
  if constexpr (requires { policy.select.segments; }) policy.select.segments = zoomr::unlimited;
  if constexpr (requires { policy.select.tokens; }) policy.select.tokens = zoomr::unlimited;
  if constexpr (requires { policy.aggregate.k; }) policy.aggregate.k = zoomr::unlimited;
  return policy;
}

template <class Policy>
void check_equals_full(const Policy& policy) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const tape says = tape_of(seed, 220, 57);
    player<Policy> limitless(model, policy, limits_for(says.size()));
    limitless.open(says);
    limitless.play_plainly();
    player<std::decay_t<decltype(small::full)>> all(model, small::full, limits_for(says.size()));
    all.open(says);
    all.play_plainly();
    CAPTURE(seed);
    for (const auto& [at, want] : all.at(0).log) {
      const token_result& got = limitless.at(0).log.at(at);
      const index_t position = at.first;
      CAPTURE(position);
      for (std::size_t i = 0; i < want.out.numbers.size(); ++i) {
        REQUIRE(tolerance::within(got.out.numbers[i], want.out.numbers[i], tolerance::full_attention));
      }
      for (std::size_t i = 0; i < want.lse.numbers.size(); ++i) {
        REQUIRE(tolerance::within(got.lse.numbers[i], want.lse.numbers[i], tolerance::full_attention));
      }
    }
  }
}

TEST_CASE("with every limit above the context, each preset gives full attention") {
  for_each_preset([](const char* name, const auto& preset) {
    CAPTURE(std::string(name));
    auto policy = without_limits(preset, false);
    if constexpr (requires { policy.refresh.second_pass = false; })
      policy.refresh.second_pass = false;  // keys of one pass
    check_equals_full(policy);
  });
}

TEST_CASE("with a small window but no limit on what is chosen, choices in the same pass give full attention") {
  const auto check = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const bool for_itself = policy.refresh.each_token() && policy.aggregate.per != zoomr::scope::sequence;
    if (policy.selects && for_itself) check_equals_full(without_limits(policy, true));
  };
  for_each_preset(check);
  check("by_mass", small::by_mass);
  check("focus_each_token", small::focus_each_token);
}

}  // namespace
}  // namespace zoomr_test::reading_test
