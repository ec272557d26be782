// SPDX-License-Identifier: Apache-2.0
// A cache that works with the caller's threads gives the bits, choices and statistics of one that works alone, for
// every policy, whatever runs the pieces of work and in whatever order. The program is compiled twice: the other time
// with ThreadSanitizer.
#include <cache/support/small_policies.hpp>
#include <zoomr/core/threads/crew.hpp>
#include <zoomr/core/threads/thread_pool.hpp>

#include <doctest/doctest.h>
#include <support/inputs.hpp>
#include <support/voters.hpp>

#include <algorithm>  // std::min
#include <atomic>     // std::atomic
#include <cstring>    // std::memcmp
#include <string>     // std::string
#include <thread>     // std::thread
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using zoomr::view;

constexpr shape model{2, 8, 4, 16};
constexpr std::int64_t worth = 1;  // numbers: threads are used for whatever there is
constexpr index_t prompt = 150, chunk = 90, tokens = 210, draft = 3;

/// Does the pieces one after the other, the last first.
struct backwards {
  void operator()(index_t pieces, const zoomr::task_ref& task) const {
    for (index_t i = pieces - 1; i >= 0; --i) task(i);
  }
};

/// A thread for each piece; all begin at once, so that none does the work of all.
struct at_once {
  std::int64_t calls = 0;
  void operator()(index_t pieces, const zoomr::task_ref& task) {
    ++calls;
    std::atomic<index_t> missing{pieces};
    std::vector<std::thread> all;
    for (index_t i = 0; i < pieces; ++i) {
      all.emplace_back([&, i] {
        for (--missing; missing > 0;) std::this_thread::yield();
        task(i);
      });
    }
    for (std::thread& one : all) one.join();
  }
};

/// What a cache has given for a text.
struct played {
  std::vector<float> numbers;  // outputs and log sums of all passes
  zoomr::statistics stats;
  std::vector<std::vector<zoomr::level>> rows;  // active at the end
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// The prompt in chunks, then drafts of which now and then a token is rejected.
template <class Policy>
played play(const Policy& policy, const zoomr::executor& on, const tensors& given, const std::vector<token_id>& ids) {
  zoomr::config limits;
  limits.max_tokens = 256, limits.max_batched_tokens = chunk, limits.rollback_tokens = 8;
  limits.classes = classes;
  limits.audit = true;
  limits.threads = on;
  zoomr::kv_cache<Policy> cache(model, policy, with_voters(policy, limits, model));
  const zoomr::sequence seq = cache.open();
  played made;
  std::vector<float> keys, values, queries, out, lse;
  const auto fill = [&](role of, index_t heads, std::vector<float>& into, index_t first, index_t count, index_t layer,
                        index_t pass) {
    into.resize(static_cast<std::size_t>(count) * static_cast<std::size_t>(heads * model.head_dim));
    for (index_t t = 0; t < count; ++t) {
      for (index_t head = 0; head < heads; ++head) {
        given.fill(of, ids[static_cast<std::size_t>(first + t)], first + t, layer, head, pass,
                   into.data() + (std::int64_t{t} * heads + head) * model.head_dim);
      }
    }
    return zoomr::extents<3>{{count, heads, model.head_dim}};
  };
  const auto append = [&](auto& all, const auto& some) { all.insert(all.end(), some.begin(), some.end()); };
  for (index_t at = 0; at < tokens;) {
    const bool in_prompt = at < prompt;
    const index_t wanted = in_prompt ? std::min(chunk, prompt - at) : std::min(draft, tokens - at);
    auto step = cache.begin(seq, view<const token_id>(ids).slice(at, at + wanted), in_prompt && at + wanted == prompt);
    const index_t taken = step.taken(0);
    const index_t accepted = in_prompt || at % 4 != 0 || taken == 1 ? taken : taken - 1;
    index_t pass = 0;
    do {
      const index_t count = step.tokens();
      const index_t first = pass == 0 ? at : at + accepted - 1;
      for (index_t layer = 0; layer < model.layers; ++layer) {
        const auto of_keys = fill(role::key, model.kv_heads, keys, first, count, layer, pass);
        fill(role::value, model.kv_heads, values, first, count, layer, pass);
        step.append(layer, view<const float, 3>(keys.data(), of_keys), view<const float, 3>(values.data(), of_keys));
        const auto of_queries = fill(role::query, model.heads, queries, first, count, layer, pass);
        out.assign(queries.size(), -1.0f), lse.assign(static_cast<std::size_t>(count * model.heads), -1.0f);
        step.attend(layer, view<const float, 3>(queries.data(), of_queries), view<float, 3>(out.data(), of_queries),
                    view<float, 2>(lse.data(), {count, model.heads}));
        append(made.numbers, out), append(made.numbers, lse);
      }
      ++pass;
    } while (step.needs_second_pass(accepted));
    step.commit(accepted);
    at += accepted;
  }
  made.stats = cache.stats(seq);
  for (index_t row = 0; row < cache.selection_rows(); ++row) {
    const auto levels = cache.selected(seq, row).levels;
    made.rows.emplace_back(levels.begin(), levels.end());
  }
  return made;
}

/// In the first of three threads that enter together.
template <class Policy>
played played_by_crew(const Policy& policy, const tensors& given, const std::vector<token_id>& ids) {
  zoomr::crew crew(5);
  played made;
  std::vector<std::thread> others;
  for (index_t i = 1; i < 3; ++i) others.emplace_back([&crew, i] { crew.run(i, 3, [] {}); });
  crew.run(0, 3, [&] { made = play(policy, zoomr::executor(crew, crew.threads(), worth), given, ids); });
  for (std::thread& other : others) other.join();
  return made;
}

template <class Policy>
void check(const char* name, const Policy& policy) {
  CAPTURE(std::string(name));
  const std::vector<token_id> ids = text_of(markup::pairs, tokens, prompt, 7);
  const tensors given{model, kind::peaked, 11};
  const played alone = play(policy, {}, given, ids);
  REQUIRE(alone.stats.tokens == tokens - prompt);
  const auto compare_with = [&](const char* how, const played& other) {
    CAPTURE(std::string(how));
    CHECK(same_bits(alone.numbers, other.numbers));
    CHECK(alone.stats == other.stats);
    CHECK(alone.rows == other.rows);
  };
  const auto compare = [&](const char* how, const zoomr::executor& on) {
    compare_with(how, play(policy, on, given, ids));
  };
  backwards from_the_end;
  compare("backwards", zoomr::executor(from_the_end, 3, worth));
  zoomr::thread_pool pool(4);
  compare("pool", zoomr::executor(pool, pool.threads(), worth));
  at_once threads;
  compare("at once", zoomr::executor(threads, 2, worth));
  CHECK(threads.calls > 50);
  compare_with("crew", played_by_crew(policy, given, ids));
#if !defined(__SANITIZE_THREAD__)
  zoomr::thread_pool many(11);
  compare("more threads than heads", zoomr::executor(many, many.threads(), worth));
#endif
}

/// Outputs and log sums of drafts behind a long prompt, whose tokens several threads share along their slots.
std::vector<float> play_long(const zoomr::executor& on) {
  constexpr shape small{1, 4, 2, 16};
  constexpr index_t context = 2590, chunk_size = 512, last = 2599;
  zoomr::config limits;
  limits.max_tokens = last, limits.threads = on;
  zoomr::kv_cache<decltype(zoomr::presets::full)> cache(small, zoomr::presets::full, limits);
  const zoomr::sequence seq = cache.open();
  const std::vector<token_id> ids(std::size_t{last}, 1);
  dice random(5);
  std::vector<float> numbers(std::size_t{chunk_size} * 4 * 16 + last), out, made;
  for (float& number : numbers) number = static_cast<float>(random.between(-1000, 1000)) / 500.0f;
  for (index_t at = 0; at < last;) {
    const bool in_prompt = at < context;
    const index_t count = in_prompt ? std::min(chunk_size, context - at) : draft;
    auto step = cache.begin(seq, view<const token_id>(ids).slice(at, at + count), in_prompt && at + count == context);
    const float* const first = numbers.data() + at;  // other numbers for each step
    const view<const float, 3> rows(first, {count, small.kv_heads, small.head_dim});
    const view<const float, 3> queries(first, {count, small.heads, small.head_dim});
    step.append(0, rows, rows);
    if (in_prompt) {
      step.observe(0, queries);
    } else {
      out.resize(static_cast<std::size_t>(count) * 4 * 17);
      step.attend(0, queries, view<float, 3>(out.data(), {count, small.heads, small.head_dim}),
                  view<float, 2>(out.data() + std::int64_t{count} * 4 * 16, {count, small.heads}));
      made.insert(made.end(), out.begin(), out.end());
    }
    step.commit(count);
    at += count;
  }
  return made;
}

}  // namespace

TEST_CASE("threads: a token that several share along its slots has the bits of one thread") {
  const std::vector<float> alone = play_long({});
  REQUIRE(alone.size() == 9 * 4 * 17);
  at_once threads;
  CHECK(same_bits(alone, play_long(zoomr::executor(threads, 2, worth))));
  CHECK(threads.calls >= 6);  // of each draft the context, and what is left
  zoomr::thread_pool pool(3);
  CHECK(same_bits(alone, play_long(zoomr::executor(pool, 3, worth))));
  zoomr::crew crew(8);
  std::vector<std::thread> others;
  for (index_t i = 1; i < 8; ++i) others.emplace_back([&crew, i] { crew.run(i, 8, [] {}); });
  crew.run(0, 8, [&] { CHECK(same_bits(alone, play_long(zoomr::executor(crew, 8, worth)))); });
  for (std::thread& other : others) other.join();
}

TEST_CASE("threads: bits, choices and statistics do not depend on how many work") {
#if defined(__SANITIZE_THREAD__)
  check("sentence_kv", small::sentence_kv);
  check("zoomr_focus", small::zoomr_focus);
  check("by_kv_head", small::by_kv_head);
  check("h2o", small::h2o);
#else
  for_each_policy([](const char* name, const auto& policy) { check(name, policy); });
#endif
}

TEST_CASE("threads: a config without any is refused, and working memory is counted") {
  backwards any;
  zoomr::config limits;
  const auto bytes = [&](index_t threads) {
    limits.threads = zoomr::executor(any, threads);
    return zoomr::kv_cache<decltype(zoomr::presets::snapkv)>::bytes(model, zoomr::presets::snapkv, limits);
  };
  CHECK_THROWS_AS(bytes(0), zoomr::precondition_error);
  CHECK_THROWS_AS(bytes(1025), zoomr::precondition_error);
  const zoomr::memory_use one = bytes(1), three = bytes(3);
  CHECK(three.workspace > one.workspace);
  CHECK(three.details == one.details);
}

}  // namespace zoomr_test
