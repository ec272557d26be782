// SPDX-License-Identifier: Apache-2.0
// Ranks in processes of their own. One dies, stops or lies at a random message: each other one names it in time, and
// its sequence is what it was before the step.
#include <cache/ranks/ranked_cache.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <cache/support/saved_bytes.hpp>
#include <zoomr/core/ranks/thread_ranks.hpp>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>  // std::copy_n, std::fill
#include <atomic>     // std::atomic
#include <chrono>     // std::chrono
#include <csignal>    // kill, SIGKILL, SIGSTOP
#include <map>        // std::map
#include <string>     // std::string
#include <thread>     // std::this_thread::sleep_for
#include <utility>    // std::pair
#include <vector>     // std::vector

namespace zoomr_test {
namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

#if defined(ZOOMR_ALL_CHECKS)
constexpr int trials = 100;  // of each fault
#else
constexpr int trials = 4;
#endif
constexpr auto patience = 400ms;
constexpr auto in_time = 4s;  // of a machine that does other work
constexpr index_t most_ranks = 4;
constexpr std::size_t most_words = 1024;

/// What a rank has come to.
struct rank_report {
  std::atomic<bool> done;
  char said[200];
  double seconds;  // of the step that failed
  index_t steps;   // before it
  bool as_before;
};

/// Memory that the processes of all ranks share.
struct meeting {
  struct post {
    std::atomic<std::int64_t> sent;
    std::size_t sizes[2];
    std::int64_t messages[2][most_words];
  } posts[most_ranks];
  rank_report reports[most_ranks];
};

enum class fault { dies, stops, lies };

/// A rank's end in its process, which may be the one that fails.
class process_end {
 public:
  process_end(meeting& in, index_t rank, index_t ranks) : in_(in), rank_(rank), ranks_(ranks) {}
  /// @param call  the message, from 1, at which it happens
  /// @param late  when it has been sent already
  void fail_at(std::int64_t call, fault how, bool late, std::uint64_t seed) {
    call_ = call, how_ = how, late_ = late, random_ = dice(seed);
  }

  index_t rank() const { return rank_; }
  index_t ranks() const { return ranks_; }
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) {
    meeting::post& own = in_.posts[rank_];
    const std::int64_t number = own.sent + 1;
    const auto place = static_cast<std::size_t>(number % 2);
    const bool fails = number == call_;
    if (fails && !late_) stop();
    own.sizes[place] = static_cast<std::size_t>(sent.size());
    std::copy_n(sent.data(), sent.size(), own.messages[place]);
    if (fails && how_ == fault::lies) {
      auto* const bytes = reinterpret_cast<unsigned char*>(own.messages[place]);
      bytes[random_.between(0, 8 * sent.size() - 1)] ^= static_cast<unsigned char>(1 << random_.between(0, 7));
    }
    own.sent = number;
    if (fails && late_) stop();
    const auto until = steady::now() + patience;
    for (index_t other = 0; other < ranks_; ++other) {
      while (in_.posts[other].sent < number) {
        if (steady::now() > until) return other;
        std::this_thread::sleep_for(50us);
      }
      if (in_.posts[other].sizes[place] != own.sizes[place]) return other;
      std::copy_n(in_.posts[other].messages[place], sent.size(), received[other].data());
    }
    return -1;
  }

 private:
  void stop() const {
    if (how_ == fault::lies) return;
    kill(getpid(), how_ == fault::dies ? SIGKILL : SIGSTOP);
    for (;;) pause();  // it may come to another thread first
  }

  meeting& in_;
  index_t rank_, ranks_;
  std::int64_t call_ = 0;
  fault how_ = fault::dies;
  bool late_ = false;
  dice random_{1};
};

/// What is saved of a sequence, but for its statistics, which count work that was done in vain: the last 136 bytes of
/// the first section (docs/sequence_format.md).
saved_bytes without_statistics(saved_bytes bytes) {
  const auto end = bytes.begin() + static_cast<std::ptrdiff_t>(sections_of(bytes).front().end());
  std::fill(end - 136, end, static_cast<unsigned char>(0));
  reseal(bytes);
  return bytes;
}

/// The prompts in pieces, the rest token by token.
part next_part(ranked_player& plays) {
  const tape& says = *plays.at(0).says;
  const index_t now = plays.tokens(0);
  if (const auto prompt = says.prompt_at(now)) return part_of(says, 0, now, std::min<index_t>(23, prompt->last - now));
  return part_of(says, 0, now, 1);
}

ranked_model model_of(index_t ranks) {
  ranked_model made{{2, 2 * ranks, ranks, 8}, {{0}}};
  for (index_t rank = 1; rank <= ranks; ++rank) made.split.first.push_back(2 * rank);
  return made;
}

/// A text that nothing befalls: what each rank has after each step.
struct sound_text {
  tape says;
  std::vector<std::vector<saved_bytes>> after;  // [steps + 1][ranks]
  std::int64_t messages = 0;                    // of each rank, to each other one

  template <class Policy>
  sound_text(const Policy& policy, const ranked_model& on) : says(conversation(on.whole, 1, kind::peaked)) {
    zoomr::thread_ranks ends(on.split.ranks());
    std::vector<zoomr::rank_group> all;
    for (index_t rank = 0; rank < ends.count(); ++rank) all.emplace_back(ends.end(rank));
    ranked_player plays(on, policy, limits_for(says.size()), all);
    plays.open(says);
    for (keep(plays); !plays.done(); keep(plays)) plays.play({next_part(plays)});
    messages = plays.cache.at(0).ranks().messages / (on.split.ranks() - 1);
  }
  void keep(ranked_player& plays) {
    after.emplace_back();
    for (auto& cache : plays.cache.caches) after.back().push_back(without_statistics(saved(*cache, plays.at(0).seq)));
  }
};

/// What the process of a rank does.
template <class Policy>
void play(const Policy& policy, const ranked_model& on, const sound_text& sound, process_end& end,
          rank_report& report) {
  ranked_player plays(on, policy, limits_for(sound.says.size()), {zoomr::rank_group(end)});
  plays.open(sound.says);
  std::string said;
  for (; said.empty() && !plays.done(); ++report.steps) {
    const auto from = steady::now();
    said = sentence_of([&] { plays.play({next_part(plays)}); });
    report.seconds = std::chrono::duration<double>(steady::now() - from).count();
  }
  if (!said.empty()) --report.steps;
  said.copy(report.said, sizeof report.said - 1);
  const auto& right = sound.after[static_cast<std::size_t>(report.steps)][static_cast<std::size_t>(end.rank())];
  report.as_before = without_statistics(saved(plays.cache.at(0), plays.at(0).seq)) == right;
  report.done = true;
}

template <class Policy>
void check_fault(const char* name, const Policy& policy, fault how, std::uint64_t seed, int& in_commits) {
  dice random(mixed(seed));
  const index_t ranks = random.between(2, most_ranks), victim = random.between(0, ranks - 1);
  const ranked_model on = model_of(ranks);
  static std::map<std::pair<std::string, index_t>, sound_text> texts;
  const sound_text& sound = texts.try_emplace({name, ranks}, policy, on).first->second;
  const bool late = how != fault::lies && random.chance(50);
  const index_t call = random.between(1, static_cast<index_t>(sound.messages) - (late ? 1 : 0));
  void* const memory = mmap(nullptr, sizeof(meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto& in = *new (memory) meeting{};
  std::vector<pid_t> processes;
  for (index_t rank = 0; rank < ranks; ++rank) {
    processes.push_back(::fork());
    REQUIRE(processes.back() >= 0);
    if (processes.back() > 0) continue;
    process_end end(in, rank, ranks);
    if (rank == victim) end.fail_at(call, how, late, seed);
    const std::string wrong = sentence_of([&] { play(policy, on, sound, end, in.reports[rank]); });
    if (!wrong.empty()) wrong.copy(in.reports[rank].said, sizeof rank_report::said - 1);
    _exit(0);
  }
  const auto process = [&](index_t rank) { return processes[static_cast<std::size_t>(rank)]; };
  for (index_t rank = 0; rank < ranks; ++rank) {
    if (rank != victim) waitpid(process(rank), nullptr, 0);
  }
  if (how != fault::lies) kill(process(victim), SIGKILL);
  waitpid(process(victim), nullptr, 0);
  for (index_t rank = 0; rank < ranks; ++rank) {
    if (rank == victim && how != fault::lies) continue;
    const rank_report& report = in.reports[rank];
    const std::string said = report.said;
    INFO(std::string(name), ", seed ", seed, ": rank ", rank, " of ", ranks, ", rank ", victim, " fails at message ",
         call, ": ", said);
    CHECK(report.done);
    CHECK(said.find("ranks: rank " + std::to_string(victim) + " ") != std::string::npos);
    CHECK(report.seconds < std::chrono::duration<double>(in_time).count());
    const bool committed = said.find("the step is committed") != std::string::npos;
    CHECK(report.as_before != committed);
    in_commits += committed ? 1 : 0;
  }
  munmap(memory, sizeof(meeting));
}

void check_faults(fault how) {
  int in_commits = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto seed = static_cast<std::uint64_t>(trial) * 3 + static_cast<std::uint64_t>(how) + 1;
    switch (trial % 4) {
      case 0:
        check_fault("zoomr_one_pass", small::zoomr_one_pass, how, seed, in_commits);
        break;
      case 1:
        check_fault("arkvale", small::arkvale, how, seed, in_commits);
        break;
      case 2:
        check_fault("sentence_voters", small::sentence_voters, how, seed, in_commits);
        break;
      default:
        check_fault("by_layer", small::by_layer, how, seed, in_commits);
    }
  }
  MESSAGE(trials, " faults, of which ranks heard in the middle of a commit: ", in_commits);
}

}  // namespace

TEST_CASE("a rank that is killed is named by each other in time, and their sequences are as before the step") {
  check_faults(fault::dies);
}
TEST_CASE("a rank that is stopped is named by each other in time, and their sequences are as before the step") {
  check_faults(fault::stops);
}
TEST_CASE("a rank one bit of whose message turns is named by each, and their sequences are as before the step") {
  check_faults(fault::lies);
}

}  // namespace zoomr_test
