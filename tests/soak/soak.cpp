// SPDX-License-Identifier: Apache-2.0
// Random operations on caches of every preset, storage type and place of pages, against caches that are rebuilt from
// what was committed.
//
// An operation is a public call with arguments drawn at random: open, fork, save and load, close, plan and begin,
// append, attend, observe, needs_second_pass, commit, a step that is dropped, rollback, erase, shift, what a sequence
// is asked for, and calls that are mistakes. What is saved is loaded in its place, beside itself (both then get the
// same), or with all others in another cache, of other sizes and in another place, where life goes on. Sequences come
// and go; prompts come in chunks of any length, attended or only observed; drafts are accepted as far as chance says;
// batches are ragged; layers come in any order; sequences, segments and pages run out. Under a tiered cache, the
// system's calls on the file fail (EIO, ENOSPC), are interrupted, move half of the bytes or change a bit; what has
// failed is tried again, rolled back, or begun anew.
//
// What must hold: a call that is refused, fails or is dropped changes nothing that can be seen. And at random points a
// resident cache of one sequence, which is given the committed tokens at once, gives each of them the same bits as they
// got (outputs and lse, both passes), has the same segments, bytes of summaries and pages, and gives the next token the
// same bits. Not compared: counts of work (it counts when it is done, also for steps that are dropped), the largest use
// of memory, bytes of logs. A rollback may be refused where it goes behind what a policy has evicted, or deeper than
// config.rollback_tokens from the longest that the sequence was. After a rollback into the prompt, the prompt's end is
// so far behind that eviction observes no query which is not remembered any more.
//
// --without leaves out what came after 685834b: `strict`, mistakes in the order of layers, ids without a class and
// sequences that were closed; `accept_failed`, tokens accepted of items that have failed; `short_prompts`, prompts
// whose last chunk is shorter than what eviction observes. `forks` leaves out sequences that share pages, `engines`
// caches in the pages of an engine, `groups` those of two groups of layers, `reloads` sequences that are saved and
// loaded, `erases` spans that go or are shifted, `shifts` the latter, `gaps` model positions that stay where
// tokens go, `turns` keys that are turned, `widths` rows of other widths than the model's,
// `logits` what a model does to its logits, `windows` layers with a sliding one, `odd` keys that are not finite,
// `wholes` items that are passed whole, `spans` tokens that are pinned and questions.
//
// Two runs with the same numbers do the same, but for policies whose bytes are moved by a thread.
#include <soak/life.hpp>

#include <unistd.h>  // isatty

#include <chrono>   // std::chrono::steady_clock
#include <cstdio>   // std::printf
#include <cstdlib>  // std::strtoll
#include <cstring>  // std::strcmp

namespace {

struct options {
  std::int64_t operations = 1000000;
  std::uint64_t seed = 1;
  std::int64_t life = -1;  // only this one
  std::string only;        // this policy
  std::set<std::string> without;
};

constexpr const char* usage =
    "soak [--operations N] [--seed S] [--life L] [--only POLICY] [--without "
    "strict,accept_failed,short_prompts,forks,engines,reloads,erases,turns,widths,logits,windows,groups,odd,wholes,\n"
    "                shifts,gaps,spans]\n";

/// The options, or an exit with the usage.
options parse(int argc, char** argv) {
  options made;
  for (int a = 1; a < argc; a += 2) {
    const std::string name = argv[a], value = a + 1 < argc ? argv[a + 1] : "";
    char* end = nullptr;
    const long long number = std::strtoll(value.c_str(), &end, 10);
    const bool is_number = !value.empty() && *end == '\0' && number >= 0;
    if (name == "--operations" && is_number) {
      made.operations = number;
    } else if (name == "--seed" && is_number) {
      made.seed = static_cast<std::uint64_t>(number);
    } else if (name == "--life" && is_number) {
      made.life = number;
    } else if (name == "--only" && !value.empty()) {
      made.only = value;
    } else if (name == "--without" && !value.empty()) {
      for (std::size_t at = 0, next = 0; at < value.size(); at = next + 1) {
        next = std::min(value.find(',', at), value.size());
        made.without.insert(value.substr(at, next - at));
      }
    } else {
      std::fprintf(stderr, "%s", usage);
      std::exit(2);
    }
  }
  return made;
}

void print(const soak::votes_t& all, std::int64_t lives) {
  std::printf("%lld operations in %lld lives\n", static_cast<long long>(all.operations()),
              static_cast<long long>(lives));
  for (std::size_t c = 0; c < std::size(soak::call_names); ++c) {
    std::printf("  %-12s %10lld\n", soak::call_names[c], static_cast<long long>(all.calls[c]));
  }
  for (const auto& [what, times] : all.events)
    std::printf("  %-42s %10lld\n", what.c_str(), static_cast<long long>(times));
}

}  // namespace

int main(int argc, char** argv) {
  const options given = parse(argc, argv);
  std::vector<soak::sort> sorts;
  using namespace zoomr;
  soak::add_types<SOAK_TYPES>(sorts);
  std::erase_if(sorts, [&](const soak::sort& each) { return !given.only.empty() && each.name != given.only; });
  if (sorts.empty()) {
    std::fprintf(stderr, "soak: there is no policy %s\n", given.only.c_str());
    return 2;
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto begin = std::chrono::steady_clock::now();
  soak::votes_t all;
  std::int64_t lives = 0;
  for (std::int64_t life = std::max<std::int64_t>(given.life, 0); all.operations() < given.operations;
       ++life, ++lives) {
    const soak::sort& of = sorts[static_cast<std::size_t>(life) % sorts.size()];
    constexpr soak::pages places[] = {soak::pages::resident, soak::pages::tiered, soak::pages::engine,
                                      soak::pages::tiered, soak::pages::groups};
    soak::pages lie = places[life / static_cast<std::int64_t>(sorts.size()) % 5];
    if (lie == soak::pages::groups && given.without.count("groups") > 0) lie = soak::pages::resident;
    if (lie == soak::pages::tiered && !of.tiered) lie = soak::pages::resident;
    if (lie == soak::pages::engine && (!of.engine || given.without.count("engines") > 0)) lie = soak::pages::resident;
    const std::uint64_t seed = zoomr_test::mixed(given.seed * 1000003 + static_cast<std::uint64_t>(life));
    try {
      soak::live(of, {.seed = seed, .lie = lie, .without = given.without}, all);
    } catch (const std::exception& why) {
      std::printf("%s%s, %s, %s: %s\nonce more: soak --seed %llu --life %lld%s%s%s\n", terminal ? "\n" : "",
                  of.name.c_str(), of.type.c_str(), soak::pages_names[static_cast<std::size_t>(lie)], why.what(),
                  static_cast<unsigned long long>(given.seed), static_cast<long long>(life),
                  given.only.empty() ? "" : " --only ", given.only.c_str(),
                  of.threads ? " (a thread moves bytes: perhaps not in the same place)" : "");
      print(all, lives);
      return 1;
    }
    if (given.life >= 0) break;
    if (terminal) {
      const std::chrono::duration<double> past = std::chrono::steady_clock::now() - begin;
      std::fprintf(stderr, "\r%lld of %lld operations, %.0f s ", static_cast<long long>(all.operations()),
                   static_cast<long long>(given.operations), past.count());
    }
  }
  if (terminal) std::fprintf(stderr, "\n");
  print(all, lives);
  std::printf("no difference\n");
  return 0;
}
