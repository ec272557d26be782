// SPDX-License-Identifier: Apache-2.0
// Ranks over MPI. Each rank plays texts with its own heads, and again with all heads alone: the results of its heads
// are the same bits.
//
//   mpirun -n N mpi_ranks_test           that they are
//   mpirun -n N mpi_ranks_test stopped   the last rank stops in the middle of a text: the others name it, and go on
//   alone
//   mpirun -n N mpi_ranks_test dealt     tokens are dealt out instead: all ranks choose as one, and attend the same
#define DOCTEST_CONFIG_IMPLEMENT  // with a main of its own
#include <cache/ranks/ranked_cache.hpp>
#include <cache/support/conversations.hpp>
#include <cache/support/players.hpp>
#include <zoomr/core/ranks/mpi_ranks.hpp>

#include <signal.h>
#include <unistd.h>

#include <algorithm>  // std::equal
#include <cstdio>     // std::printf
#include <cstring>    // std::memcmp, std::strcmp
#include <string>     // std::string

namespace zoomr_test {
namespace {

using namespace std::chrono_literals;

#if defined(ZOOMR_ALL_CHECKS)
constexpr std::uint64_t lives = 12;
#else
constexpr std::uint64_t lives = 2;
#endif

ranked_model model_for(index_t ranks) {
  if (ranks == 2) return {{2, 6, 3, 8}, {{0, 4, 6}}};
  head_split split{{0}};
  for (index_t rank = 0; rank < ranks; ++rank) split.first.push_back(2 * (rank + 1));
  return {{2, 2 * ranks, ranks, 8}, split};
}

/// The first token and pass at which a rank's heads have other results than in `all`; empty if none has.
std::string difference_of_part(const result_log& all, const result_log& own, const head_part& part,
                               const shape& whole) {
  if (all.size() != own.size()) return "another number of tokens";
  for (const auto& [at, right] : all) {
    const token_result& got = own.at(at);
    for (index_t layer = 0; layer < whole.layers; ++layer) {
      for (index_t head = part.head; head < part.head + part.model.heads; ++head) {
        const auto row = static_cast<std::size_t>(layer * whole.heads + head),
                   width = static_cast<std::size_t>(whole.head_dim);
        const auto numbers = [&](const token_result& of) { return of.out.numbers.data() + row * width; };
        const bool same_out = std::memcmp(numbers(right), numbers(got), width * sizeof(float)) == 0;
        const bool same_read = right.attended.empty() || right.attended[row] == got.attended[row];
        if (!same_out || !same_read) {
          return "position " + std::to_string(at.first) + ", pass " + std::to_string(at.second) + ", head " +
                 std::to_string(head);
        }
      }
    }
  }
  return "";
}

template <class Policy>
int check_lives(const char* name, const Policy& policy, zoomr::mpi_ranks& ranks) {
  const ranked_model on = model_for(ranks.ranks());
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= lives; ++seed) {
    const tape says = conversation(on.whole, seed, seed % 3 == 0 ? kind::peaked : kind::uniform);
    player<Policy> plainly(on.whole, policy, limits_for(says.size()));
    plainly.open(says);
    plainly.play_plainly();
    ranked_player plays(on, policy, limits_for(says.size()), {zoomr::rank_group(ranks)});
    plays.open(says);
    dice random(mixed(seed));
    happened all;
    while (!plays.done()) {
      if (random.chance(4)) roll_back(policy, plays, 0, random, all);
      any_step(plays, random, all);
    }
    const std::string where =
        difference_of_part(plainly.at(0).log, plays.at(0).log, plays.cache.parts.front(), on.whole);
    if (where.empty()) continue;
    std::printf("rank %d, %s, seed %d: %s\n", ranks.rank(), name, static_cast<int>(seed), where.c_str());
    ++failed;
  }
  return failed;
}

template <class Policy>
int check_dealt_lives(const char* name, const Policy& policy, zoomr::mpi_ranks& ranks) {
  const ranked_model on{{2, 4, 2, 8}, dealt(ranks.ranks(), 16)};
  int failed = 0;
  for (std::uint64_t seed = 1; seed <= lives; ++seed) {
    const tape says = conversation(on.whole, seed);
    player<Policy> plainly(on.whole, policy, limits_for(says.size()));
    plainly.open(says);
    plainly.play_plainly();
    ranked_player plays(on, policy, limits_for(says.size()), {zoomr::rank_group(ranks)});
    plays.open(says);
    dice random(mixed(seed));
    happened all;
    while (!plays.done()) any_step(plays, random, all);
    const log_comparison close = compared(plainly.at(0).log, plays.at(0).log, tolerance_of(8, says.size()));
    if (close.difference.empty()) continue;
    std::printf("rank %d, %s, seed %d: %s\n", ranks.rank(), name, static_cast<int>(seed), close.difference.c_str());
    ++failed;
  }
  return failed;
}

int check_dealt(MPI_Comm world) {
  zoomr::mpi_ranks ranks(world, 60s);
  return check_dealt_lives("full", small::full, ranks) + check_dealt_lives("zoomr_focus", small::zoomr_focus, ranks) +
         check_dealt_lives("sentence_voters", small::sentence_voters, ranks);
}

int check_stopped(MPI_Comm world) {
  zoomr::mpi_ranks ranks(world, 2s);
  const ranked_model on = model_for(ranks.ranks());
  const index_t last = ranks.ranks() - 1;
  std::vector<std::int64_t> own = {getpid()}, pids(static_cast<std::size_t>(ranks.ranks()));
  if (ranks.all_gather(view<const std::int64_t>(own), {pids.data(), {ranks.ranks(), 1}}) >= 0) return 1;
  const tape says = conversation(on.whole, 1);
  ranked_player plays(on, small::sentence_voters, limits_for(says.size()), {zoomr::rank_group(ranks)});
  plays.open(says);
  plays.play({part_of(says, 0, 0, says.prompt)});
  plays.play({part_of(says, 0, says.prompt, 1)});
  if (ranks.rank() == last) {
    kill(getpid(), SIGSTOP);  // until the first rank wakes it
    return 0;
  }
  index_t before = 0;
  const std::string said = sentence_of([&] {
    while (!plays.done()) {
      before = plays.tokens();
      plays.play({part_of(says, 0, before, 1)});
    }
  });
  const std::string name = "ranks: rank " + std::to_string(last) + " has not answered";
  const bool named = said.find(name) != std::string::npos;
  const bool intact = plays.tokens() == before && plays.cache.at(0).segments(plays.at(0).seq).size() > 0;
  if (!named || !intact) std::printf("rank %d: \"%s\", %d tokens\n", ranks.rank(), said.c_str(), plays.tokens());
  if (ranks.rank() == 0) kill(static_cast<pid_t>(pids[static_cast<std::size_t>(last)]), SIGCONT);
  return named && intact ? 0 : 1;
}

int check_all(MPI_Comm world) {
  zoomr::mpi_ranks ranks(world, 60s);
  int failed = 0;
  for_each_policy([&](const char* name, const auto& policy) {
    if (!frees_pages(policy)) failed += check_lives(name, policy, ranks);
  });
  return failed;
}

}  // namespace
}  // namespace zoomr_test

int main(int count, char** arguments) {
  MPI_Init(&count, &arguments);
  doctest::Context context;
  context.setAsDefaultForAssertsOutOfTestCases();
  const bool stopped = count > 1 && std::strcmp(arguments[1], "stopped") == 0;
  const bool dealt = count > 1 && std::strcmp(arguments[1], "dealt") == 0;
  const int failed = stopped ? zoomr_test::check_stopped(MPI_COMM_WORLD)
                     : dealt ? zoomr_test::check_dealt(MPI_COMM_WORLD)
                             : zoomr_test::check_all(MPI_COMM_WORLD);
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}
