// SPDX-License-Identifier: Apache-2.0
// Without exceptions: the error handler is told of each failure, with the code and the sentence that the exception
// would have had, and a cache goes on behind a handler that jumps out of the failed call.
#include <sys/wait.h>
#include <unistd.h>

#include <zoomr/core/thread_pool.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

#include <csetjmp>   // std::longjmp
#include <csignal>   // SIGABRT
#include <cstdio>    // std::printf
#include <optional>  // std::optional
#include <string>    // std::string
#include <vector>    // std::vector

#if ZOOMR_EXCEPTIONS
#error "compile this with -fno-exceptions"
#endif

using namespace zoomr;

#include "drive.hpp"

static std::jmp_buf landing;
static bool may_fail = false;
static std::optional<errc> told_code;
static const char* told_sentence;

static void jump(const reported_failure& failure) {
  if (!may_fail) {
    std::printf("not wanted: %s\n", failure.sentence);
    return;  // and be aborted
  }
  may_fail = false;
  told_code = failure.code;
  told_sentence = failure.sentence;
  std::longjmp(landing, 1);
}

/// Whether call() comes to its end.
template <class Call>
static bool completes(Call call) {
  may_fail = true;
  if (setjmp(landing) != 0) return false;
  call();
  may_fail = false;
  return true;
}

/// Whether call() fails with this code, or none, and this sentence.
template <class Call>
static bool fails(Call call, std::optional<errc> code, const char* sentence) {
  if (completes(call)) {
    std::printf("no failure, wanted: %s\n", sentence);
    return false;
  }
  const bool good = told_code == code && std::string(told_sentence) == sentence;
  if (!good) std::printf("told: %s\nwanted: %s\n", told_sentence, sentence);
  return good;
}

/// A mistake in a step: the step goes on with what was right.
static bool survives_a_precondition() {
  const std::vector<token_class> classes{token_class::plain};
  kv_cache cache{small_model, mine, config{.max_tokens = 64, .classes = classes}};
  const sequence seq = cache.open();
  const std::vector<token_id> ids(4, token_id{0});
  auto step = cache.begin(seq, ids, true);
  chunk wrong(5), of(4);
  bool good =
      fails([&] { wrong.append(step, 0); }, std::nullopt, "zoomr: append: keys are [5, 2, 8], wanted [4, 2, 8]");
  good = fails([&] { cache.begin(seq, ids); }, std::nullopt, "zoomr: a step is in progress: commit or drop it first") &&
         good;
  for (index_t layer = 0; layer < small_model.layers; ++layer) {
    of.append(step, layer);
    good = of.attend(step, layer) && good;
  }
  step.commit();
  return good && cache.tokens(seq) == 4;
}

/// A full table, a full sequence, and a step of which only the second item fails: what was planned of the first is
/// undone.
static bool survives_a_full_cache() {
  kv_cache cache{small_model, presets::full, config{.max_sequences = 2, .max_tokens = 8}};
  const sequence first = cache.open(), second = cache.open();
  bool good = fails([&] { cache.open(); }, errc::capacity,
                    "zoomr: all 2 sequences are open; close one or raise config.max_sequences");
  good = pass(cache, first, 4, true) && pass(cache, second, 8, true) && good;
  const std::vector<token_id> ids(1, token_id{0});
  const step_item items[] = {{first, ids}, {second, ids}};
  good = fails([&] { cache.begin(view<const step_item>(items, {2})); }, errc::capacity,
               "zoomr: sequence 1 would have 9 tokens, config.max_tokens is 8") &&
         good;
  good = pass(cache, first, 4, false) && good;
  return good && cache.tokens(first) == 8 && cache.tokens(second) == 8;
}

/// A fault of the world, in a constructor.
static bool says_that_no_file_can_be_made() {
  config limits{.max_tokens = 128};
  limits.tiers = {.device = 1 << 18, .host = 1 << 18, .file = 1 << 20, .path = "/no/such/folder/file"};
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
    if ((loses && spared-- <= 0) || failed_.has(one.after)) {
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
  static inline int spared = 0;  // before it loses

 private:
  ticket last_ = 0;
  failed_tickets failed_;
};
constexpr auto mine_with_losses =
    compose(fixed_pages{}, key_box{}, box_bound{}, top_k{}, every_token{}, tiered<cyclic_mru, losing_transfers>{});

/// One token, in a step of its own. Bytes are lost from a layer on, or with `small_model.layers` in the commit.
template <class Cache>
static bool pass_with_losses(Cache& cache, sequence seq, index_t from_layer, const char* sentence) {
  const std::vector<token_id> ids(1, token_id{0});
  auto step = cache.begin(seq, ids);
  chunk of(1);
  bool good = true;
  for (index_t layer = 0; layer < from_layer; ++layer) {
    of.append(step, layer);
    good = of.attend(step, layer) && good;
  }
  losing_transfers::loses = true;
  const auto rest = [&] {
    if (from_layer == small_model.layers) step.commit();
    of.append(step, from_layer);
    of.attend(step, from_layer);
  };
  good = fails(rest, errc::storage, sentence) && good;
  losing_transfers::loses = false;
  return good;
}

/// One token, some times: what is lost may have been begun earlier.
template <class Cache>
static bool pass_in_the_end(Cache& cache, sequence seq) {
  const std::vector<token_id> ids(1, token_id{0});
  for (int tries = 0; tries < 20; ++tries) {
    auto step = cache.begin(seq, ids);
    chunk of(1);
    bool good = true;
    const auto all = [&] {
      for (index_t layer = 0; layer < small_model.layers; ++layer) {
        of.append(step, layer);
        good = of.attend(step, layer) && good;
      }
      step.commit();
    };
    if (completes(all)) return good;
  }
  return false;
}

/// The least: six pages of one KV head beside all the rest.
static config with_least_tier(config limits) {
  limits.tiers.device = byte_count{1} << 40;
  const memory_use all = kv_cache<policy_of<mine_with_losses>>::bytes(small_model, mine_with_losses, limits);
  limits.tiers.device = all.total() - all.details + 6 * 2 * page_tokens * small_model.head_dim * 4;
  return limits;
}

/// Pages that do not come, in a call of a layer and in a commit: the step is dropped, and passed again.
static bool survives_lost_pages() {
  kv_cache cache{small_model, mine_with_losses, with_least_tier({.max_tokens = 128})};
  const sequence seq = cache.open();
  bool good = pass(cache, seq, 64, true);
  good = pass_with_losses(cache, seq, 0,
                          "zoomr: a page of details cannot be brought to the device: a transfer has failed") &&
         good;
  while (good && cache.tokens(seq) < 79) good = pass_in_the_end(cache, seq);
  const index_t segments = cache.segments(seq).size();
  good = pass_with_losses(cache, seq, small_model.layers,
                          "zoomr: a page of details cannot be brought to the device: a transfer has failed") &&
         good;
  good = cache.tokens(seq) == 79 && cache.segments(seq).size() == segments && good;
  good = pass_in_the_end(cache, seq) && cache.segments(seq).size() == segments + 1 && good;
  return pass_in_the_end(cache, seq) && cache.tokens(seq) == 81 && good;
}

/// What a cache in tiers has written to the host for 60 tokens behind a prompt, where a fork has failed to copy its
/// page before, after so many transfers, and was closed; -1: there is none. Nothing: a call did not do what it should.
static std::optional<byte_count> written_after_a_lost_copy(int spared) {
  kv_cache cache{small_model, mine_with_losses, with_least_tier({.max_sequences = 2, .max_tokens = 160})};
  const sequence seq = cache.open();
  bool good = pass(cache, seq, 72, true);
  if (spared >= 0) {
    const sequence other = cache.fork(seq);
    const std::vector<token_id> ids(1, token_id{0});
    losing_transfers::loses = true, losing_transfers::spared = spared;
    good = fails([&] { cache.begin(other, ids); }, errc::storage,
                 "zoomr: a page of details cannot be brought to the device: a transfer has failed") &&
           good;
    losing_transfers::loses = false, losing_transfers::spared = 0;
    cache.close(other);
  }
  for (int tokens = 0; tokens < 60; ++tokens) good = pass_in_the_end(cache, seq) && good;
  return good ? std::optional(cache.tiers().device_out) : std::nullopt;
}

/// What was copied of a page before the rest did not come is of no use to anybody: it is never written.
static bool forgets_half_copied_pages() {
  const auto without = written_after_a_lost_copy(-1);
  bool good = without.has_value();
  for (const int spared : {0, 1, 2}) good = written_after_a_lost_copy(spared) == without && good;
  return good;
}

static void return_from(const reported_failure&) {}

/// What a child prints that breaks a precondition under a handler, and whether it was aborted.
static bool is_aborted(error_handler handler, const std::string& prints) {
  int ends[2];
  if (pipe(ends) != 0) return false;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    set_error_handler(handler);
    kv_cache cache{small_model, presets::full, config{.max_tokens = 0}};
    _exit(0);
  }
  close(ends[1]);
  std::string printed;
  char one = 0;
  while (read(ends[0], &one, 1) == 1) printed += one;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && printed == prints;
}

int main() {
  const error_handler first = set_error_handler(jump);
  bool good = first != nullptr && set_error_handler(jump) == jump;
  good = survives_a_precondition() && good;
  good = survives_a_full_cache() && good;
  good = survives_lost_pages() && good;
  good = forgets_half_copied_pages() && good;
  good = says_that_no_file_can_be_made() && good;
  good =
      is_aborted(nullptr,
                 "zoomr: config: max_sequences, max_tokens, max_batched_tokens and max_draft_tokens must be at least "
                 "1\n") &&
      good;
  good = is_aborted(return_from, "") && good;
  set_error_handler(nullptr);
  good = set_error_handler(first) == first && good;
  return good && drive() ? 0 : 1;
}
