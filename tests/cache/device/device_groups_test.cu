// SPDX-License-Identifier: Apache-2.0
// Layers in groups on a device: what a grouped_device_cache gives is what a grouped_kv_cache gives on the host; and
// what fails in one group has happened in none.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>
#include <support/stride.hpp>
#include <zoomr/grouped_device_cache.cuh>
#include <zoomr/grouped_kv_cache.hpp>

#include <doctest/doctest.h>

#include <memory>  // std::unique_ptr

namespace zoomr_test {
namespace {

using zoomr::grouped_device_cache, zoomr::grouped_kv_cache, zoomr::sequence;

inline constexpr index_t most = 160, heads = 4;

/// One group: its policy and shape, a cache on the host and one on the device.
template <class Policy, index_t KvHeads, index_t HeadDim>
struct group_of_layers {
  using device_type = zoomr::device_cache<Policy, float, HeadDim, heads / KvHeads>;
  shape model;
  Policy policy;
  zoomr::config limits;
  device_array<std::byte> memory;
  device_type device;

  group_of_layers(const Policy& with, index_t layers, const zoomr::config& of)
      : model{layers, heads, KvHeads, HeadDim},
        policy(with),
        limits(of),
        memory(device_type::bytes(model, with, of), std::byte{0xff}),
        device(model, with, of, memory.data(), zoomr::stream_ref{}) {}
  zoomr::any_kv_cache<> host() const { return zoomr::kv_cache{model, policy, limits}; }
};
template <index_t KvHeads = 2, index_t HeadDim = 8, class Policy>
auto group(const Policy& policy, index_t layers, const zoomr::config& limits = limits_for(most, 3)) {
  return std::make_unique<group_of_layers<Policy, KvHeads, HeadDim>>(policy, layers, limits);
}

/// Both caches of a model, which do the same.
template <class... Groups>
struct both {
  std::vector<index_t> group_of;
  std::vector<shape> shapes;  // [layers]
  grouped_kv_cache<> host;
  grouped_device_cache<typename Groups::device_type...> device;
  index_t second_passes = 0;
  index_t wholes = 0;  // items that were passed whole

  explicit both(std::vector<index_t> table, Groups&... groups)
      : group_of(std::move(table)),
        host(hosts(groups...), view<const index_t>(group_of)),
        device(view<const index_t>(group_of), groups.device...) {
    const std::vector<shape> of{groups.model...};
    for (const index_t g : group_of) shapes.push_back(of[static_cast<std::size_t>(g)]);
  }
  static std::vector<zoomr::any_kv_cache<>> hosts(Groups&... groups) {
    std::vector<zoomr::any_kv_cache<>> made;
    (made.push_back(groups.host()), ...);
    return made;
  }

  /// One step of a sequence in both.
  /// @param whole  it takes all ids; the last `wrong` ones are not accepted
  /// @return  tokens accepted
  index_t step(sequence on_host, sequence on_device, view<const token_id> ids, bool ends, bool commits, bool at_once,
               bool whole = false, index_t wrong = 0) {
    const index_t before = host.tokens(on_host);
    zoomr::step_item of_host{on_host, ids, ends}, of_device{on_device, ids, ends};
    of_host.whole = of_device.whole = whole;
    index_t planned = 0;
    device.plan(view<const zoomr::step_item>(&of_device, {1}), view<index_t>(&planned, {1}));
    auto a = host.begin(view<const zoomr::step_item>(&of_host, {1}));
    auto b = device.begin(view<const zoomr::step_item>(&of_device, {1}));
    const zoomr::stream_ref on{};
    REQUIRE(b.taken(0) == a.taken(0));
    REQUIRE(planned == a.taken(0));
    REQUIRE(b.passes() == a.passes());
    const index_t accepted = a.taken(0) - wrong;
    index_t pass = 0;
    do {
      const index_t tokens = a.tokens(), first = a.position(0);
      REQUIRE((b.tokens() == tokens && b.position(0) == first && b.active(0) == a.active(0)));
      const auto now = ids.slice(first - before, first - before + tokens);
      pass == 0 ? b.start(on) : b.restart(on);
      for (index_t layer = 0; layer < static_cast<index_t>(group_of.size()); ++layer) {
        const shape& of = shapes[static_cast<std::size_t>(layer)];
        device_array<float> k(numbers(of, role::key, now, first, layer, pass));
        device_array<float> v(numbers(of, role::value, now, first, layer, pass));
        device_array<float> q(numbers(of, role::query, now, first, layer, pass));
        device_array<float> out(q.values().size(), 77.0f), lse(std::int64_t{tokens} * of.heads, 77.0f);
        std::vector<float> expected(q.values().size());
        const std::vector<float> keys = k.values(), values = v.values(), queries = q.values();
        const zoomr::extents<3> of_kv{{tokens, of.kv_heads, of.head_dim}}, of_q{{tokens, of.heads, of.head_dim}};
        a.append(layer, view<const float, 3>(keys.data(), of_kv), view<const float, 3>(values.data(), of_kv));
        a.attend(layer, view<const float, 3>(queries.data(), of_q), view<float, 3>(expected.data(), of_q));
        const view<const float, 3> keys_there(k.data(), of_kv), values_there(v.data(), of_kv), asked(q.data(), of_q);
        const view<float, 3> out_there(out.data(), of_q);
        const view<float, 2> lse_there(lse.data(), {tokens, of.heads});
        if (at_once) {
          b.attend(layer, asked, keys_there, values_there, out_there, lse_there, on);
        } else {
          b.append(layer, keys_there, values_there, on);
          b.attend(layer, asked, out_there, lse_there, on);
        }
        wait_for(on);
        const std::vector<float> got = out.values();
        const double logit = 3.3 * 2.3 * std::sqrt(static_cast<double>(of.head_dim));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          CAPTURE(layer);
          CAPTURE(i);
          REQUIRE(tolerance::within(static_cast<double>(got[i]), static_cast<double>(expected[i]),
                                    2 * tolerance::end_to_end(of.head_dim, logit, most)));
        }
      }
      second_passes += pass;
      ++pass;
      if (!commits) return 0;
    } while (both_again(a.needs_second_pass(accepted), b.needs_second_pass(accepted)));
    a.commit(accepted);
    b.commit(accepted, on);
    REQUIRE(device.tokens(on_device) == host.tokens(on_host));
    return accepted;
  }
  static bool both_again(bool host, bool device) {
    REQUIRE(host == device);
    return host;
  }

  /// A text in chunks and drafts, with steps that are dropped, rollbacks, and a fork that goes on.
  void play(markup text, std::uint64_t seed) {
    dice random(seed);
    const index_t prompt = random.between(20, 60);
    const std::vector<token_id> ids = text_of(text, 120, prompt, seed);
    sequence here = host.open(), there = device.open();
    for (index_t now = 0; now < 120;) {
      const index_t count = now < prompt ? std::min(prompt - now, random.between(5, 30)) : random.between(1, 4);
      const auto next = view<const token_id>(ids).slice(now, std::min(now + count, 120));
      const bool ends = now < prompt && now + count >= prompt;
      const bool whole = now >= prompt && random.chance(40);
      const index_t wrong = whole && random.chance(30) ? next.size() - 1 : 0;
      now += step(here, there, next, ends, !random.chance(15), random.chance(50), whole, wrong);
      wholes += whole ? 1 : 0;
      if (now > prompt + 20 && random.chance(12)) {
        const index_t back = now - random.between(1, 6);
        host.rollback(here, back), device.rollback(there, back);
        now = back;
      }
      if (now > prompt && random.chance(10)) {
        const bool into_open = random.chance(50);
        const sequence forked = into_open ? host.open() : host.fork(here);
        const sequence forked_there = into_open ? device.open() : device.fork(there, zoomr::stream_ref{});
        if (into_open) host.fork(here, forked), device.fork(there, forked_there, zoomr::stream_ref{});
        host.close(here), device.close(there);
        here = forked, there = forked_there;
      }
    }
    host.close(here), device.close(there);
  }
};

inline constexpr auto once = zoomr::compose(zoomr::sentences{.longest = 12}, zoomr::key_mean{}, zoomr::mean_dot{},
                                            zoomr::last_query{}, zoomr::fill_budget{.tokens = 30},
                                            zoomr::after_prefill{}, zoomr::zones{.sinks = 2, .recent = 6, .open = 20});
inline constexpr auto focus = with(small::zoomr_focus, [](auto& p) { p.zone.recent = 9; });

}  // namespace

TEST_CASE("sliding-window layers beside dense ones and layers under a policy") {
  zoomr::config limits = limits_for(most, 3);
  limits.logits.window = 19;
  const auto sliding = group(small::full, 3, limits);
  const auto dense = group<1>(small::full, 1);
  const auto sparse = group<2, 16>(focus, 2);
  both all({0, 1, 0, 2, 0, 2}, *sliding, *dense, *sparse);
  for (const std::uint64_t seed : seeds_from(1, 3)) all.play(markup::pairs, seed);
}
TEST_CASE("policies that choose at every token, with tokens evicted in one group") {
  const auto pages = group(small::quest, 2);
  const auto sentences = group<1, 16>(small::sentence_kv, 2);
  both all({0, 1, 1, 0}, *pages, *sentences);
  for (const std::uint64_t seed : seeds_from(4, 3)) all.play(markup::sentences, seed);
}
TEST_CASE("heads that vote choose for their group, with weights of its own, also beside one that has a second pass") {
  const zoomr::config limits = limits_for(most, 3);
  const auto voters = group(small::zoomr_voters, 2, with_voters(small::zoomr_voters, limits, shape{2, heads, 2, 8}));
  const std::vector<float> two_heads{0.0f, 1.5f, 0.0f, 0.25f};
  zoomr::config other = limits;
  other.voters = {two_heads.data(), {1, heads}};
  const auto few = group<1, 16>(small::sentence_voters, 1, other);
  const auto asks = group<1>(small::zoomr_second_pass, 1);
  both all({0, 1, 2, 0}, *voters, *few, *asks);
  for (const std::uint64_t seed : seeds_from(10, 3)) all.play(markup::pairs, seed);
  CHECK(all.second_passes > 5);
}
TEST_CASE("a second pass goes through all groups") {
  const auto asks = group(small::zoomr_second_pass, 2);
  const auto sliding = group<1>(small::window, 1);
  const auto stays = group<2, 16>(focus, 2);
  const auto chosen_once = group(once, 1);  // has no new choice where the others have
  both all({1, 0, 2, 3, 0, 2}, *asks, *sliding, *stays, *chosen_once);
  for (const std::uint64_t seed : seeds_from(7, 3)) all.play(markup::pairs, seed);
  CHECK(all.second_passes > 5);
}

TEST_CASE("a choice for all layers of a group asks again in a second pass that another group wants") {
  const auto asks = group(small::zoomr_second_pass, 2);
  const auto votes = group<1>(small::zoomr_one_pass, 2);
  const auto means =
      group<2, 16>(with(small::by_kv_head, [](auto& p) { p.aggregate.per = zoomr::scope::sequence; }), 1);
  both all({0, 1, 2, 1, 0}, *asks, *votes, *means);
  for (const std::uint64_t seed : seeds_from(13, 3)) all.play(markup::pairs, seed);
  CHECK(all.second_passes > 5);
  CHECK(all.wholes > 5);
}

TEST_CASE("what does not fit together is refused, and what fails in one group has happened in none") {
  const auto asks = group(small::zoomr_second_pass, 1);
  const auto pages = group(small::quest, 1);
  zoomr::config one = limits_for(most, 1), few = limits_for(most, 3);
  few.pool_tokens = 32;
  const auto single = group(small::full, 1, one);
  const auto narrow = group(small::full, 1, few);
  const std::vector<index_t> two{0, 1};
  const auto sentence = [](auto make) {
    try {
      make();
    } catch (const std::exception& why) {
      return std::string(why.what());
    }
    return std::string();
  };
  const view<const index_t> table(two);
  CHECK(sentence([&] { grouped_device_cache(table, asks->device, pages->device); }) ==
        "zoomr: groups: one has a second pass, which on a device needs choices of the others that stay active");
  CHECK(sentence([&] { grouped_device_cache(table, asks->device); }) ==
        "zoomr: groups: the table of layers names group 1 of 1");
  const std::vector<index_t> long_table{0, 1, 1};
  CHECK(sentence([&] { grouped_device_cache(view<const index_t>(long_table), pages->device, single->device); }) ==
        "zoomr: group 1: its shape has 1 layers, the table of layers 2");

  grouped_device_cache cache(table, pages->device, single->device);
  const sequence first = cache.open();
  CHECK(sentence([&] { cache.open(); }).find("max_sequences") != std::string::npos);
  CHECK(sentence([&] { grouped_device_cache(table, pages->device, narrow->device); }) ==
        "zoomr: group 0: sequences of it are open");
  cache.close(first);
  const sequence again = cache.open();
  cache.close(again);

  grouped_device_cache pool(table, pages->device, narrow->device);
  const sequence seq = pool.open();
  const std::vector<token_id> ids(40, 3);
  CHECK(sentence([&] { pool.begin(seq, view<const token_id>(ids)); }) ==
        "zoomr: group 1: the step needs 3 pages of 16 tokens, 2 are free; raise config.pool_tokens");
  // What is wrong is told before what there is no room for, by `plan` too.
  const std::vector<token_id> many(most + 1, 3);
  const zoomr::step_item item{seq, view<const token_id>(many), true};
  index_t taken = 0;
  const auto plan = [&](const zoomr::step_item& of) {
    return sentence([&] { pool.plan(view<const zoomr::step_item>(&of, {1}), view<index_t>(&taken, {1})); });
  };
  const std::string shortage = plan(item);
  CHECK(shortage.find("zoomr: group 0: sequence 0 would have") == 0);
  CHECK(sentence([&] { pool.begin(seq, view<const token_id>(many), true); }) == shortage);
  CHECK(sentence([&] { pool.begin(seq, view<const token_id>(many), true, true); }) ==
        "zoomr: group 0: begin: a step for a graph takes no prompt tokens");
  const std::vector<zoomr::step_item> twice(2, item);
  CHECK(sentence([&] { pool.begin(view<const zoomr::step_item>(twice)); }) ==
        "zoomr: begin: a sequence can take part in a step only once");
  auto step = pool.begin(seq, view<const token_id>(ids).slice(0, 20));  // nothing is in progress
  CHECK(step.tokens() == 20);
  CHECK(sentence([&] { step.append(2, view<const float, 3>{}, view<const float, 3>{}, zoomr::stream_ref{}); }) ==
        "zoomr: append: there is no layer 2, the model has 2");
  CHECK(sentence([&] {
          step.append(1, view<const float, 3>{}, view<const float, 3>{}, zoomr::stream_ref{});
        }).find("zoomr: layer 1, which is layer 0 of group 1: ") == 0);
}

}  // namespace zoomr_test
