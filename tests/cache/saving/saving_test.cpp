// SPDX-License-Identifier: Apache-2.0
// A sequence that was saved and loaded goes on as if it had never been: the same state, and the same bits from then on.
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <cache/support/tiered_limits.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <doctest/doctest.h>
#include <paging/engines.hpp>
#include <support/allocations.hpp>
#include <support/state_digest.hpp>
#include <support/temporary_folder.hpp>

#include <fcntl.h>         // open
#include <sys/resource.h>  // setrlimit
#include <sys/stat.h>      // stat, chmod, mkdir, mkfifo
#include <unistd.h>        // unlink, rmdir, symlink, access

#include <csignal>   // std::signal
#include <fstream>   // std::ifstream
#include <iterator>  // std::istreambuf_iterator

namespace zoomr_test {
namespace {

using index_t = zoomr::index_t;

constexpr shape model{2, 4, 2, 8};
constexpr index_t tokens = 150;
constexpr index_t prompt = 52;
constexpr index_t undo = 24;

tape text(std::uint64_t seed = 5) { return make_tape(model, kind::uniform, markup::pairs, tokens, prompt, seed); }

zoomr::config limits() {
  zoomr::config made = limits_for(tokens, 2);
  made.rollback_tokens = undo;
  return made;
}

/// Pages may be others; which hold anything is in the accounts.
template <class Policy, class T>
state_digest digest(zoomr::kv_cache<Policy, T>& cache, zoomr::sequence seq) {
  state_digest made = digest_of(cache, seq);
  made.of[state_digest::pages] = 0;
  return made;
}

/// The next step of a text, some of which are drafts; now and then some tokens are taken back, as far as it goes.
template <class Player>
void step(Player& plays, index_t& longest) {
  const tape& says = *plays.at(0).says;
  const index_t now = plays.tokens();
  if (now < says.prompt) {
    const index_t last = std::min(now + 19, says.prompt);
    plays.play({{0, says.between(now, last), last == says.prompt}});
    return;
  }
  plays.play({plays.next(0, 1 + now % 4)});
  const bool first_time = plays.tokens() > longest;
  longest = std::max(longest, plays.tokens());
  const index_t to = plays.tokens() - 5;
  const index_t least =
      std::max({says.prompt, longest - undo + 6, least_rollback(plays.cache.policy(), says.prompt, plays.tokens())});
  if (first_time && now % 11 == 3 && to >= least) plays.rollback(0, to), plays.play({plays.next(0, 3)});
}

/// Plays until the text has at least so many tokens.
template <class Player>
void play_to(Player& plays, index_t until) {
  index_t longest = plays.tokens();
  while (plays.tokens() < until) step(plays, longest);
}

/// What was logged of the tokens from `first` on.
result_log from(const result_log& log, index_t first) { return {log.lower_bound({first, 0}), log.end()}; }

/// Saves what `plays` has, loads it in `other`, and lets both go on to the end.
template <class Player, class Other>
void go_on_in(Player& plays, Other& other) {
  const index_t now = plays.tokens();
  CAPTURE(now);
  const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
  CHECK(plays.cache.save_bytes(plays.at(0).seq) == static_cast<byte_count>(bytes.size()));
  memory_source source(bytes);
  other.voices.push_back({other.cache.load(source), plays.at(0).says, {}});
  CHECK(source.left == 0);
  REQUIRE(other.tokens() == now);
  REQUIRE(other.cache.in_prompt(other.at(0).seq) == plays.cache.in_prompt(plays.at(0).seq));
  REQUIRE(digest(other.cache, other.at(0).seq).difference(digest(plays.cache, plays.at(0).seq)) == "");
  CHECK(other.cache.stats(other.at(0).seq) == plays.cache.stats(plays.at(0).seq));
  CHECK(saved(other.cache, other.at(0).seq) == bytes);
  play_to(plays, tokens), play_to(other, tokens);
  REQUIRE(difference(from(plays.at(0).log, now), from(other.at(0).log, now)) == "");
  REQUIRE(digest(other.cache, other.at(0).seq).difference(digest(plays.cache, plays.at(0).seq)) == "");
  CHECK(saved(other.cache, other.at(0).seq) == saved(plays.cache, plays.at(0).seq));
}

/// Saved before anything, in the prompt, at its end, and after that at many lengths.
template <class T, class Policy>
void check(const char* name, const Policy& policy, const zoomr::config& with) {
  CAPTURE(std::string(name));
  const tape says = text();
  for (const index_t until : {0, 19, 38, prompt, prompt + 1, 60, 77, 91, 110, 131, 149}) {
    player<Policy, T> plays(model, policy, with), other(model, policy, with);
    plays.open(says);
    play_to(plays, until);
    go_on_in(plays, other);
  }
}

using tiers = zoomr::tiered<zoomr::lru, unit::scripted_transfers>;

template <class Policy>
auto in_tiers(const Policy& policy) {
  return with_placement(policy, tiers{});
}

/// Of a file that unlinks itself.
std::string file_path() {
  static temporary_folder folder;
  return folder.path();
}

}  // namespace

TEST_CASE("every policy goes on as if the sequence had never been saved") {
  for_each_policy([](const char* name, const auto& policy) { check<float>(name, policy, limits()); });
}

TEST_CASE("pages that no query can reach stay freed") {
  auto policy = small::window;
  policy.placement.frees_unreachable = true;
  check<float>("window", policy, limits());
  player<std::remove_const_t<decltype(policy)>> plays(model, policy, limits());
  const tape says = text();
  plays.open(says);
  play_to(plays, tokens);
  player<std::remove_const_t<decltype(policy)>> other(model, policy, limits());
  const auto seq = other.cache.load(memory_source(saved(plays.cache, plays.at(0).seq)));
  CHECK(other.cache.bytes(seq).details < 2 * 6 * 16 * model.kv_lanes() * model.head_dim * 4);
}

TEST_CASE("spans that go change which pages no query can reach") {
  const auto lives = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    int erased = 0, freed = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      CAPTURE(seed);
      dice random(seed);
      constexpr markup texts[] = {markup::pairs, markup::summaries_alone, markup::stray};
      const index_t ends = 16 * random.between(1, 3) + random.between(-2, 6);  // about where a page does
      tape says = make_tape(model, kind::uniform, random.one_of(texts), tokens, ends, seed);
      player<std::decay_t<decltype(policy)>> plays(model, policy, limits());
      plays.open(says);
      plays.play_plainly(0, says.prompt + random.between(1, 20));
      while (!plays.done()) {
        const index_t now = plays.tokens(), near = random.chance(60) ? says.prompt : now;
        zoomr::token_range span{std::max(1, near - random.between(1, 5)), 0};
        span.last = std::min(now - 1, span.first + random.between(1, 5));
        if (span.size() > 0 && sentence_of([&] { plays.cache.erase(plays.at(0).seq, span); }).empty())
          ++erased, says = says.without(span);
        const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
        const auto beside = plays.cache.load(memory_source(bytes));
        REQUIRE(digest(plays.cache, beside).difference(digest(plays.cache, plays.at(0).seq)) == "");
        REQUIRE(saved(plays.cache, beside) == bytes);
        plays.cache.close(beside);
        freed = std::max(freed, zoomr::inspection::core(plays.cache).states[0].freed_pages);
        plays.play_plainly(0, plays.tokens() + random.between(1, 9));
      }
    }
    CHECK(erased > 40);
    CHECK(freed > 2);
  };
  lives("window", small::window);
  lives("summary_only", small::summary_only);
}

TEST_CASE("keys that are not finite are read back, and what the audit has made of them") {
  const auto check_audited = [](const auto& policy, auto of) {
    zoomr::config with = limits();
    with.audit = true;
    const tape says = make_tape(model, kind::with_infinities, markup::pairs, tokens, prompt, 5);
    player<std::decay_t<decltype(policy)>, decltype(of)> plays(model, policy, with), other(model, policy, with);
    plays.open(says);
    play_to(plays, 90);
    const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
    other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
    CHECK(saved(other.cache, other.at(0).seq) == bytes);
    play_to(plays, tokens), play_to(other, tokens);
    CHECK(saved(other.cache, other.at(0).seq) == saved(plays.cache, plays.at(0).seq));
    return plays.cache.stats(plays.at(0).seq).captured_sum;
  };
  CHECK(!(check_audited(small::full, float{}) < zoomr::infinity));
  CHECK(!(check_audited(small::quest, float{}) < zoomr::infinity));
  check_audited(small::full, int8{}), check_audited(small::zoomr_mass, scaled_int8{});
  check_audited(small::h2o, float8{}), check_audited(small::sentence_kv, bfloat16{});
}

TEST_CASE("every storage type, with scales: one, or a table") {
  static const float table[] = {0.5f, 0.25f, 1.5f, 0.75f};
  zoomr::config with = limits();
  with.key_scale = zoomr::storage_scale(view<const float, 2>(table, {2, 2}));
  with.value_scale = 1.0f / 64.0f;
  check<bfloat16>("quest", small::quest, with);
  check<float16>("evicting", small::evicting, with);
  check<float8>("zoomr_mass", small::zoomr_mass, with);
  check<int8>("full", small::full, with);
  check<scaled_int8>("h2o", small::h2o, with);
  check<scaled_int8>("zoomr_focus", small::zoomr_focus, with);
}

/// Each token makes a choice that stays active.
struct choice_of_each_token {
  using role = zoomr::role::refresh;
  static constexpr bool second_pass = false;
  constexpr zoomr::refresh_action due(const zoomr::token_event&) const { return zoomr::refresh_action::choose; }
  constexpr bool each_token() const { return false; }
  friend constexpr bool operator==(const choice_of_each_token&, const choice_of_each_token&) = default;
};

TEST_CASE("a log that has dropped choices knows that it has") {
  constexpr auto policy = zoomr::compose(zoomr::sentences{.longest = 12}, zoomr::key_mean{}, zoomr::mean_dot{},
                                         zoomr::head_votes{.k = 3, .per = zoomr::scope::kv_head}, zoomr::running_mean{},
                                         zoomr::fill_budget{.tokens = 30}, choice_of_each_token{},
                                         zoomr::zones{.sinks = 2, .recent = 6, .open = zoomr::unlimited});
  zoomr::config with = limits();
  with.rollback_tokens = 1, with.max_segments = 40;
  const tape says = text();
  for (const index_t until : {100, 149}) {
    using player_type = player<std::remove_const_t<decltype(policy)>>;
    player_type plays(model, policy, with), other(model, policy, with);
    plays.open(says);
    plays.play_plainly(0, until);
    const auto& core = zoomr::inspection::core<float, zoomr::placement>(plays.cache);
    REQUIRE(zoomr::inspection::dropped(core.states[0].log));
    const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
    other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
    REQUIRE(digest(other.cache, other.at(0).seq).difference(digest(plays.cache, plays.at(0).seq)) == "");
    for (auto* one : {&plays, &other}) one->rollback(0, until - 1), one->play_plainly();
    REQUIRE(difference(from(plays.at(0).log, until), from(other.at(0).log, until)) == "");
    CHECK(saved(other.cache, other.at(0).seq) == saved(plays.cache, plays.at(0).seq));
  }
}

TEST_CASE("a rollback goes as far back as it did") {
  const auto roll_back = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = text();
    for (const index_t until : {prompt + 10, 120}) {
      using policy_type = std::remove_cvref_t<decltype(policy)>;
      player<policy_type> plays(model, policy, limits()), other(model, policy, limits());
      plays.open(says);
      play_to(plays, until);
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
      for (index_t to = plays.tokens() - 1; to >= 0; --to) {
        std::string refused[2];
        for (auto* one : {&plays, &other}) {
          try {
            one->rollback(0, to);
          } catch (const zoomr::error& why) {
            refused[one == &plays ? 0 : 1] = why.what();
          }
        }
        REQUIRE(refused[0] == refused[1]);
        if (!refused[0].empty()) break;
        REQUIRE(digest(other.cache, other.at(0).seq).difference(digest(plays.cache, plays.at(0).seq)) == "");
      }
      const index_t now = plays.tokens();
      play_to(plays, tokens), play_to(other, tokens);
      REQUIRE(difference(from(plays.at(0).log, now), from(other.at(0).log, now)) == "");
    }
  };
  for_each_policy(roll_back);
}

TEST_CASE("from one memory to tiers, and back") {
  const auto move = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    unit::script() = {};
    const auto moved = in_tiers(policy);
    using resident_type = player<std::remove_cvref_t<decltype(policy)>>;
    using tiered_type = player<std::remove_const_t<decltype(moved)>>;
    const tape says = text();
    for (const index_t until : {38, prompt, 97, 140}) {
      const std::string path = file_path();
      const auto few = tiered_limits(model, moved, limits(), 8, path.c_str());
      resident_type plays(model, policy, limits()), back(model, policy, limits());
      plays.open(says);
      play_to(plays, until);
      tiered_type there(model, moved, few);
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      there.voices.push_back({there.cache.load(memory_source(bytes)), &says, {}});
      const zoomr::tier_statistics moved_before = there.cache.tiers();
      CHECK(there.cache.save_bytes(there.at(0).seq) == static_cast<byte_count>(bytes.size()));
      CHECK(there.cache.tiers().bytes_in == moved_before.bytes_in);
      CHECK(there.cache.tiers().hits == moved_before.hits);
      CHECK(saved(there.cache, there.at(0).seq) == bytes);
      back.voices.push_back({back.cache.load(memory_source(saved(there.cache, there.at(0).seq))), &says, {}});
      const index_t now = plays.tokens();
      play_to(plays, tokens), play_to(there, tokens), play_to(back, tokens);
      REQUIRE(difference(from(plays.at(0).log, now), from(there.at(0).log, now)) == "");
      REQUIRE(difference(from(plays.at(0).log, now), from(back.at(0).log, now)) == "");
    }
  };
  move("full", small::full);
  move("zoomr_mass", small::zoomr_mass);
  move("zoomr_focus", small::zoomr_focus);
  move("quest", small::quest);
  move("sentence_kv", small::sentence_kv);
  move("pinned_prompt", small::pinned_prompt);
  move("evicting", small::evicting);
}

TEST_CASE("a transfer that fails while a sequence is saved or loaded changes nothing") {
  const auto fail_each = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    unit::script() = {};
    const auto moved = in_tiers(policy);
    using player_type = player<std::remove_const_t<decltype(moved)>>;
    const tape says = text();
    const std::string paths[] = {file_path(), file_path(), file_path()};
    const auto few = [&](int i) { return tiered_limits(model, moved, limits(), 8, paths[i].c_str()); };
    player_type plays(model, moved, few(0));
    plays.open(says);
    play_to(plays, 100);
    const state_digest before = digest_of(plays.cache, plays.at(0).seq);
    const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
    player_type other(model, moved, few(1)), control(model, moved, few(2));
    for (auto* one : {&other, &control}) one->open(says), play_to(*one, 40);
    const state_digest others = digest_of(other.cache, other.at(0).seq);
    index_t failed[2] = {0, 0};
    bool again = true;
    for (std::int64_t later = 0; again; ++later) {
      again = false;
      for (const bool saves : {true, false}) {
        unit::script().fails = unit::script().made + later;
        memory_sink sink;
        try {
          if (saves) {
            plays.cache.save(plays.at(0).seq, sink);
          } else {
            other.cache.close(other.cache.load(memory_source(bytes)));
          }
        } catch (const zoomr::error& why) {
          REQUIRE(why.code() == zoomr::errc::storage);
          ++failed[saves ? 0 : 1];
        }
        again = again || unit::script().made > unit::script().fails;
        unit::script().fails = -1;
        // a page that is asked for again comes
        for (auto* one : {&plays, &other}) {
          try {
            digest_of(one->cache, one->at(0).seq);
          } catch (const zoomr::error&) {
          }
        }
        REQUIRE(digest_of(plays.cache, plays.at(0).seq).difference(before) == "");
        REQUIRE(digest_of(other.cache, other.at(0).seq).difference(others) == "");
      }
    }
    CHECK(failed[0] > 3);
    if (moved.selects) CHECK(failed[1] > 3);  // else what could not be written is written later
    // the next pages are those that they would have been
    play_to(other, tokens), play_to(control, tokens);
    CHECK(digest_of(other.cache, other.at(0).seq) == digest_of(control.cache, control.at(0).seq));
    unit::script() = {};
  };
  fail_each("full", small::full);
  fail_each("evicting", small::evicting);
  fail_each("zoomr_mass", small::zoomr_mass);
}

TEST_CASE("neither saving nor loading allocates; pieces are no larger than a page's rows") {
  const tape says = text();
  player<std::remove_const_t<decltype(small::evicting)>> plays(model, small::evicting, limits()),
      other(model, small::evicting, limits());
  plays.open(says);
  play_to(plays, 120);
  memory_sink sink;
  allocations::made = 0, allocations::counted = true;
  plays.cache.save(plays.at(0).seq, sink);
  const std::int64_t saving = allocations::made;
  memory_source source(sink.bytes);
  const auto seq = other.cache.load(source);
  allocations::counted = false;
  CHECK(saving == 0);
  CHECK(allocations::made == 0);
  CHECK(other.cache.tokens(seq) == plays.tokens());
  CHECK(sink.largest <= 4096);
  CHECK(sink.finished == 1);
}

TEST_CASE("a file holds several sequences, one behind the other; what lies behind is not read") {
  temporary_folder folder;
  const std::string path = folder.path();
  const tape says = text(), other_says = text(8);
  player<std::remove_const_t<decltype(small::zoomr_mass)>> plays(model, small::zoomr_mass, limits());
  plays.open(says), plays.open(other_says);
  plays.play_plainly(0, 90), plays.play_plainly(1, 70);
  {
    zoomr::file_sink sink(path);
    for (index_t v = 0; v < 2; ++v) plays.cache.save(plays.at(v).seq, sink);
    sink.write("more", 4);
    sink.finish();
  }
  player<std::remove_const_t<decltype(small::zoomr_mass)>> other(model, small::zoomr_mass, limits());
  zoomr::file_source source(path);
  for (index_t v = 0; v < 2; ++v) {
    const auto seq = other.cache.load(source);
    CHECK(saved(other.cache, seq) == saved(plays.cache, plays.at(v).seq));
  }
  char rest[8];
  CHECK(source.read(rest, 8) == 4);
  CHECK(std::string(rest, 4) == "more");
  ::unlink(path.c_str());
}

TEST_CASE("capacities may differ; what does not fit is refused with a sentence") {
  const tape says = text();
  const auto policy = small::zoomr_one_pass;
  using player_type = player<std::remove_const_t<decltype(policy)>>;
  player_type plays(model, policy, limits());
  plays.open(says);
  play_to(plays, 120);
  const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
  const auto refused = [&](auto change) {
    zoomr::config with = limits();
    change(with);
    player_type other(model, policy, with);
    try {
      other.cache.load(memory_source(bytes));
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::capacity);
      CHECK(other.cache.tokens(other.cache.open()) == 0);
      return std::string(why.what());
    }
    return std::string();
  };
  const std::string now = std::to_string(plays.tokens());
  CHECK(refused([](auto& c) { c.max_tokens = 100; }) ==
        "zoomr: load: the sequence has " + now + " tokens, config.max_tokens is 100");
  CHECK(refused([](auto& c) { c.max_segments = 3; }) ==
        "zoomr: load: the sequence has more than 3 segments: raise config.max_segments");
  CHECK(refused([](auto& c) { c.pool_tokens = 6 * 16; }) ==
        "zoomr: load: the sequence needs 8 pages of 16 tokens, 6 are free; raise config.pool_tokens");
  CHECK(refused([](auto& c) { c.max_tokens = 130, c.max_segments = 40, c.pool_tokens = 200; }) == "");
  {
    zoomr::config one = limits();
    one.max_sequences = 1;
    player_type other(model, policy, one);
    other.open(says);
    CHECK_THROWS_WITH_AS(other.cache.load(memory_source(bytes)),
                         "zoomr: all 1 sequences are open; close one or raise config.max_sequences", zoomr::error);
  }
}

TEST_CASE("with another rollback_tokens a rollback goes as far as both know, and no further") {
  const auto go_back = [](const char* name, const auto& policy) {
    CAPTURE(std::string(name));
    const tape says = text();
    using player_type = player<std::remove_cvref_t<decltype(policy)>>;
    for (const index_t depth : {0, 4, 100}) {
      CAPTURE(depth);
      player_type plays(model, policy, limits());
      plays.open(says);
      plays.play_plainly(0, 120);
      zoomr::config with = limits();
      with.rollback_tokens = depth;
      player_type other(model, policy, with);
      const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
      const auto reload = [&] {
        for (voice& one : other.voices) other.cache.close(one.seq);
        other.voices.clear();
        other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
      };
      const index_t known = std::max(120 - std::min(depth, undo), least_rollback(policy, prompt, 120));
      reload();
      if (known < 120) {
        other.rollback(0, known), plays.rollback(0, known);
        other.play_plainly(0, tokens), plays.play_plainly(0, tokens);
        REQUIRE(difference(from(plays.at(0).log, known), from(other.at(0).log, known)) == "");
      }
      reload();
      if (decltype(policy.query)::sums && known > prompt) CHECK_THROWS_AS(other.rollback(0, known - 1), zoomr::error);
    }
  };
  go_back("by_kv_head", small::by_kv_head);
  go_back("zoomr_mass", small::zoomr_mass);
  go_back("sentence_kv", small::sentence_kv);
  go_back("by_layer", small::by_layer);
  go_back("h2o", small::h2o);
}

TEST_CASE("files that cannot be had, and disks that are full, say so") {
  const tape says = text();
  player<std::remove_const_t<decltype(small::full)>> plays(model, small::full, limits());
  plays.open(says);
  play_to(plays, 100);
  const state_digest before = digest_of(plays.cache, plays.at(0).seq);
  const auto said = [](auto work) {
    try {
      work();
    } catch (const zoomr::error& why) {
      CHECK(why.code() == zoomr::errc::storage);
      return std::string(why.what());
    }
    return std::string();
  };
  CHECK(said([&] { plays.cache.save(plays.at(0).seq, zoomr::file_sink("/dev/full")); }) ==
        "zoomr: the file /dev/full cannot be written: No space left on device");
  CHECK(said([&] { zoomr::file_sink("/no/such/folder/file"); }) ==
        "zoomr: the file /no/such/folder/file.part cannot be made: No such file or directory");
  CHECK(said([&] { zoomr::file_sink("/"); }) == "zoomr: the file / cannot be made: Is a directory");
  CHECK(said([&] { plays.cache.load(zoomr::file_source("/no/such/file")); }) ==
        "zoomr: the file /no/such/file cannot be opened: No such file or directory");
  CHECK(said([&] { plays.cache.load(zoomr::file_source("/")); }) == "zoomr: the file / cannot be read: Is a directory");
  CHECK(digest_of(plays.cache, plays.at(0).seq) == before);
}

TEST_CASE("rows that are larger than a reader's memory come back as they were") {
  constexpr shape wide{1, 2, 1, 128};  // 16 keys of a page have 8,192 bytes
  const tape says = make_tape(wide, kind::uniform, markup::pairs, 60, 20, 5);
  using player_type = player<std::remove_const_t<decltype(small::quest)>>;
  player_type plays(wide, small::quest, limits_for(60)), other(wide, small::quest, limits_for(60));
  plays.open(says);
  plays.play_plainly(0, 40);
  const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
  other.voices.push_back({other.cache.load(memory_source(bytes)), &says, {}});
  CHECK(saved(other.cache, other.at(0).seq) == bytes);
  plays.play_plainly(), other.play_plainly();
  CHECK(difference(from(plays.at(0).log, 40), from(other.at(0).log, 40)) == "");
}

/// While it is there a file cannot have more bytes than so many, like on a disk that becomes full.
class full_disk {
 public:
  explicit full_disk(rlim_t bytes) : ignored_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &now);
  }
  full_disk(const full_disk&) = delete;
  full_disk& operator=(const full_disk&) = delete;
  ~full_disk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, ignored_);
  }

 private:
  rlimit before_{};
  void (*ignored_)(int);
};

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("a file is replaced when all of the new one is on the disk; a save that fails leaves the old one") {
  temporary_folder folder;
  const std::string path = folder.path(), part = path + ".part";
  const std::string old(100, 'o'), more(200000, 'n');  // in memory, and written in pieces of 64 KiB and more
  const auto write = [](zoomr::file_sink& to, const std::string& what) {
    to.write(what.data(), static_cast<zoomr::byte_count>(what.size()));
  };
  const auto write_old = [&] {
    zoomr::file_sink sink(path);
    write(sink, old), sink.finish();
  };
  const auto there = [](const std::string& name) { return ::access(name.c_str(), F_OK) == 0; };
  write_old();
  CHECK(bytes_of(path) == old);
  CHECK(!there(part));

  SUBCASE("the disk is full") {
    const full_disk after(150000);
    zoomr::file_sink sink(path);
    CHECK_THROWS_WITH_AS(write(sink, more), ("zoomr: the file " + part + " cannot be written: File too large").c_str(),
                         zoomr::error);
    CHECK(!there(part));
    CHECK(bytes_of(path) == old);
    CHECK_THROWS_AS(sink.finish(), zoomr::error);  // it is of no further use
    CHECK(bytes_of(path) == old);
  }
  SUBCASE("the disk is full when the last bytes are written") {
    const full_disk after(50);
    zoomr::file_sink sink(path);
    write(sink, old);
    CHECK_THROWS_AS(sink.finish(), zoomr::error);
    CHECK(!there(part));
    CHECK(bytes_of(path) == old);
  }
  SUBCASE("whoever writes gives up") {
    {
      zoomr::file_sink sink(path);
      write(sink, more);
      CHECK(there(part));
      CHECK(bytes_of(path) == old);
    }
    CHECK(!there(part));
    CHECK(bytes_of(path) == old);
  }
  SUBCASE("a sequence behind others is lost alone") {
    {
      zoomr::file_sink sink(path);
      write(sink, more), sink.finish();
      CHECK(bytes_of(path) == more);  // at once: the sink need not be gone
      write(sink, old), sink.finish();
      CHECK(bytes_of(path) == more + old);
      write(sink, more);
    }
    CHECK(bytes_of(path) == more + old);
    {
      const full_disk after(250000);
      zoomr::file_sink sink(path);
      write(sink, more), sink.finish();
      CHECK_THROWS_WITH_AS(write(sink, more),
                           ("zoomr: the file " + path + " cannot be written: File too large").c_str(), zoomr::error);
    }
    CHECK(bytes_of(path) == more);
    CHECK(!there(part));
  }
  SUBCASE("a link goes on to be one, and the file's permissions stay") {
    const std::string link = folder.path();
    REQUIRE(::chmod(path.c_str(), 0640) == 0);
    REQUIRE(::symlink(path.c_str(), link.c_str()) == 0);
    {
      zoomr::file_sink sink(link);
      write(sink, more), sink.finish();
    }
    CHECK(bytes_of(path) == more);
    struct stat of;
    REQUIRE(::lstat(link.c_str(), &of) == 0);
    CHECK(S_ISLNK(of.st_mode));
    REQUIRE(::lstat(path.c_str(), &of) == 0);
    CHECK((of.st_mode & 0777) == 0640);
    ::unlink(link.c_str());
  }
  SUBCASE("the name was taken meanwhile") {
    REQUIRE(::unlink(path.c_str()) == 0);
    zoomr::file_sink sink(path);
    write(sink, old);
    REQUIRE(::mkdir(path.c_str(), 0700) == 0);
    CHECK_THROWS_WITH_AS(sink.finish(), ("zoomr: the file " + part + " cannot be written: Is a directory").c_str(),
                         zoomr::error);
    CHECK(!there(part));
    CHECK(::rmdir(path.c_str()) == 0);
  }
  ::unlink(path.c_str());
}

TEST_CASE("what a descriptor was opened for goes on where it stands") {
  temporary_folder folder;
  const std::string path = folder.path(), link = folder.path();
  std::ofstream(path) << "yesterday ";
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND);
  REQUIRE(file >= 0);
  const std::string number = "/dev/fd/" + std::to_string(file);
  REQUIRE(::symlink(number.c_str(), link.c_str()) == 0);
  for (const std::string& name : {number, "/proc/self/fd/" + std::to_string(file), link}) {
    zoomr::file_sink sink(name);
    sink.write("today ", 6);
    sink.finish();
  }
  CHECK(bytes_of(path) == "yesterday today today today ");
  ::close(file);
  CHECK(sentence_of([&] { zoomr::file_sink{number}; }) ==
        "zoomr: the file " + number + " cannot be made: Bad file descriptor");
  ::unlink(link.c_str()), ::unlink(path.c_str());
}

TEST_CASE("a link to a file that is not there yet goes on to be one") {
  temporary_folder folder;
  const std::string path = folder.path(), link = folder.path();
  REQUIRE(::symlink(path.substr(path.rfind('/') + 1).c_str(), link.c_str()) == 0);
  {
    zoomr::file_sink sink(link);
    sink.write("some", 4);
    sink.finish();
  }
  struct stat of;
  REQUIRE(::lstat(link.c_str(), &of) == 0);
  CHECK(S_ISLNK(of.st_mode));
  CHECK(bytes_of(path) == "some");
  ::unlink(link.c_str()), ::unlink(path.c_str());
}

TEST_CASE("a pipe is written to as it is") {
  temporary_folder folder;
  const std::string path = folder.path();
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const int reads = ::open(path.c_str(), O_RDONLY | O_NONBLOCK);
  {
    zoomr::file_sink sink(path);
    sink.write("some", 4);
    sink.finish();
  }
  char came[8];
  CHECK(::read(reads, came, 8) == 4);
  ::close(reads);
  struct stat of;
  REQUIRE(::stat(path.c_str(), &of) == 0);
  CHECK(S_ISFIFO(of.st_mode));
  ::unlink(path.c_str());
}

TEST_CASE("in a step nothing is saved or loaded") {
  const tape says = text();
  player<std::remove_const_t<decltype(small::full)>> plays(model, small::full, limits());
  plays.open(says);
  play_to(plays, 60);
  const saved_bytes bytes = saved(plays.cache, plays.at(0).seq);
  const auto seq = plays.at(0).seq;
  const std::vector<token_id> ids{9};
  memory_sink sink;
  {
    auto step = plays.cache.begin(seq, view<const token_id>(ids));
    CHECK_THROWS_AS(plays.cache.save(seq, sink), zoomr::precondition_error);
    CHECK_THROWS_AS(plays.cache.load(memory_source(bytes)), zoomr::precondition_error);
  }
  plays.cache.close(seq);
  CHECK_THROWS_AS(plays.cache.save(seq, sink), zoomr::precondition_error);
  CHECK(sink.bytes.empty());
}

}  // namespace zoomr_test
