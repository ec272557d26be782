// SPDX-License-Identifier: Apache-2.0
// A preset under a budget: whatever it is, something can be chosen, and no more is attended.
#include <zoomr/zoomr.hpp>

#include <support/inputs.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::max
#include <string>     // std::string

namespace zoomr_test {
namespace {

namespace presets = zoomr::presets;
using zoomr::unlimited;

constexpr index_t budgets[] = {16, 17, 24, 31, 32, 48, 63, 64, 65, 95, 96, 128, 156, 256, 1024, 4096};

TEST_CASE("from 16 tokens on every preset with a budget works, and at most two thirds of it are taken unchosen") {
  for (const index_t budget : budgets) {
    CAPTURE(budget);
    const auto leaves_a_third = [&](const auto& policy) {
      CHECK(std::string(policy.problem() ? policy.problem() : "") == "");
      CHECK(policy.zone.sinks + policy.zone.recent <= budget - budget / 3);
      CHECK(policy.zone.recent >= 1);
      CHECK(policy.select.tokens == budget);
    };
    for (const float ratio : {0.0f, 0.5f, 3.0f}) {
      const auto policy = presets::sentence_kv_with(budget, ratio);
      leaves_a_third(policy);
      CHECK(policy.zone.sinks + policy.zone.open == budget);
      const auto kept = ratio > 0.0f ? static_cast<index_t>(ratio * static_cast<float>(budget)) : unlimited;
      CHECK(policy.evict.tokens == kept);
      CHECK(policy.evict.queries <= std::max(1, kept - kept / 3));
    }
    leaves_a_third(presets::sentence_box_with(budget));
    const auto keeps = [&](const auto& policy, index_t most) {
      CHECK(std::string(policy.problem() ? policy.problem() : "") == "");
      CHECK(policy.evict.kept(1 << 20) <= most);
      CHECK(3 * policy.evict.safe(1 << 20) <= 2 * most + 2);
    };
    keeps(presets::snapkv_with(budget), budget);
    keeps(presets::h2o_with(budget), budget);
    keeps(presets::r_kv_with(budget), budget);
  }
}

TEST_CASE("budgets that leave a third to be chosen keep the sizes of the preset") {
  for (const index_t budget : {96, 128, 156, 160, 241, 256, 320, 360, 512, 640, 1024, 4096, unlimited}) {
    CAPTURE(budget);
    const auto kv = presets::sentence_kv_with(budget, 3.0f);
    CHECK(kv.zone == zoomr::zones{.sinks = 32, .recent = 32, .open = budget - 32});
    CHECK(kv.evict.queries == 32);
    CHECK(presets::sentence_box_with(budget).zone == zoomr::zones{.sinks = 4, .recent = budget / 2});
    CHECK(presets::snapkv_with(budget).evict.queries == 32);
    CHECK(presets::r_kv_with(budget).evict.queries == 8);
  }
}

/// The least and the most tokens that a query head attends after the prompt, and whether segments were chosen.
struct attended {
  index_t most = 0;
  std::int64_t chosen = 0;
};
template <class Policy>
attended read(Policy policy) {
  const shape model{1, 2, 1, 8};
  constexpr index_t tokens = 300, prompt = 260;
  zoomr::config limits;
  limits.max_tokens = tokens, limits.classes = classes;
  zoomr::kv_cache<Policy> cache(model, policy, limits);
  zoomr::attention_trace trace;
  cache.trace(&trace);
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids = text_of(markup::sentences, tokens, prompt, 7);
  const tensors from{model, kind::uniform, 5};
  for (index_t now = 0; now < tokens;) {
    const index_t count = now < prompt ? prompt : 1;
    auto step = cache.begin(seq, zoomr::view<const token_id>(ids).slice(now, now + count), now + count == prompt);
    std::vector<float> keys(static_cast<std::size_t>(count * 8)), queries(2 * keys.size()), out(queries.size());
    for (index_t t = 0; t < count; ++t) {
      const token_id id = ids[static_cast<std::size_t>(now + t)];
      from.fill(role::key, id, now + t, 0, 0, 0, keys.data() + t * 8);
      for (index_t head = 0; head < 2; ++head)
        from.fill(role::query, id, now + t, 0, head, 0, &queries[static_cast<std::size_t>((t * 2 + head) * 8)]);
    }
    const zoomr::view<const float, 3> k(keys.data(), {count, 1, 8});
    step.append(0, k, k);
    step.attend(0, {queries.data(), {count, 2, 8}}, {out.data(), {count, 2, 8}});
    step.commit();
    now += count;
  }
  attended found;
  for (const auto& record : trace) found.most = std::max(found.most, static_cast<index_t>(record.positions.size()));
  found.chosen = cache.stats(seq).chosen;
  return found;
}

TEST_CASE("no query attends more than the budget, and segments are chosen under each") {
  for (const index_t budget : {16, 24, 64, 96, 156}) {
    CAPTURE(budget);
    for (const attended& found :
         {read(presets::sentence_kv_with(budget, 3.0f)), read(presets::sentence_box_with(budget))}) {
      CHECK(found.most <= budget);
      CHECK(found.most > budget / 2);
      CHECK(found.chosen > 0);
    }
  }
}

}  // namespace
}  // namespace zoomr_test
