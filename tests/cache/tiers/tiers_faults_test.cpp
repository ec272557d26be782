// SPDX-License-Identifier: Apache-2.0
// Each allocation and each operation on a tier's file fails once: nothing leaks, nothing hangs, no byte is wrong, and
// what has failed can be done again. (Transfers that fail: tiers_test, and the tests of tiers themselves.)
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <support/allocations.hpp>
#include <support/file_calls.hpp>
#include <support/stride.hpp>
#include <support/temporary_folder.hpp>

#include <filesystem>  // std::filesystem::directory_iterator

namespace zoomr_test {
namespace {

using file_calls::fault;

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 72;
constexpr index_t voices = 2;
constexpr index_t longest_chunk = 20;
constexpr index_t draft = 3;

using at_once = zoomr::tiered<zoomr::lru, zoomr::sync_transfers>;
using beside = zoomr::tiered<>;

const tape& says(index_t voice) {
  static const tape both[voices] = {make_tape(model, kind::uniform, markup::pairs, tokens, 40, 21),
                                    make_tape(model, kind::peaked, markup::sentences, tokens, 37, 22)};
  return both[voice];
}

/// Memory for seven blocks, of twenty, or forty of one KV head.
template <class Policy>
zoomr::config small_tiers(const Policy& policy, const std::string& path) {
  const zoomr::config limits = limits_for(tokens, voices);
  if constexpr (zoomr::tiered_placement<decltype(policy.placement)>) {
    return tiered_limits(model, policy, limits, 7, path.c_str());
  } else {
    return limits;
  }
}

/// Outputs and log-sum-exps of all tokens and passes.
class outcome {
 public:
  outcome() : numbers_(std::size_t{voices} * tokens * 2 * row_size) {}
  float* out(index_t voice, index_t position, index_t pass, index_t layer) {
    const index_t row = ((voice * tokens + position) * 2 + pass) * model.layers + layer;
    return numbers_.data() + static_cast<std::size_t>(row) * layer_size;
  }
  bool operator==(const outcome& other) const {
    return std::memcmp(numbers_.data(), other.numbers_.data(), numbers_.size() * sizeof(float)) == 0;
  }

  static constexpr std::size_t layer_size = model.heads * (model.head_dim + 1);

 private:
  static constexpr std::size_t row_size = model.layers * layer_size;
  std::vector<float> numbers_;  // [voices, tokens, passes, layers, heads * head_dim + heads]
};

/// Two sequences that say their texts together, and may fail on their own. Allocates nothing itself after it was made.
template <class Policy>
class talk {
 public:
  talk(const Policy& policy, const std::string& path, outcome& into)
      : cache_(model, policy, small_tiers(policy, path)), into_(into) {
    for (zoomr::sequence& seq : seqs_) seq = cache_.open();
  }

  bool done() const {
    for (index_t v = 0; v < voices; ++v) {
      if (cache_.tokens(seqs_[v]) < says(v).size()) return false;
    }
    return true;
  }

  /// One step for each sequence that is not at its end, perhaps dropped before the commit.
  /// @return  how many have failed: each is as it was, the others have gone on
  index_t turn(bool drops = false) {
    zoomr::step_item items[voices];
    looks before[voices];
    index_t count = 0;
    for (index_t v = 0; v < voices; ++v) {
      const index_t first = cache_.tokens(seqs_[v]);
      if (first == says(v).size()) continue;
      const bool in_prompt = first < says(v).prompt;
      const index_t last =
          in_prompt ? std::min(first + longest_chunk, says(v).prompt) : std::min(first + draft, says(v).size());
      before[count] = looks_of(v);
      voice_of_[count] = v;
      items[count++] = {seqs_[v], view<const token_id>(says(v).ids).slice(first, last), last == says(v).prompt};
    }
    index_t failed = 0;
    auto step = cache_.begin(view<const zoomr::step_item>(items, {count}));
    const index_t passes = step.passes();
    index_t accepted[voices] = {};
    bool failing[voices] = {};
    const view<const index_t> all_accepted(accepted, {count});
    const auto accept = [&] {
      for (index_t i = 0; i < count; ++i) {
        failing[i] = step.failure(i) != nullptr;
        accepted[i] = failing[i] ? 0 : step.taken(i);
      }
    };
    pass(step, 0);
    accept();
    if (step.needs_second_pass(all_accepted)) {
      wrong += passes == 2 ? 0 : 1;
      pass(step, 1);
      accept();
    }
    if (drops) return 0;
    index_t committed[voices] = {accepted[0], accepted[1]};
    try {
      step.commit(all_accepted);
    } catch (const zoomr::error& why) {
      wrong += why.code() == zoomr::errc::storage ? 0 : 1;
      for (index_t i = 0; i < count; ++i) {
        if (std::strstr(why.what(), i == 0 ? "item 0: " : "item 1: ") == nullptr) continue;
        failing[i] = true;
        committed[i] = 0;
      }
    }
    for (index_t i = 0; i < count; ++i) {
      const looks after = looks_of(voice_of_[i]);
      failed += failing[i] ? 1 : 0;
      if (failing[i] && !(after == before[i])) ++wrong;
      if (after.tokens != before[i].tokens + committed[i] || (!failing[i] && committed[i] == 0)) ++wrong;
      index_t& in_a_row = failures_in_a_row_[voice_of_[i]];
      in_a_row = failing[i] ? in_a_row + 1 : 0;
      if (in_a_row < patience) continue;
      begin_anew(voice_of_[i]);  // what is wrong in the file stays wrong
    }
    return failed;
  }

  void rollback(index_t voice, index_t to) { cache_.rollback(seqs_[voice], to); }
  void begin_anew(index_t voice) {
    cache_.close(seqs_[voice]);
    seqs_[voice] = cache_.open();
    failures_in_a_row_[voice] = 0;
    ++begun_anew;
  }
  index_t length(index_t voice) const { return cache_.tokens(seqs_[voice]); }

  index_t wrong = 0;       // what a step should not have done
  index_t begun_anew = 0;  // sequences that failed too often in a row
  index_t patience = 3;    // so often

 private:
  struct looks {
    index_t tokens = 0;
    index_t segments = 0;
    zoomr::memory_use use;
    friend bool operator==(const looks&, const looks&) = default;
  };
  looks looks_of(index_t v) const {
    return {cache_.tokens(seqs_[v]), cache_.segments(seqs_[v]).size(), cache_.bytes(seqs_[v])};
  }

  template <class Step>
  void pass(Step& step, index_t number) {
    const index_t count = step.tokens();
    const view<float, 3> queries(queries_, {count, model.heads, model.head_dim});
    const view<float, 3> keys(keys_, {count, model.kv_heads, model.head_dim});
    const view<float, 3> values(values_, {count, model.kv_heads, model.head_dim});
    for (index_t layer = 0; layer < model.layers; ++layer) {
      each_token(step, number, [&](index_t voice, index_t position, index_t packed) {
        const token_id id = says(voice).ids[static_cast<std::size_t>(position)];
        const auto fill = [&](role of, index_t heads, const view<float, 3>& rows) {
          for (index_t head = 0; head < heads; ++head) {
            says(voice).numbers.fill(of, id, position, layer, head, number, &rows(packed, head, 0));
          }
        };
        fill(role::key, model.kv_heads, keys);
        fill(role::value, model.kv_heads, values);
        fill(role::query, model.heads, queries);
      });
      step.append(layer, keys, values);
      step.attend(layer, queries, view<float, 3>(out_, {count, model.heads, model.head_dim}),
                  view<float, 2>(lse_, {count, model.heads}));
      each_token(step, number, [&](index_t voice, index_t position, index_t packed) {
        constexpr index_t size = model.heads * model.head_dim;
        float* to = into_.out(voice, position, number, layer);
        std::copy_n(out_ + packed * size, size, to);
        std::copy_n(lse_ + packed * model.heads, model.heads, to + size);
      });
    }
  }

  // body(voice, position, packed)
  template <class Step, class Body>
  void each_token(const Step& step, index_t number, Body body) const {
    for (index_t i = 0; i < step.items(); ++i) {
      if (!step.active(i)) continue;
      for (index_t t = 0; t < (number == 0 ? step.taken(i) : 1); ++t) {
        body(voice_of_[i], step.position(i) + t, step.packed(i) + t);
      }
    }
  }

  static constexpr index_t most = voices * longest_chunk;
  zoomr::kv_cache<Policy> cache_;
  outcome& into_;
  zoomr::sequence seqs_[voices];
  index_t voice_of_[voices] = {};
  index_t failures_in_a_row_[voices] = {};
  float queries_[most * model.heads * model.head_dim];
  float keys_[most * model.kv_heads * model.head_dim];
  float values_[most * model.kv_heads * model.head_dim];
  float out_[most * model.heads * model.head_dim];
  float lse_[most * model.heads];
};

/// What comes of the texts when nothing fails and nothing moves.
template <class Policy>
outcome undisturbed(const Policy& policy) {
  outcome made;
  const auto resident = with_placement(policy, zoomr::placement{});
  talk<std::remove_const_t<decltype(resident)>> all(resident, "", made);
  while (!all.done()) REQUIRE(all.turn() == 0);
  REQUIRE(all.wrong == 0);
  return made;
}

std::string new_path() {
  static temporary_folder folder;
  return folder.path();
}

std::int64_t open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

bool exists(const std::string& path) { return std::filesystem::exists(path); }

/// Everything that a cache does in its life.
/// @return  allocations until the cache was made
template <class Policy>
std::int64_t live_through(const Policy& policy, const std::string& path, outcome& made, index_t& wrong) {
  talk<Policy> all(policy, path, made);
  const std::int64_t at_first = allocations::made;
  bool goes_back = !decltype(policy.evict)::observes;
  for (index_t turns = 1; !all.done(); ++turns) {
    wrong += all.turn(turns % 5 == 0);
    if (!goes_back || all.length(0) < 60) continue;
    goes_back = false;
    all.rollback(0, 50);
    all.begin_anew(1);
  }
  wrong += all.wrong;
  return at_first;
}

template <class Policy, class Placement>
void check_allocations(const char* name, const Policy& policy, Placement placement) {
  CAPTURE(std::string(name));
  const auto moved = with_placement(policy, placement);
  const outcome expected = undisturbed(policy);
  std::int64_t failures = 0;
  for (bool passed = false; !passed; ++failures) {
    CAPTURE(failures);
    outcome made;
    const std::string path = new_path();
    const std::int64_t files = open_files();
    const std::int64_t live = allocations::live;
    std::int64_t at_first = 0;
    index_t wrong = 0;
    bool out_of_memory = false;
    allocations::made = 0;
    allocations::fails = failures;
    allocations::counted = true;
    try {
      at_first = live_through(moved, path, made, wrong);
      passed = true;
    } catch (const zoomr::error& fault) {
      out_of_memory = fault.code() == zoomr::errc::capacity;
    }
    allocations::counted = false;
    REQUIRE(allocations::live == live);
    REQUIRE(open_files() == files);
    REQUIRE_FALSE(exists(path));
    REQUIRE(passed != out_of_memory);
    if (!passed) continue;
    CHECK(at_first == failures);
    CHECK(allocations::made == at_first);  // none after the cache was made
    CHECK(wrong == 0);
    CHECK(made == expected);
  }
  CHECK(failures > 20);
}

/// What came of a fault at each call in turn.
struct faults_seen {
  std::int64_t calls = 0;       // at which one was planted
  std::int64_t refused = 0;     // no cache was made
  std::int64_t failures = 0;    // of an item
  std::int64_t begun_anew = 0;  // what could never be read again
};

/// Says the texts with one fault.
/// @return  whether the call with the fault was reached
template <class Policy>
bool play_with(const Policy& policy, const outcome& expected, std::int64_t fails, fault how, faults_seen& seen) {
  const std::string path = new_path();
  const std::int64_t files = open_files();
  outcome made;
  index_t failures = 0;
  index_t begun_anew = 0;
  file_calls::now = {.path = path.c_str(), .fails = fails, .how = how};
  try {
    talk<Policy> all(policy, path, made);
    while (!all.done()) {
      const index_t failed = all.turn();
      failures += failed;
      REQUIRE(failed <= 1);
      REQUIRE(all.wrong == 0);
      REQUIRE(failures < 10);
    }
    begun_anew = all.begun_anew;
  } catch (const zoomr::error& why) {
    REQUIRE(why.code() == zoomr::errc::storage);
    REQUIRE(file_calls::now.made <= 2);  // the file cannot be made, or has no room
    ++seen.refused;
  }
  const file_calls::script after = file_calls::now;  // no thread is left
  file_calls::now = {};
  REQUIRE((after.made <= 2 || made == expected));
  const bool lasts = how == fault::flipped && after.in_write;
  REQUIRE(failures <= (lasts ? 3 : 1));
  REQUIRE(begun_anew == (failures == 3 ? 1 : 0));
  REQUIRE(open_files() == files);
  REQUIRE_FALSE(exists(path));
  seen.failures += failures;
  seen.begun_anew += begun_anew;
  return after.made > fails;
}

/// Says the texts while one call in `every` fails.
/// @return  failures of items
template <class Policy, class Placement>
index_t play_with_many(const Policy& policy, Placement placement, std::int64_t every) {
  const auto moved = with_placement(policy, placement);
  const std::string path = new_path();
  outcome made;
  index_t failures = 0;
  file_calls::now = {.path = path.c_str(), .fails = every, .every = every};
  {
    talk<std::remove_const_t<decltype(moved)>> all(moved, path, made);
    all.patience = 1000;
    for (index_t turns = 0; turns < all.patience && !all.done(); ++turns) failures += all.turn();
    CHECK(all.done());
    CHECK(all.wrong == 0);
  }
  file_calls::now = {};
  CHECK(made == undisturbed(policy));
  return failures;
}

/// @param every  of so many calls one goes wrong, each in a life of its own
template <class Policy, class Placement>
faults_seen play_with_each(const Policy& policy, Placement placement, fault how, std::int64_t every) {
  const auto moved = with_placement(policy, placement);
  const outcome expected = undisturbed(policy);
  faults_seen seen;
  while (play_with(moved, expected, seen.calls * every, how, seen)) ++seen.calls;
  REQUIRE(seen.calls * every > 200);
  return seen;
}

template <class Policy, class Placement>
void check_file(const char* name, const Policy& policy, Placement placement, std::int64_t every) {
  CAPTURE(std::string(name));
  const faults_seen errors = play_with_each(policy, placement, fault::error, every);
  CHECK(errors.refused == (every == 1 ? 2 : 1));
  CHECK(errors.failures > errors.calls / 8);  // the rest was made again before anybody needed it
  const faults_seen interrupted = play_with_each(policy, placement, fault::interrupted, 3 * every);
  CHECK(interrupted.refused <= 2);
  CHECK(interrupted.failures == 0);
  const faults_seen partial = play_with_each(policy, placement, fault::partial, 3 * every);
  CHECK((partial.refused == 0 && partial.failures == 0));
  const faults_seen flipped = play_with_each(policy, placement, fault::flipped, every);
  CHECK(flipped.refused == 0);
  CHECK(flipped.failures > flipped.calls / 8);
  CHECK(flipped.begun_anew > 0);
}

}  // namespace

TEST_CASE(
    "each allocation fails once: the cache is not made, and nothing is left; a cache that is made needs no more") {
  const auto check = [](const char* name, const auto& policy) {
    check_allocations(name, policy, at_once{});
    check_allocations(name, policy, beside{});
  };
  check("zoomr_mass", small::zoomr_mass);
  check("quest", small::quest);
  check("sentence_kv", small::sentence_kv);
  check("h2o", small::h2o);
  check("arkvale", small::arkvale);
}

TEST_CASE("each operation on the file goes wrong once: one item's step is made again, and no bit is different") {
  check_file("full", small::full, at_once{}, stride());
  check_file("quest", small::quest, at_once{}, stride());
  check_file("zoomr_mass", small::zoomr_mass, at_once{}, stride());
  check_file("h2o", small::h2o, at_once{}, 3 * stride());
}

TEST_CASE("operations on the file fail again and again: what has failed can be done again") {
  index_t failures = 0;
  for (const std::int64_t every : {37, 41, 43, 47, 53, 59}) {  // more calls than a step of an item makes
    CAPTURE(every);
    failures += play_with_many(small::full, at_once{}, every);
    failures += play_with_many(small::zoomr_mass, beside{}, every);
  }
  CHECK(failures > 10);
}

TEST_CASE("the same with a thread that moves the bytes") {
  CHECK(play_with_each(small::quest, beside{}, fault::error, 1).failures > 30);
  check_file("full", small::full, beside{}, 7);
  check_file("quest", small::quest, beside{}, 7);
  check_file("zoomr_mass", small::zoomr_mass, beside{}, 7);
}

}  // namespace zoomr_test
