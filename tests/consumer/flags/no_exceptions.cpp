// SPDX-License-Identifier: Apache-2.0
// Without exceptions: the error handler is told of each failure, with the code and the sentence that the exception
// would have had, and the program ends there. Each failure is made in a child.
#include <sys/wait.h>
#include <unistd.h>

#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

#include <csignal>   // SIGABRT
#include <cstdio>    // std::printf, std::fprintf
#include <optional>  // std::optional
#include <string>    // std::string, std::to_string
#include <vector>    // std::vector

#if ZOOMR_EXCEPTIONS
#error "compile this with -fno-exceptions"
#endif

using namespace zoomr;

#include "drive.hpp"

/// How a child ended, and what it had printed to stderr.
struct child_end {
  int status = 0;
  std::string printed;
};

/// call() in a child, where `handler` is set: nullptr, the first one.
template <class Call>
static child_end ended(error_handler handler, Call call) {
  int ends[2];
  if (pipe(ends) != 0) return {};
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    set_error_handler(handler);
    call();
    _exit(0);
  }
  close(ends[1]);
  child_end end;
  char one = 0;
  while (read(ends[0], &one, 1) == 1) end.printed += one;
  close(ends[0]);
  waitpid(child, &end.status, 0);
  return end;
}

static constexpr int handled = 3;  // exit status

/// Prints what it is told, and ends the program.
static void print_and_exit(const reported_failure& failure) {
  const std::string code = failure.code ? std::to_string(static_cast<int>(*failure.code)) : "none";
  std::fprintf(stderr, "%s: %s", code.c_str(), failure.sentence);
  _exit(handled);
}
static void return_from(const reported_failure&) {}

/// Whether call() fails with this code, or none, and this sentence: the handler is told of it, and where it returns the
/// program is aborted. The first handler prints the sentence, and aborts.
template <class Call>
static bool fails(Call call, std::optional<errc> code, const std::string& sentence) {
  const std::string number = code ? std::to_string(static_cast<int>(*code)) : "none";
  const auto is_aborted = [](const child_end& end) {
    return WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT;
  };
  const child_end told = ended(print_and_exit, call);
  const child_end returned = ended(return_from, call);
  const child_end first = ended(nullptr, call);
  bool good = WIFEXITED(told.status) && WEXITSTATUS(told.status) == handled;
  good = good && told.printed == number + ": " + sentence;
  good = good && is_aborted(returned) && returned.printed.empty();
  good = good && is_aborted(first) && first.printed == sentence + "\n";
  if (!good) {
    std::printf("wanted: %s: %s\ntold: %s\nprinted: %s\n", number.c_str(), sentence.c_str(), told.printed.c_str(),
                first.printed.c_str());
  }
  return good;
}

/// Mistakes of the caller: in a constructor, and in a step.
static bool says_what_was_wanted() {
  bool good = fails(
      [] {
        kv_cache cache{small_model, presets::full, config{.max_tokens = 0}};
      },
      std::nullopt,
      "zoomr: config: max_sequences, max_tokens, max_batched_tokens and max_draft_tokens must be at least 1");
  const std::vector<token_class> classes{token_class::plain};
  kv_cache cache{small_model, mine, config{.max_tokens = 64, .classes = classes}};
  const sequence seq = cache.open();
  const std::vector<token_id> ids(4, token_id{0});
  auto step = cache.begin(seq, ids, true);
  const chunk wrong(5);
  good = fails([&] { wrong.append(step, 0); }, std::nullopt, "zoomr: append: keys are [5, 2, 8], wanted [4, 2, 8]") &&
         good;
  return fails([&] { cache.begin(seq, ids); }, std::nullopt, "zoomr: a step is in progress: commit or drop it first") &&
         good;
}

/// A full table of sequences, and a full sequence in the second item of a step.
static bool says_what_is_full() {
  kv_cache cache{small_model, presets::full, config{.max_sequences = 2, .max_tokens = 8}};
  const sequence first = cache.open(), second = cache.open();
  bool good = fails([&] { cache.open(); }, errc::capacity,
                    "zoomr: all 2 sequences are open; close one or raise config.max_sequences");
  good = pass(cache, first, 4, true) && pass(cache, second, 8, true) && good;
  const std::vector<token_id> ids(1, token_id{0});
  const step_item items[] = {{first, ids}, {second, ids}};
  return fails([&] { cache.begin(view<const step_item>(items, {2})); }, errc::capacity,
               "zoomr: sequence 1 would have 9 tokens, config.max_tokens is 8") &&
         good;
}

/// A fault of the world, in a constructor.
static bool says_that_no_file_can_be_made() {
  config limits{.max_tokens = 128};
  limits.tiers = {.host = 1 << 19, .file = 1 << 20, .path = "/no/such/folder/file"};
  return fails(
      [&] {
        kv_cache cache{small_model, mine_in_tiers, limits};
      },
      errc::storage, "zoomr: the tier's file /no/such/folder/file cannot be made: No such file or directory");
}

/// Moves bytes at once, or loses them.
class losing_transfers {
 public:
  ticket start(const transfer& one) {
    ++last_;
    if (loses) {
      failed_.add(last_);
    } else {
      move_one(one);
    }
    return last_;
  }
  bool done(ticket) const { return true; }
  bool wait(ticket of) const { return !failed_.has(of); }
  block_fault why(ticket of) const { return failed_.why(of); }
  transfer_times times() const { return {}; }

  static inline bool loses = false;

 private:
  ticket last_ = 0;
  failed_tickets failed_;
};
constexpr auto mine_with_losses =
    compose(fixed_pages{}, key_box{}, box_bound{}, top_k{}, every_token{}, tiered<cyclic_mru, losing_transfers>{});

/// The least: six pages of one KV head beside all the rest.
static config with_least_tier(config limits) {
  limits.tiers = {.host = byte_count{1} << 40, .file = byte_count{1} << 40, .path = "/tmp"};
  using policy_type = policy_of<mine_with_losses>;
  const memory_use all = kv_cache<policy_type>::bytes(small_model, mine_with_losses, limits);
  const byte_count block = 2 * page_tokens * small_model.head_dim * 4;
  const byte_count frame = block + pool_of<decltype(policy_type::placement), float>::tier_type::frame_table_bytes;
  limits.tiers.host = all.total() - (all.file / block - 6) * frame;
  return limits;
}

/// Pages that do not come, in a call of a layer and in a commit: no item fails alone, the program ends.
static bool says_that_a_page_is_lost() {
  kv_cache cache{small_model, mine_with_losses, with_least_tier({.max_tokens = 128})};
  const sequence seq = cache.open();
  bool good = pass(cache, seq, 64, true);
  const char* const lost = "zoomr: a page of details cannot be brought to memory: a transfer has failed";
  const auto lose_from = [&](index_t from_layer) {  // in the commit, with `small_model.layers`
    const std::vector<token_id> ids(1, token_id{0});
    auto step = cache.begin(seq, ids);
    chunk of(1);
    for (index_t layer = 0; layer < small_model.layers; ++layer) {
      losing_transfers::loses = layer >= from_layer;
      of.append(step, layer);
      of.attend(step, layer);
    }
    losing_transfers::loses = true;
    step.commit();
  };
  good = fails([&] { lose_from(0); }, errc::storage, lost) && good;
  while (good && cache.tokens(seq) < 79) good = pass(cache, seq, 1, false);
  return fails([&] { lose_from(small_model.layers); }, errc::storage, lost) && good;
}

int main() {
  const error_handler first = set_error_handler(print_and_exit);
  bool good = first != nullptr && set_error_handler(nullptr) == print_and_exit && set_error_handler(first) == first;
  good = says_what_was_wanted() && good;
  good = says_what_is_full() && good;
  good = says_that_no_file_can_be_made() && good;
  good = says_that_a_page_is_lost() && good;
  return good && drive() ? 0 : 1;
}
