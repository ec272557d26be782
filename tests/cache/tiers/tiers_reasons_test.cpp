// SPDX-License-Identifier: Apache-2.0
// A disk that fails is told as what it is: whoever reports it names the file, the block and the system's reason, and
// nobody calls it the caller's mistake.
#include <cache/support/driving.hpp>
#include <cache/support/small_policies.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <support/file_calls.hpp>
#include <support/temporary_folder.hpp>

namespace zoomr_test {
namespace {

using file_calls::fault;

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 72;
constexpr index_t voices = 2;

using at_once = zoomr::tiered<zoomr::lru, zoomr::sync_transfers>;
using beside = zoomr::tiered<>;

const tape& says(index_t voice) {
  static const tape both[voices] = {make_tape(model, kind::uniform, markup::pairs, tokens, 40, 21),
                                    make_tape(model, kind::peaked, markup::sentences, tokens, 37, 22)};
  return both[voice];
}

constexpr std::size_t size(index_t i) { return static_cast<std::size_t>(i); }

/// Two sequences over memory of thirteen blocks and a file.
template <class Policy>
class talk {
 public:
  using cache_type = zoomr::kv_cache<Policy>;
  using step_type = typename cache_type::step_type;

  talk(const Policy& policy, const std::string& path)
      : cache(model, policy, tiered_limits(model, policy, limits_for(tokens, voices), 13, path.c_str())) {
    for (index_t v = 0; v < voices; ++v) seqs.push_back(cache.open());
  }

  /// The next tokens of the sequences that have any; of all, or of one.
  std::vector<zoomr::step_item> next(index_t only = -1) {
    std::vector<zoomr::step_item> items;
    for (index_t v = 0; v < voices; ++v) {
      const index_t first = cache.tokens(seqs[size(v)]);
      if (first == tokens || (only >= 0 && v != only)) continue;
      const index_t prompt = says(v).prompt;
      const index_t last = first < prompt ? std::min(first + 20, prompt) : std::min(first + 3, tokens);
      items.push_back({seqs[size(v)], view<const token_id>(says(v).ids).slice(first, last), last == prompt});
    }
    return items;
  }

  /// One pass of a step, with the numbers of the texts.
  void pass(step_type& step, const std::vector<zoomr::step_item>& items, index_t number) {
    const index_t count = step.tokens();
    std::vector<float> k(size(count * model.kv_heads * model.head_dim)), v(k.size());
    std::vector<float> q(size(count * model.heads * model.head_dim)), out(q.size());
    for (index_t layer = 0; layer < model.layers; ++layer) {
      for (index_t i = 0; i < step.items(); ++i) {
        if (!step.active(i)) continue;
        const index_t voice = items[size(i)].seq == seqs[0] ? 0 : 1;
        for (index_t t = 0; t < (number == 0 ? step.taken(i) : 1); ++t) {
          const index_t position = step.position(i) + t, at = step.packed(i) + t;
          const token_id id = says(voice).ids[size(position)];
          const auto fill = [&](role of, index_t heads, std::vector<float>& into) {
            for (index_t head = 0; head < heads; ++head) {
              says(voice).numbers.fill(of, id, position, layer, head, number,
                                       &into[size((at * heads + head) * model.head_dim)]);
            }
          };
          fill(role::key, model.kv_heads, k), fill(role::value, model.kv_heads, v), fill(role::query, model.heads, q);
        }
      }
      const zoomr::extents<3> rows{{count, model.kv_heads, model.head_dim}},
          asked{{count, model.heads, model.head_dim}};
      step.append(layer, {k.data(), rows}, {v.data(), rows});
      step.attend(layer, {q.data(), asked}, {out.data(), asked});
    }
  }

  /// Plays a step to its end, and accepts all of it, whatever has happened.
  void play(const std::vector<zoomr::step_item>& items) {
    auto step = cache.begin(view<const zoomr::step_item>(items));
    std::vector<index_t> all;
    for (index_t i = 0; i < step.items(); ++i) all.push_back(step.taken(i));
    pass(step, items, 0);
    if (step.needs_second_pass(view<const index_t>(all))) pass(step, items, 1);
    failures.clear();
    for (index_t i = 0; i < step.items(); ++i) failures.push_back(step.failure(i) == nullptr ? "" : step.failure(i));
    step.commit(view<const index_t>(all));
  }

  index_t length(index_t voice) const { return cache.tokens(seqs[size(voice)]); }
  bool done() const { return length(0) == tokens && length(1) == tokens; }

  cache_type cache;
  std::vector<zoomr::sequence> seqs;
  std::vector<std::string> failures;  // of the items of the last step
};

template <class Policy>
talk(const Policy&, const std::string&) -> talk<Policy>;

std::string new_path() {
  static temporary_folder folder;
  return folder.path();
}

/// Fails the next so many calls of one kind.
struct breaker {
  file_calls::call kind = file_calls::call::read;
  fault how = fault::error;
  index_t left = 0;
  const std::function<fault(file_calls::call)> chooses = [this](file_calls::call which) {
    return which == kind && left > 0 ? (--left, how) : fault::none;
  };
};

/// The error that a call ends with, without the library's name; empty: there was none. A precondition_error gets out.
template <class Work>
std::string said(Work work) {
  try {
    work();
  } catch (const zoomr::error& why) {
    CHECK(why.code() == zoomr::errc::storage);
    return std::string(why.what()).substr(zoomr::error::prefix.size());
  }
  return {};
}

bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Each call on the file fails in turn, and everything is accepted all the same.
/// @return how many errors were thrown
template <class Policy, class Placement>
index_t check_each(const Policy& policy, Placement placement, fault how, const char* reason) {
  const auto moved = with_placement(policy, placement);
  index_t thrown = 0;
  for (std::int64_t fails = 2, made = 3; fails < made; fails += 1 + fails / 16) {
    CAPTURE(fails);
    const std::string path = new_path();
    file_calls::now = {.path = path.c_str(), .fails = fails, .how = how};
    {
      talk all(moved, path);
      index_t turns = 0;
      for (; turns < 60 && !all.done(); ++turns) {
        const index_t before[] = {all.length(0), all.length(1)};
        const auto items = all.next();
        const std::string why = said([&] { all.play(items); });
        if (why.empty()) continue;
        ++thrown;
        CAPTURE(why);
        CHECK(holds(why, "block "));
        CHECK(holds(why, " of the tier's file " + path + " "));
        CHECK(holds(why, reason));
        CHECK_FALSE(holds(why, "zoomr: "));
        bool others = true;
        for (std::size_t i = 0; i < items.size(); ++i) {
          const index_t v = items[i].seq == all.seqs[0] ? 0 : 1;
          const bool named = holds(why, "item " + std::to_string(i) + ": ");
          const bool went_on = all.length(v) > before[v];
          others = others && named != went_on;
        }
        CHECK((others || why.starts_with("begin: ")));
      }
      CHECK(all.done());
    }
    made = file_calls::now.made;
    file_calls::now = {};
  }
  return thrown;
}

}  // namespace

TEST_CASE("an item whose block cannot be read says why, and to accept tokens of it is told as that") {
  const auto policy = with_placement(small::full, at_once{});
  const std::string path = new_path();
  breaker breaks;
  file_calls::now = {.path = path.c_str(), .chooses = &breaks.chooses};
  {
    talk all(policy, path);
    while (all.length(0) < 45) all.play(all.next());
    std::string why;
    index_t before[voices] = {};
    for (index_t turns = 0; why.empty() && turns < 5; ++turns) {
      for (index_t v = 0; v < voices; ++v) before[v] = all.length(v);
      breaks.left = 1;  // may be a read that nobody needs
      why = said([&] { all.play(all.next()); });
    }
    const index_t bad = all.failures[0].empty() ? 1 : 0, good = 1 - bad;
    const std::string reason = " of the tier's file " + path + " cannot be read: Input/output error";
    const std::string failure = all.failures[size(bad)];
    CHECK(failure.starts_with("zoomr: a page of details cannot be brought to memory: block "));
    CHECK(failure.ends_with(reason));
    CHECK(all.failures[size(good)].empty());
    CHECK(why == "the other items are committed, but not item " + std::to_string(bad) + ": " + failure.substr(7));
    CHECK(all.length(bad) == before[bad]);
    CHECK(all.length(good) > before[good]);

    breaks.left = zoomr::unlimited;  // the same for a step of one item
    const std::string alone = said([&] { all.play(all.next(bad)); });
    CHECK(alone == "the step is not committed: item 0: " + all.failures[0].substr(7));
    CHECK(alone.ends_with(reason));
    const auto items = all.next(bad);
    {  // given up after the pass that has failed
      auto step = all.cache.begin(view<const zoomr::step_item>(items));
      all.pass(step, items, 0);
      REQUIRE(step.failure(0) != nullptr);
      CHECK(said([&] { step.commit(); }).ends_with(reason));
    }
    {  // who knows accepts nothing, and nothing is thrown
      auto step = all.cache.begin(view<const zoomr::step_item>(items));
      all.pass(step, items, 0);
      REQUIRE(step.failure(0) != nullptr);
      CHECK_FALSE(step.needs_second_pass(0));
      step.commit(0);
    }
    CHECK(all.length(bad) == before[bad]);
    breaks.left = 0;
    while (!all.done()) all.play(all.next());
  }
  file_calls::now = {};
}

TEST_CASE("a page that cannot be written says why") {
  const auto policy = with_placement(small::full, at_once{});
  const std::string path = new_path();
  breaker breaks{.kind = file_calls::call::write, .how = fault::full};
  file_calls::now = {.path = path.c_str(), .chooses = &breaks.chooses};
  {
    talk all(policy, path);
    while (all.length(0) < 50) all.play(all.next());
    breaks.left = zoomr::unlimited;
    std::string why;
    for (index_t turns = 0; why.empty() && turns < 10; ++turns) why = said([&] { all.play(all.next()); });
    CHECK(holds(why, "item 0: a page of details cannot be written to the file: block "));
    CHECK(holds(why, " of the tier's file " + path + " cannot be written: No space left on device"));
    breaks.left = 0;  // room is made
    while (!all.done()) all.play(all.next());
  }
  file_calls::now = {};
}

TEST_CASE("a sequence that is loaded, or saved, while the tier's disk fails says so, and nothing has changed") {
  struct memory final : zoomr::byte_sink, zoomr::byte_source {
    void write(const void* from, zoomr::byte_count count) override {
      const auto* first = static_cast<const char*>(from);
      bytes.insert(bytes.end(), first, first + count);
    }
    zoomr::byte_count read(void* to, zoomr::byte_count count) override {
      std::memcpy(to, bytes.data() + at, size(static_cast<index_t>(count)));
      at += size(static_cast<index_t>(count));
      return count;
    }
    std::vector<char> bytes;
    std::size_t at = 0;
  };
  const auto policy = with_placement(small::full, at_once{});
  const std::string path = new_path();
  breaker breaks{.kind = file_calls::call::write, .how = fault::full};
  file_calls::now = {.path = path.c_str(), .chooses = &breaks.chooses};
  {
    talk all(policy, path);
    while (all.length(0) < 60) all.play(all.next());
    memory saved[voices];
    for (index_t v = 0; v < voices; ++v) all.cache.save(all.seqs[size(v)], saved[v]);
    const index_t length = all.length(0);
    for (const zoomr::sequence seq : all.seqs) all.cache.close(seq);
    breaks.left = zoomr::unlimited;
    all.seqs[0] = all.cache.load(saved[0]);  // there is memory for one of them
    std::string why = said([&] { all.cache.load(saved[1]); });
    CHECK(why.starts_with("a page of details cannot be written to the file: block "));
    CHECK(why.ends_with(" of the tier's file " + path + " cannot be written: No space left on device"));
    breaks.left = 0;
    saved[1].at = 0;
    all.seqs[1] = all.cache.load(saved[1]);
    CHECK(all.length(0) == length);
    memory again;
    breaks.kind = file_calls::call::read, breaks.how = fault::error, breaks.left = zoomr::unlimited;
    why = said([&] { all.cache.save(all.seqs[0], again); });
    CHECK(why.ends_with(" of the tier's file " + path + " cannot be read: Input/output error"));
    breaks.left = 0;
    again.bytes.clear();
    all.cache.save(all.seqs[0], again);
    CHECK(again.bytes == saved[0].bytes);
    while (!all.done()) all.play(all.next());
  }
  file_calls::now = {};
}

TEST_CASE("whatever call on the file fails, whoever tells it names the file, the block and the reason") {
  CHECK(check_each(small::full, at_once{}, fault::error, ": Input/output error") > 10);
  CHECK(check_each(small::zoomr_mass, beside{}, fault::full, ": No space left on device") > 5);
  CHECK(check_each(small::sentence_kv, at_once{}, fault::error, ": Input/output error") > 5);
  CHECK(check_each(small::evicting, at_once{}, fault::error, ": Input/output error") > 5);
}

}  // namespace zoomr_test
