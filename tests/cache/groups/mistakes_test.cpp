// SPDX-License-Identifier: Apache-2.0
// Of two faults in the items of a step, `begin` and `plan`, of a single cache and of groups, name the same one: what is
// wrong with an item before what there is no room for, since a caller waits for room.
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>
#include <zoomr/grouped_kv_cache.hpp>

#include <doctest/doctest.h>

#include <functional>   // std::function
#include <string_view>  // std::string_view

namespace zoomr_test {
namespace {

using zoomr::any_kv_cache, zoomr::grouped_kv_cache, zoomr::sequence, zoomr::step_item;

constexpr index_t most_position = (1 << 30) - 1;

/// An item whose arrays are its own.
struct item {
  sequence seq;
  std::vector<token_id> ids{plain_id};
  std::vector<index_t> positions = {}, pages = {};
  bool prompt_begins = false, prompt_ends = false, whole = false;

  operator step_item() const {
    return {seq,           view<const token_id>(ids),      prompt_ends, view<const index_t>(pages),
            prompt_begins, view<const index_t>(positions), whole};
  }
};

/// A cache, or groups, with sequences whose prompts of 12 tokens have ended, and one whose has not.
template <class Cache>
struct prepared {
  Cache cache;
  index_t layers;
  sequence first, second, in_prompt, at_end, closed;

  prepared(Cache of, index_t count)
      : cache(std::move(of)),
        layers(count),
        first(cache.open()),
        second(cache.open()),
        in_prompt(cache.open()),
        at_end(cache.open()),
        closed(cache.open()) {
    pass({{.seq = first, .ids = std::vector<token_id>(12, plain_id), .prompt_ends = true}});
    pass({{.seq = second, .ids = std::vector<token_id>(12, plain_id), .prompt_ends = true}});
    pass({{.seq = in_prompt, .ids = std::vector<token_id>(12, plain_id)}});
    pass({{.seq = at_end, .positions = {most_position}, .prompt_ends = true}});
    cache.close(closed);
  }
  void pass(const std::vector<item>& given) {
    const std::vector<step_item> items(given.begin(), given.end());
    auto step = cache.begin(view<const step_item>(items));
    const index_t count = step.tokens();
    const std::vector<float> in(static_cast<std::size_t>(count) * 16, 0.5f);
    std::vector<float> out(in.size());
    const view<const float, 3> rows(in.data(), {count, 2, 8});
    for (index_t layer = 0; layer < layers; ++layer) {
      step.append(layer, rows, rows);
      step.attend(layer, rows, view<float, 3>(out.data(), {count, 2, 8}));
    }
    step.commit();
  }
};

/// What a call says, and whether it is a mistake; the name of a group is left out.
template <class Call>
std::string said(Call call) {
  const auto without_group = [](std::string_view what) {
    const std::size_t end = what.find("group ") == zoomr::error::prefix.size() ? what.find(": ", 8) + 2 : 7;
    return std::string(what.substr(end));
  };
  try {
    call();
  } catch (const zoomr::precondition_error& why) {
    return "mistake: " + without_group(why.what());
  } catch (const zoomr::error& why) {
    return "no room: " + without_group(why.what());
  }
  return "";
}

struct fault {
  const char* name;
  bool mistake;
  std::function<void(item&, const prepared<any_kv_cache<>>&)> make;
};

std::vector<fault> faults(bool chooses) {
  const auto change = [](auto what) { return [what](item& at, const prepared<any_kv_cache<>>&) { what(at); }; };
  std::vector<fault> list{
      {"no ids", true, change([](item& at) { at.ids.clear(); })},
      {"a negative id", true, change([](item& at) { at.ids.assign(1, -1); })},
      {"an id without a class", true, change([](item& at) { at.ids.assign(1, 1'000'000); })},
      {"a closed sequence", true, [](item& at, const auto& in) { at.seq = in.closed; }},
      {"the last position is taken", true, [](item& at, const auto& in) { at.seq = in.at_end; }},
      {"the same sequence", true, [](item& at, const auto& in) { at.seq = in.first; }},
      {"a block table", true, change([](item& at) { at.pages = {0}; })},
      {"an end of an ended prompt", true, change([](item& at) { at.prompt_ends = true; })},
      {"a begin before the end", true,
       [](item& at, const auto& in) { at.seq = in.in_prompt, at.prompt_begins = true; }},
      {"two positions", true, change([](item& at) {
         at.positions = {12, 13}, at.ids.resize(1, plain_id);
       })},
      {"a position before", true, change([](item& at) { at.positions.assign(at.ids.size(), 3); })},
      {"too long to be whole", true, change([](item& at) { at.whole = true, at.ids.resize(9, plain_id); })},
      {"more than a batch", true, change([](item& at) { at.prompt_begins = true, at.ids.resize(61, plain_id); })},
      {"more than a sequence", false, change([](item& at) { at.prompt_begins = true, at.ids.resize(21, plain_id); })},
      {"more than the pool", false, change([](item& at) { at.prompt_begins = true, at.ids.resize(20, plain_id); })},
      {"nothing", false, change([](item&) {})}};
  if (chooses) {
    list.push_back({"more segments", false, change([](item& at) { at.prompt_begins = true, at.ids.assign(8, 1); })});
  } else {
    list.push_back(
        {"evictions in the middle", true, change([](item& at) { at.whole = true, at.ids.resize(8, plain_id); })});
  }
  return list;
}

template <class Policy>
void check_pairs(const Policy& policy, bool chooses) {
  zoomr::config limits = limits_for(32, 6);
  limits.max_batched_tokens = 60;
  limits.max_segments = 6;
  limits.pool_tokens = 4 * 16;
  const shape model{2, 2, 2, 8}, half{1, 2, 2, 8};
  prepared<any_kv_cache<>> single(zoomr::kv_cache(model, policy, limits), 2);
  std::vector<any_kv_cache<>> two;
  two.push_back(zoomr::kv_cache(half, policy, limits));
  two.push_back(zoomr::kv_cache(half, policy, limits));
  const std::vector<index_t> group_of{0, 1};
  prepared<grouped_kv_cache<>> groups(grouped_kv_cache<>(std::move(two), view<const index_t>(group_of)), 2);

  index_t mistakes = 0, shortages = 0;
  const auto is_mistake = [&](const std::vector<item>& made) {
    const std::vector<step_item> items(made.begin(), made.end());
    const view<const step_item> given(items);
    std::vector<index_t> taken(items.size());
    const std::string begins = said([&] { single.cache.begin(given); });
    CHECK(said([&] { groups.cache.begin(given); }) == begins);
    const std::string plans = begins.find("no room: the step needs") == 0 ? "" : begins;  // of pages
    CHECK(said([&] { single.cache.plan(given, view<index_t>(taken)); }) == plans);
    CHECK(said([&] { groups.cache.plan(given, view<index_t>(taken)); }) == plans);
    const bool mistake = begins.find("mistake: ") == 0;
    mistakes += mistake;
    shortages += begins.find("no room: ") == 0;
    return mistake;
  };
  CHECK(is_mistake({}));
  const std::vector<fault> list = faults(chooses);
  for (const fault& one : list) {
    for (const fault& other : list) {
      const std::string names = std::string(one.name) + ", " + other.name;
      CAPTURE(names);
      std::vector<item> items{{.seq = single.first}, {.seq = single.second}};
      one.make(items[0], single), other.make(items[1], single);
      const bool twice = items[0].seq == items[1].seq;
      const bool same_first = std::string_view(one.name) == "the same sequence";
      const bool batch = items[0].ids.size() + items[1].ids.size() > 60;
      CHECK(is_mistake(items) == (twice || batch || (one.mistake && !same_first) || other.mistake));
      std::vector<item> both{{.seq = single.first}};  // in one item one may undo the other
      one.make(both[0], single), other.make(both[0], single);
      is_mistake(both);
    }
  }
  CHECK(mistakes > 200);
  CHECK(shortages > 5);
}

TEST_CASE("of two faults begin and plan name the same, in groups too, and a mistake before what there is no room for") {
  SUBCASE("tokens are evicted while decoding") { check_pairs(small::pinned_prompt, false); }
  SUBCASE("segments are chosen") { check_pairs(small::by_kv_head, true); }
}

// What only one group refuses; and what the other has no room for comes after it.
TEST_CASE("groups name a mistake in one of them before what another has no room for") {
  const shape half{1, 2, 2, 8};
  zoomr::config small_one = limits_for(16, 6), large = limits_for(200, 6);
  large.max_draft_tokens = 4;
  std::vector<any_kv_cache<>> two;
  two.push_back(zoomr::kv_cache(half, small::full, small_one));
  two.push_back(zoomr::kv_cache(half, small::full, large));
  const std::vector<index_t> group_of{0, 1};
  prepared<grouped_kv_cache<>> groups(grouped_kv_cache<>(std::move(two), view<const index_t>(group_of)), 2);
  item whole{.seq = groups.first, .ids = std::vector<token_id>(8, plain_id), .whole = true};
  const auto check = [&](const std::vector<item>& made, const std::string& why) {
    const std::vector<step_item> items(made.begin(), made.end());
    std::vector<index_t> taken(items.size());
    CHECK(said([&] { groups.cache.begin(view<const step_item>(items)); }) == why);
    CHECK(said([&] { groups.cache.plan(view<const step_item>(items), view<index_t>(taken)); }) == why);
  };
  check({whole},
        "mistake: begin: an item that is passed whole has 8 tokens, config.max_draft_tokens is 4: raise it, or begin a "
        "later prompt");
  whole.whole = false;
  check({whole}, "no room: sequence 0 would have 20 tokens, config.max_tokens is 16");
  whole.ids.resize(4);
  check({whole}, "");
  groups.pass({whole, {.seq = groups.second}});
  CHECK(groups.cache.tokens(groups.first) == 16);
  CHECK(groups.cache.tokens(groups.second) == 13);
}

}  // namespace
}  // namespace zoomr_test
