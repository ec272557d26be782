// SPDX-License-Identifier: Apache-2.0
// Models that choose for themselves: lists of tokens by index keys, and attention to what is listed.
#include <core/random.hpp>
#include <support/naive_attention.hpp>
#include <support/sentence_of.hpp>
#include <support/tolerance.hpp>
#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/index_lists.hpp>
#include <zoomr/policy/placement/engine_pages.hpp>
#include <zoomr/zoomr.hpp>

#include <doctest/doctest.h>

#include <algorithm>  // std::find, std::max, std::min, std::sort, std::stable_sort
#include <cmath>      // std::abs, std::sqrt
#include <numeric>    // std::iota
#include <string>     // std::string
#include <utility>    // std::move
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using unit::size;
using zoomr::index_rule, zoomr::index_t, zoomr::sequence, zoomr::shape, zoomr::step_item, zoomr::token_id, zoomr::view;

/// Arrays [tokens][heads][width] of one layer.
struct rows {
  index_t heads, width;
  std::vector<float> numbers{};

  index_t tokens() const { return static_cast<index_t>(numbers.size()) / (heads * width); }
  void grow(index_t count, unit::random& random) {
    for (index_t i = 0; i < count * heads * width; ++i) numbers.push_back(random.uniform(-2.0f, 2.0f));
  }
  view<const float, 3> from(index_t first) const {
    return {numbers.data() + std::int64_t{first} * heads * width, {tokens() - first, heads, width}};
  }
  const float* at(index_t token, index_t head) const {
    return numbers.data() + (std::int64_t{token} * heads + head) * width;
  }
};

bool says(auto call, const std::string& part) {
  const std::string found = sentence_of(call);
  CAPTURE(found);
  const bool does = found.find(part) != std::string::npos;
  CHECK(does);
  return does;
}

/// What each token of a pass reads: [tokens, lists, most], as steps take it.
struct lists {
  index_t count, most;
  std::vector<index_t> positions{};

  void add(const std::vector<index_t>& some) {
    for (index_t i = 0; i < most; ++i) positions.push_back(i < static_cast<index_t>(some.size()) ? some[size(i)] : -1);
  }
  index_t tokens() const { return static_cast<index_t>(positions.size()) / (count * most); }
  view<index_t, 3> all() { return {positions.data(), {tokens(), count, most}}; }
};

zoomr::config limits_of(index_t tokens) {
  zoomr::config limits;
  limits.max_sequences = 3, limits.max_tokens = tokens;
  limits.max_batched_tokens = tokens, limits.rollback_tokens = 8;
  return limits;
}

// ---- attention to lists ----

constexpr shape model{1, 6, 2, 16, 24};

/// One sequence through two caches: one attends everything, the other lists of everything. The bits are the same.
template <class T>
void check_everything(const zoomr::config& limits, index_t prompt, index_t tokens, const shape& like = model) {
  zoomr::kv_cache<decltype(zoomr::presets::full), T> whole(like, zoomr::presets::full, limits),
      listed(like, zoomr::presets::full, limits);
  const sequence a = whole.open(), b = listed.open();
  unit::random random(5);
  const std::vector<token_id> ids(size(tokens));
  for (index_t at = 0; at < tokens;) {
    const index_t count = std::min(at < prompt ? std::min(97, prompt - at) : random.between(1, 4), tokens - at);
    const view<const token_id> now(ids.data(), {count});
    const bool ends = at + count == prompt;
    auto in_whole = whole.begin(a, now, ends), in_listed = listed.begin(b, now, ends);
    rows keys{2, like.head_dim}, values{2, like.value_width()}, queries{6, like.head_dim};
    keys.grow(count, random), values.grow(count, random), queries.grow(count, random);
    lists all{1, tokens};
    for (index_t t = 0; t < count; ++t) {
      std::vector<index_t> every(size(at + t + 1));
      std::iota(every.begin(), every.end(), 0);
      all.add(every);
    }
    std::vector<float> out(size(count * 6 * like.value_width())), of_list(out), lse(size(count * 6)), lse_of_list(lse);
    in_whole.append(0, keys.from(0), values.from(0)), in_listed.append(0, keys.from(0), values.from(0));
    in_whole.attend(0, queries.from(0), {out.data(), {count, 6, like.value_width()}}, {lse.data(), {count, 6}});
    attend_listed(in_listed, 0, queries.from(0), all.all(), {of_list.data(), {count, 6, like.value_width()}},
                  {lse_of_list.data(), {count, 6}});
    CHECK(out == of_list);
    CHECK(lse == lse_of_list);
    in_whole.commit(), in_listed.commit();
    at += count;
  }
  CHECK(whole.stats(a).attended == listed.stats(b).attended);
  CHECK(whole.stats(a).captured_sum == listed.stats(b).captured_sum);
}

TEST_CASE("a list of everything gives the bits of full attention: prompts, drafts, all that a model does to logits") {
  zoomr::thread_pool pool(3);
  zoomr::config limits = limits_of(260);
  check_everything<float>(limits, 150, 260);
  limits.threads = zoomr::executor(pool, pool.threads(), 1);
  check_everything<zoomr::float16>(limits, 1, 30);
  check_everything<zoomr::q4_0>(limits, 20, 40, {1, 6, 2, 32, 64});
  limits.audit = true, limits.logits.soft_cap = 5;
  const std::vector<float> sinks(6, 0.5f), slopes{0.5f, 0.25f, 0.1f, 0.5f, 0.25f, 0.1f};
  limits.logits.sinks = {sinks.data(), {1, 6}}, limits.logits.alibi_slopes = view<const float>(slopes);
  check_everything<float>(limits, 100, 130);
}

TEST_CASE("lists of any tokens: what books say, for one list and for one of each KV head") {
  constexpr index_t tokens = 700, prompt = 640;
  unit::random random(11);
  for (const index_t count : {1, 2}) {
    zoomr::kv_cache cache(model, zoomr::presets::full, limits_of(tokens));
    const sequence seq = cache.open();
    const std::vector<token_id> ids(size(tokens));
    rows keys{2, 16}, values{2, 24};
    std::int64_t attended = 0;
    for (index_t at = 0; at < tokens;) {
      const index_t passed = std::min(at < prompt ? 320 : random.between(1, 5), tokens - at);
      auto step = cache.begin(seq, view<const token_id>(ids.data(), {passed}), at + passed == prompt);
      rows queries{6, 16};
      keys.grow(passed, random), values.grow(passed, random), queries.grow(passed, random);
      // What no list names must not be read.
      for (index_t t = at; t < at + passed; ++t) {
        if (t % 7 == 3) keys.numbers[size(t * 2 * 16)] = zoomr::not_a_number;
      }
      lists some{count, tokens};
      for (index_t t = at; t < at + passed; ++t) {
        for (index_t list = 0; list < count; ++list) {
          std::vector<index_t> named;
          const int kind = random.below(4);  // every other token: more runs than are read at once
          for (index_t p = 0; kind > 0 && p <= t; ++p) {
            if (p % 7 != 3 && (kind == 1 ? p % 2 == 0 : random.chance(kind == 2 ? 0.02 : 0.7))) named.push_back(p);
          }
          some.add(named);
          if (at >= prompt) attended += static_cast<std::int64_t>(named.size()) * (count == 1 ? 6 : 3);
        }
      }
      std::vector<float> out(size(passed * 6 * 24)), lse(size(passed * 6));
      step.append(0, keys.from(at), values.from(at));
      attend_listed(step, 0, queries.from(0), some.all(), {out.data(), {passed, 6, 24}}, {lse.data(), {passed, 6}});
      for (index_t t = 0; t < passed; ++t) {
        for (index_t head = 0; head < 6; ++head) {
          const view<const index_t> named = some.all()[t][count == 1 ? 0 : head / 3];
          const auto read = static_cast<index_t>(std::find(named.begin(), named.end(), -1) - named.begin());
          double largest = 0;
          const naive_result wanted = naive_attention(
              read, 24,
              [&](index_t i) {
                const double logit = naive_dot(16, queries.at(t, head), keys.at(named[i], head / 3)) / std::sqrt(16.0);
                largest = std::max(largest, std::abs(logit));
                return logit;
              },
              [&](index_t i) { return values.at(named[i], head / 3); });
          const double allowed = tolerance::end_to_end(16, largest, read);
          for (index_t d = 0; d < 24; ++d) {
            CHECK(tolerance::within(out[size((t * 6 + head) * 24 + d)], wanted.out[size(d)], 2 * allowed));
          }
          CHECK(tolerance::within(lse[size(t * 6 + head)], wanted.lse, allowed));
        }
      }
      step.commit();
      at += passed;
    }
    CHECK(cache.stats(seq).attended == attended);
  }
}

TEST_CASE("a list that cannot be is refused with a sentence, and nothing has changed") {
  zoomr::config limits = limits_of(64);
  zoomr::kv_cache cache(model, zoomr::presets::full, limits);
  const sequence seq = cache.open();
  const std::vector<token_id> ids(10);
  auto step = cache.begin(seq, view<const token_id>(ids), true);
  unit::random random(3);
  rows keys{2, 16}, values{2, 24}, queries{6, 16};
  keys.grow(10, random), values.grow(10, random), queries.grow(10, random);
  std::vector<float> out(10 * 6 * 24);
  const view<float, 3> to(out.data(), {10, 6, 24});
  const auto attend = [&](std::vector<index_t> last, index_t count = 1) {
    lists some{count, 3};
    for (index_t i = 0; i < 9 * count; ++i) some.add({0});
    for (index_t i = 0; i < count; ++i) some.add(last);
    attend_listed(step, 0, queries.from(0), some.all(), to);
  };
  says([&] { attend({1}); }, "append the keys of layer 0 before");
  step.append(0, keys.from(0), values.from(0));
  says([&] { attend({2, 2}); }, "position 2 is listed for the token at 9: wanted ascending ones from 3 to 9");
  says([&] { attend({4, 3}); }, "position 3 is listed");
  says([&] { attend({10}); }, "position 10 is listed");
  says([&] { attend({1, -1, 2}); }, "position 2 is listed");
  says([&] { attend({-2}); }, "position -2 is listed");
  says([&] { attend({1}, 3); }, "attend_listed: listed is");
  attend({1, 9}, 2);
  says([&] { attend({1}); }, "was attended or observed in this pass already");
  step.commit();

  limits.logits.window = 4;
  zoomr::kv_cache windowed(model, zoomr::presets::full, limits);
  auto in_window = windowed.begin(windowed.open(), view<const token_id>(ids), true);
  in_window.append(0, keys.from(0), values.from(0));
  lists some{1, 1};
  for (index_t t = 0; t < 10; ++t) some.add({t == 9 ? 5 : t});
  says([&] { attend_listed(in_window, 0, queries.from(0), some.all(), to); }, "wanted ascending ones from 6 to 9");

  zoomr::kv_cache chooses(model, zoomr::presets::quest, limits_of(64));
  auto choosing = chooses.begin(chooses.open(), view<const token_id>(ids), true);
  choosing.append(0, keys.from(0), values.from(0));
  says([&] { attend_listed(choosing, 0, queries.from(0), some.all(), to); }, "take one that attends everything");
}

TEST_CASE("lists are read in an engine's pages") {
  constexpr index_t tokens = 21, in_page = 4, page_count = 8;
  std::vector<float> key_pages(page_count * in_page * 2 * 16), value_pages(page_count * in_page * 2 * 24);
  void *keys_of_layer[] = {key_pages.data()}, *values_of_layer[] = {value_pages.data()};
  zoomr::config limits = limits_of(32);
  zoomr::kv_cache own(model, zoomr::presets::full, limits);
  limits.engine = zoomr::engine_memory::nhd(view<void* const>(keys_of_layer, {1}),
                                            view<void* const>(values_of_layer, {1}), page_count, in_page, model);
  zoomr::kv_cache engines(model, zoomr::with_placement(zoomr::presets::full, zoomr::engine_pages{}), limits);
  const std::vector<token_id> ids(tokens);
  const std::vector<index_t> table{7, 2, 5, 0, 1, 6};
  const step_item item{engines.open(), view<const token_id>(ids), true, view<const index_t>(table)};
  auto in_engine = engines.begin(view<const step_item>(&item, {1}));
  auto in_own = own.begin(own.open(), view<const token_id>(ids), true);
  unit::random random(6);
  rows keys{2, 16}, values{2, 24}, queries{6, 16};
  keys.grow(tokens, random), values.grow(tokens, random), queries.grow(tokens, random);
  lists some{2, 2};
  for (index_t t = 0; t < tokens; ++t) some.add({t / 3}), some.add({t});
  std::vector<float> out(tokens * 6 * 24), wanted(out);
  in_engine.append(0, keys.from(0), values.from(0)), in_own.append(0, keys.from(0), values.from(0));
  attend_listed(in_engine, 0, queries.from(0), some.all(), {out.data(), {tokens, 6, 24}});
  attend_listed(in_own, 0, queries.from(0), some.all(), {wanted.data(), {tokens, 6, 24}});
  CHECK(out == wanted);
  in_engine.commit(), in_own.commit();
}

TEST_CASE("in a grouped cache a layer attends to lists, and one with a window as ever") {
  const zoomr::config limits = limits_of(32);
  zoomr::config in_window = limits;
  in_window.logits.window = 8;
  std::vector<zoomr::any_kv_cache<float>> groups;
  groups.push_back(zoomr::kv_cache(model, zoomr::presets::full, limits));
  groups.push_back(zoomr::kv_cache(model, zoomr::presets::full, in_window));
  const std::vector<index_t> group_of{0, 1};
  zoomr::grouped_kv_cache<float> both(std::move(groups), view<const index_t>(group_of));
  zoomr::kv_cache one(model, zoomr::presets::full, limits);
  const std::vector<token_id> ids(20);
  auto of_both = both.begin(both.open(), view<const token_id>(ids), true);
  auto of_one = one.begin(one.open(), view<const token_id>(ids), true);
  unit::random random(8);
  rows keys{2, 16}, values{2, 24}, queries{6, 16};
  keys.grow(20, random), values.grow(20, random), queries.grow(20, random);
  lists some{1, 4};
  for (index_t t = 0; t < 20; ++t) some.add(t < 3 ? std::vector<index_t>{t} : std::vector<index_t>{0, t / 2, t});
  std::vector<float> out(20 * 6 * 24), wanted(out);
  const view<float, 3> to(out.data(), {20, 6, 24});
  of_both.append(0, keys.from(0), values.from(0)), of_one.append(0, keys.from(0), values.from(0));
  attend_listed(of_both, 0, queries.from(0), some.all(), to);
  attend_listed(of_one, 0, queries.from(0), some.all(), {wanted.data(), {20, 6, 24}});
  CHECK(out == wanted);
  of_both.append(1, keys.from(0), values.from(0)), of_both.attend(1, queries.from(0), to);
  of_both.commit(), of_one.commit();
}

// ---- lists by index keys ----

constexpr index_t index_heads = 3, index_dim = 8;
constexpr shape index_shape{1, index_heads, 1, index_dim, 8, true};

/// The rule as its header states it, in double: the positions that a query reads.
std::vector<index_t> by_rule(const index_rule& rule, const rows& keys, index_t tokens,
                             const std::vector<const float*>& queries, const std::vector<double>& weights) {
  const index_t complete = tokens / rule.block, open = tokens - complete * rule.block;
  const bool beside = rule.own == zoomr::own_block::beside_open && open > 0;
  std::vector<double> scores;
  for (index_t block = 0; block < complete + (open > 0 && !beside ? 1 : 0); ++block) {
    double score = 0;
    const index_t first = block * rule.block, last = std::min(first + rule.block, tokens);
    for (std::size_t head = 0; head < queries.size(); ++head) {
      double product = rule.product == zoomr::block_product::mean ? 0 : -1e300;
      for (index_t t = first; t < last; ++t) {
        const double one = naive_dot(index_dim, queries[head], keys.at(t, 0));
        product = rule.product == zoomr::block_product::mean ? product + one / (last - first) : std::max(product, one);
      }
      score += weights[head] * (rule.relu ? std::max(product, 0.0) : product);
    }
    scores.push_back(score);
  }
  std::vector<index_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](index_t a, index_t b) { return scores[size(a)] > scores[size(b)]; });
  if (rule.own == zoomr::own_block::first) {
    const index_t own = static_cast<index_t>(scores.size()) - 1;
    order.erase(std::find(order.begin(), order.end(), own));
    order.insert(order.begin(), own);
  }
  order.resize(std::min(order.size(), size(rule.most)));
  std::vector<index_t> listed;
  for (const index_t block : order) {
    for (index_t t = block * rule.block; t < std::min((block + 1) * rule.block, tokens); ++t) listed.push_back(t);
  }
  for (index_t t = complete * rule.block; beside && t < tokens; ++t) listed.push_back(t);
  std::sort(listed.begin(), listed.end());
  return listed;
}

/// Random lives of an index: prompts, drafts, rejected tokens, rollback, forks. Keys and queries are small integers, so
/// that each product is exact, and many are equal.
template <class T>
void check_index(const index_rule& rule, bool together, std::uint64_t seed, const zoomr::executor& threads = {}) {
  constexpr index_t most = 90;
  zoomr::config limits = limits_of(most);
  limits.threads = threads;
  zoomr::kv_cache<decltype(zoomr::presets::full), T> cache(index_shape, zoomr::presets::full, limits);
  unit::random random(seed);
  const auto integers = [&](rows& to, index_t count) {
    for (index_t i = 0; i < count * to.heads * to.width; ++i) {
      to.numbers.push_back(static_cast<float>(random.between(-2, 2)));
    }
  };
  std::vector<sequence> open{cache.open(), cache.open()};
  std::vector<rows> keys(2, rows{1, index_dim});
  for (int step_number = 0; step_number < 24; ++step_number) {
    std::vector<step_item> items;
    std::vector<token_id> ids(40);
    rows new_keys{1, index_dim}, queries{index_heads, index_dim}, weights{index_heads, 1};
    std::vector<index_t> before;
    std::vector<bool> prompt;
    for (std::size_t s = 0; s < open.size(); ++s) {
      const index_t held = cache.tokens(open[s]);
      before.push_back(held);
      const index_t count = std::min(held == 0 ? random.between(1, 40) : random.between(1, 6), most - held);
      if (count == 0) return;
      prompt.push_back(cache.in_prompt(open[s]));
      items.push_back({open[s], view<const token_id>(ids.data(), {count}), prompt.back()});
      const index_t first = new_keys.tokens();
      integers(new_keys, count), integers(queries, count), integers(weights, count);
      const float* const own = new_keys.at(first, 0);
      keys[s].numbers.resize(size(held * index_dim));
      keys[s].numbers.insert(keys[s].numbers.end(), own, own + count * index_dim);
    }
    auto step = cache.begin(view<const step_item>(items));
    lists got{together ? 1 : index_heads, rule.most_tokens()};
    got.positions.resize(size(step.tokens() * got.count * got.most), -7);
    step.append(0, new_keys.from(0));
    const view<const float, 2> of_heads(weights.numbers.data(), {step.tokens(), index_heads});
    const bool weighted = together && rule.relu;
    list_by_index(step, 0, rule, queries.from(0), weighted ? of_heads : view<const float, 2>{}, got.all());
    for (std::size_t s = 0; s < open.size(); ++s) {
      const auto item = static_cast<index_t>(s);
      for (index_t t = 0; t < step.taken(item); ++t) {
        const index_t row = step.packed(item) + t;
        for (index_t list = 0; list < got.count; ++list) {
          std::vector<const float*> of_query;
          std::vector<double> factors;
          for (index_t head = 0; head < index_heads; ++head) {
            if (!together && head != list) continue;
            of_query.push_back(queries.at(row, head));
            factors.push_back(weighted ? static_cast<double>(of_heads(row, head)) : 1.0);
          }
          lists wanted{1, rule.most_tokens()};
          wanted.add(by_rule(rule, keys[s], before[s] + t + 1, of_query, factors));
          const view<const index_t> found = got.all()[row][list];
          CHECK(std::equal(found.begin(), found.end(), wanted.positions.begin()));
        }
      }
    }
    std::vector<index_t> accepted;
    for (std::size_t s = 0; s < open.size(); ++s) {
      accepted.push_back(prompt[s] ? step.taken(static_cast<index_t>(s))
                                   : random.between(0, step.taken(static_cast<index_t>(s))));
    }
    step.commit(view<const index_t>(accepted));
    const index_t held = cache.tokens(open[0]);
    if (random.chance(0.3) && held > before[0]) cache.rollback(open[0], held - 1);
    if (random.chance(0.2)) {
      cache.close(open[1]);
      open[1] = cache.fork(open[0]), keys[1] = keys[0];
    }
  }
}

TEST_CASE("index keys of DSA, MSA and QSA list what their rules say, ties to the first block") {
  using zoomr::block_product, zoomr::own_block;
  const index_rule rules[] = {{1, 5, block_product::largest, true, own_block::ranked},
                              {1, 200, block_product::largest, true, own_block::ranked},
                              {8, 3, block_product::largest, false, own_block::first},
                              {17, 1, block_product::largest, false, own_block::first},
                              {4, 3, block_product::mean, true, own_block::beside_open},
                              {16, 2, block_product::mean, false, own_block::beside_open}};
  zoomr::thread_pool pool(3);
  std::uint64_t seed = 1;
  for (const index_rule& rule : rules) {
    for (int life = 0; life < 24; ++life) {
      check_index<float>(rule, true, seed++);
      check_index<float>(rule, false, seed++);
    }
    check_index<zoomr::bfloat16>(rule, true, seed++, zoomr::executor(pool, pool.threads(), 1));
  }
}

TEST_CASE("the published rules have their numbers, and an index that cannot be is refused with a sentence") {
  CHECK(zoomr::dsa_rule.most_tokens() == 2048);
  CHECK(zoomr::msa_rule.most_tokens() == 2048);
  CHECK(zoomr::qsa_rule.most_tokens() == 2051);
  const std::vector<token_id> ids(2);
  std::vector<float> numbers(64);
  std::vector<index_t> room(64);
  const auto refused = [&](const shape& kind, index_rule rule, index_t wide, const char* part) {
    zoomr::kv_cache cache(kind, zoomr::presets::full, limits_of(16));
    auto step = cache.begin(cache.open(), view<const token_id>(ids), true);
    step.append(0, view<const float, 3>(numbers.data(), {2, kind.kv_heads, kind.head_dim}));
    const view<const float, 3> queries(numbers.data(), {2, kind.heads, kind.head_dim});
    says([&] { list_by_index(step, 0, rule, queries, {}, {room.data(), {2, 1, wide}}); }, part);
  };
  refused(index_shape, {0, 4}, 4, "block and most must be at least 1");
  refused(index_shape, {1 << 20, 1 << 20}, 4, "2^31 tokens or more");
  refused(index_shape, {2, 2}, 5, "list_by_index: listed is");
  refused({1, 2, 2, 8, 8, true}, {2, 2}, 4, "index keys are of one KV head");
}

}  // namespace
}  // namespace zoomr_test
