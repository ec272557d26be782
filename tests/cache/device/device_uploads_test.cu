// SPDX-License-Identifier: Apache-2.0
// The host may be ahead of the device: by some steps, whose tables nobody overwrites, and by no more.
#include <cache/device/device_against_host.hpp>
#include <cache/support/small_policies.hpp>

#include <doctest/doctest.h>

namespace zoomr_test {
namespace {

using quest_type = std::remove_const_t<decltype(small::quest)>;
using quest_cache = zoomr::device_cache<quest_type, float, 8, 2>;

/// A cache whose steps are enqueued on a stream of its own, with numbers that never change.
struct ahead {
  static constexpr index_t max_batched_tokens = 8;
  device_array<std::byte> memory;
  device_array<float> numbers{max_batched_tokens * 4 * 8, 0.5f}, out{max_batched_tokens * 4 * 8, 0.0f},
      lse{max_batched_tokens * 4, 0.0f};
  zoomr::own_stream own;
  zoomr::stream_ref on = own.get();
  quest_cache cache;
  zoomr::sequence seq;

  static zoomr::config limits() {
    zoomr::config made = limits_for(64);
    made.max_batched_tokens = max_batched_tokens;
    return made;
  }
  ahead()
      : memory(quest_cache::bytes(model, small::quest, limits()), std::byte{0xff}),
        cache(model, small::quest, limits(), memory.data(), on),
        seq(cache.open()) {}

  quest_cache::step_type begin(bool prompt_ends = false, bool fixed = false) {
    const std::vector<token_id> ids{1, 2};
    return cache.begin(seq, view<const token_id>(ids), prompt_ends, fixed);
  }
  view<float, 3> of(device_array<float>& array, index_t heads) {
    return {array.data(), {max_batched_tokens, heads, 8}};
  }
  void enqueue(quest_cache::step_type& step) {
    step.start(on);
    for (index_t layer = 0; layer < model.layers; ++layer) {
      step.append(layer, view<const float, 3>(of(numbers, 2)), view<const float, 3>(of(numbers, 2)), on);
      step.attend(layer, view<const float, 3>(of(numbers, 4)), of(out, 4),
                  view<float, 2>(lse.data(), {max_batched_tokens, 4}), on);
    }
  }
  void whole_step(bool prompt_ends = false) {
    auto step = begin(prompt_ends);
    enqueue(step);
    step.commit(2, on);
  }
};

}  // namespace

TEST_CASE("tables of config.logits may go as soon as the cache is made") {
#if defined(ZOOMR_SIMT)
  const simt::scoped_settings until_then(simt::with_streams(simt::schedule::late));
#endif
  const zoomr::own_stream own;
  std::vector<float> sinks(std::size_t{2} * 4, -1.0f), slopes(4, 0.25f);
  zoomr::config limits = ahead::limits();
  limits.logits.sinks = view<const float, 2>(sinks.data(), {2, 4});
  limits.logits.alibi_slopes = view<const float>(slopes);
  device_array<std::byte> memory(quest_cache::bytes(model, small::quest, limits), std::byte{0xff});
  const auto copied = [&](const float* from, std::size_t count) {
    std::vector<float> found(count);
    copy_from_device(found.data(), from, count * sizeof(float), own.get());
    wait_for(own.get());
    return found;
  };
  {
    const quest_cache cache(model, small::quest, limits, memory.data(), own.get());
    sinks.assign(sinks.size(), 99.0f), slopes.assign(slopes.size(), 99.0f);
    CHECK(copied(cache.arrays().sinks, 8) == std::vector<float>(8, -1.0f));
    CHECK(copied(cache.arrays().slopes, 4) == std::vector<float>(4, 0.25f));
  }
  const quest_cache unused(model, small::quest, limits, memory.data(), own.get());
}

TEST_CASE("tables must be uploaded before a capture, not by it, and a step that never was is not committed") {
  ahead of;
  of.whole_step(true);
  {
    auto step = of.begin(false, true);  // a graph may have made all calls
    CHECK(mistake_of([&] { step.commit(2, of.on); }).find("the device was not told of this pass") != std::string::npos);
    CHECK(of.cache.tokens(of.seq) == 2);
    step.commit(0, of.on);  // of a step that is evicted nothing need be known
  }
  stream_graph graph;
  {
    auto step = of.begin(false, true);
    graph.begin(of.on);
    CHECK(mistake_of([&] { step.start(of.on); }).find("call upload before the capture") != std::string::npos);
    CHECK(mistake_of([&] { step.upload(of.on); }).find("call upload before the capture") != std::string::npos);
    graph.end(of.on);
    step.upload(of.on);
    step.upload(of.on);  // once is enough
    stream_graph whole;
    whole.begin(of.on);
    of.enqueue(step);
    CHECK(mistake_of([&] { step.commit(2, of.on); }) == "zoomr: commit: a commit is not part of a graph");
    whole.end(of.on);
    whole.launch(of.on);
    step.commit(2, of.on);
  }
  CHECK(of.cache.tokens(of.seq) == 4);
  wait_for(of.on);
  CHECK(of.out.values()[0] == doctest::Approx(0.5));
}

#if defined(ZOOMR_SIMT)

TEST_CASE("a cache belongs to the device that was current when it was made, and says so while another is") {
  ahead of;
  of.whole_step(true);
  const std::string other = ": the cache was made on device 0, device 1 is current: call cudaSetDevice before";
  const auto on_other = [&](auto call) {
    simt::device_number = 1;
    const std::string sentence = mistake_of(call);
    simt::device_number = 0;
    return sentence;
  };
  CHECK(on_other([&] { of.begin(); }) == "zoomr: begin" + other);
  CHECK(on_other([&] { of.cache.fork(of.seq, of.on); }) == "zoomr: fork" + other);
  {
    auto step = of.begin();
    CHECK(on_other([&] { step.start(of.on); }) == "zoomr: step" + other);
    of.enqueue(step);
    CHECK(on_other([&] { step.commit(2, of.on); }) == "zoomr: commit" + other);
    step.commit(2, of.on);
  }
  CHECK(of.cache.tokens(of.seq) == 4);
  wait_for(of.on);
}

namespace {

/// Everything under one schedule until the end of a scope.
struct under {
  explicit under(simt::schedule when, std::uint64_t seed = 1) : until_then(simt::with_streams(when)) {
    simt::streams.random.seed(seed);
  }
  simt::scoped_settings until_then;
};

/// True if `begin` says that the device is too far behind.
bool is_busy(ahead& of) {
  try {
    of.begin();
  } catch (const zoomr::error& problem) {
    CHECK(problem.code() == zoomr::errc::busy);
    CHECK(std::string(problem.what()) ==
          "zoomr: the device has yet to copy the tables of a step 4 before this one: read what an earlier step gives, "
          "or call wait()");
    return true;
  }
  return false;
}

}  // namespace

TEST_CASE("four steps may wait; the fifth is refused, until the first has been waited for") {
  const under schedule(simt::schedule::late);
  ahead of;
  for (int step = 0; step < 4; ++step) {
    CHECK(of.cache.ready());
    of.whole_step(step == 3);
  }
  CHECK(!of.cache.ready());
  CHECK(is_busy(of));
  CHECK(is_busy(of));  // and nothing has changed
  CHECK(of.cache.tokens(of.seq) == 8);
  of.cache.wait();
  CHECK(of.cache.ready());
  of.whole_step();
  CHECK(is_busy(of));  // the second has yet to come
  wait_for(of.on);
  CHECK(!is_busy(of));
  CHECK(of.out.values()[0] == doctest::Approx(0.5));
}

TEST_CASE("a step that is dropped before it has begun on the device leaves nothing to wait for") {
  const under schedule(simt::schedule::late);
  ahead of;
  of.whole_step(true);
  for (int i = 0; i < 3; ++i) of.begin();
  CHECK(!of.cache.ready());  // the first
  wait_for(of.on);
  for (int i = 0; i < 9; ++i) of.begin();
  CHECK(of.cache.ready());
  for (int i = 0; i < 4; ++i) of.begin().start(of.on);  // dropped after their tables were sent
  CHECK(!of.cache.ready());
}

TEST_CASE("an engine that reads the outputs of each step before the next is never refused, nor one that waits") {
  for (const std::uint64_t seed : {1u, 2u, 3u}) {
    for (const simt::schedule when : {simt::schedule::late, simt::schedule::random}) {
      const under schedule(when, seed);
      ahead of;
      for (int step = 0; step < 10; ++step) {
        auto taken = of.begin(step == 0);
        of.enqueue(taken);
        zoomr::stream_event outputs;
        outputs.record(of.on);
        outputs.wait();
        taken.commit(2, of.on);
      }
      for (int step = 0; step < 10; ++step) {
        of.cache.wait();
        of.whole_step();
      }
      CHECK(of.cache.tokens(of.seq) == 40);
    }
  }
}

TEST_CASE("a cache that goes waits for its own pinned memory") {
  const under schedule(simt::schedule::late);
  {
    ahead of;
    of.whole_step(true);
    wait_for(of.on);
    of.begin().start(of.on);
  }
  simt::finish_all();  // throws if something was copied from memory that is gone
}

/// What one token of each of eight sequences takes on the device.
struct taken {
  std::int64_t of_start = 0, of_layer = 0, bytes = 0;
  std::vector<bool> lists;  // of each layer: whether blocks found ranges together, by scans (core/device/block.cuh)
};
template <class Policy>
taken by_a_step(const Policy& policy, bool at_once) {
  const under schedule(simt::schedule::early);
  constexpr index_t sequences = 8, most = 64;
  using eight = zoomr::device_cache<Policy, float, 8, 2>;
  zoomr::config limits = limits_for(64, sequences);
  limits.max_batched_tokens = most, limits.max_draft_tokens = 1;
  device_array<std::byte> memory(eight::bytes(model, policy, limits), std::byte{0xff});
  device_array<float> numbers{most * 4 * 8, 0.5f}, out{most * 4 * 8, 0.0f}, lse{most * 4, 0.0f};
  const zoomr::stream_ref on{};
  eight cache(model, policy, limits, memory.data(), on);
  std::vector<zoomr::sequence> open;
  for (index_t s = 0; s < sequences; ++s) open.push_back(cache.open());
  const std::vector<token_id> ids(most / sequences, 1);
  taken made;
  for (const index_t each : {most / sequences, 1, 1}) {
    std::vector<zoomr::step_item> items;
    for (const auto seq : open) items.push_back({seq, view<const token_id>(ids).slice(0, each), each > 1});
    auto step = cache.begin(items);
    simt::counted = {};
    step.start(on);
    made.of_start = simt::counted.launches, made.bytes = simt::counted.copied;
    const auto rows = [&](index_t heads) { return view<const float, 3>(numbers.data(), {each * sequences, heads, 8}); };
    const view<float, 3> outputs(out.data(), {each * sequences, 4, 8});
    const view<float, 2> ends(lse.data(), {each * sequences, 4});
    made.lists.clear();
    for (index_t layer = 0; layer < model.layers; ++layer) {
      simt::counted = {};
      simt::barriers_seen.clear();
      if (at_once) {
        step.attend(layer, rows(4), rows(2), rows(2), outputs, ends, on);
      } else {
        step.append(layer, rows(2), rows(2), on);
        step.attend(layer, rows(4), outputs, ends, on);
      }
      if (layer == 0) made.of_layer = simt::counted.launches;  // behind the last one a choice for all may follow
      made.lists.push_back(
          std::ranges::any_of(simt::barriers_seen, [](const std::string& at) { return at.starts_with("block.cuh:"); }));
    }
    step.commit(std::vector<index_t>(sequences, each), on);
  }
  return made;
}

TEST_CASE("after the prompts a layer takes two launches, and a token of each of eight sequences 4 KB of table") {
  const auto check_counts = [](const auto& policy) {
    const taken at_once = by_a_step(policy, true), in_two = by_a_step(policy, false);
    CHECK(at_once.of_layer == 2);
    CHECK(in_two.of_layer == 3);
    CHECK(at_once.of_start <= 3);
    CHECK(at_once.bytes > 0);
    CHECK(at_once.bytes <= 4096);
  };
  check_counts(small::quest);
  check_counts(small::sentence_kv);
  check_counts(zoomr::presets::zoomr_one_pass);
  check_counts(zoomr::presets::full);
}

TEST_CASE("where all layers read the same the first one finds ranges, and the first one that is not dense") {
  const std::vector<bool> first_alone = {true, false}, each = {true, true};
  REQUIRE(model.layers == 2);
  constexpr auto chosen_once = zoomr::compose(zoomr::fixed_pages{}, zoomr::key_mean{}, zoomr::mean_dot{},
                                              zoomr::head_votes{.k = 2}, zoomr::top_k{.segments = 2});
  constexpr auto dense_first = with(chosen_once, [](auto& p) { p.zone.dense_layers = 1; });
  CHECK(by_a_step(zoomr::presets::full, true).lists == first_alone);
  CHECK(by_a_step(chosen_once, true).lists == first_alone);
  CHECK(by_a_step(dense_first, true).lists == each);
  CHECK(by_a_step(small::quest, true).lists == each);
}

// Chunks of a prompt one after the other, whose queries are observed and whose outputs nobody reads; then tokens, whose
// outputs are waited for, and nothing else.
TEST_CASE("chunks and commits that the device has yet to come to are what they were") {
  for (const simt::schedule when : {simt::schedule::late, simt::schedule::random}) {
    CAPTURE(static_cast<int>(when));
    const under schedule(when);
    check(small::quest, kind::peaked, markup::sentences, 2);
    check(small::sentence_kv, kind::peaked, markup::sentences, 4, false, 50);
  }
}

#endif

}  // namespace zoomr_test
