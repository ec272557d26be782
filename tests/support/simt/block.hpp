// SPDX-License-Identifier: Apache-2.0
// Part of support/simt.hpp: the block that is running, its threads, and who of them is next.
#pragma once

#include <support/simt/fiber.hpp>

#include <array>        // std::array
#include <bit>          // std::countr_zero
#include <cstdint>      // std::uint64_t
#include <cstdio>       // std::fprintf
#include <cstdlib>      // std::getenv
#include <cstring>      // std::strcmp
#include <exception>    // std::exception_ptr
#include <memory>       // std::unique_ptr
#include <random>       // std::mt19937_64
#include <set>          // std::set
#include <stdexcept>    // std::runtime_error
#include <string>       // std::string, std::stoull
#include <string_view>  // std::string_view
#include <utility>      // std::move, std::swap
#include <vector>       // std::vector

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
};

inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace simt {

inline constexpr int warp = 32;
inline constexpr int most_threads = 1024;

/// What a kernel does wrong.
class fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Of all that can run, the first is next, or the last, or any. A thread runs until it must wait. With `any` the blocks
/// of each launch come in another of these orders, so that one run of a test sees all of them; not of threads.
enum class order { forward, reverse, random, any };

/// When the work of streams is done: as soon as it may be, when the host waits for it, or at any time between.
enum class schedule { early, late, random };

/// What was done so far, for tests that count it.
struct work_done {
  std::int64_t launches = 0;
  std::int64_t copied = 0;  // bytes
};
inline work_done counted;

/// What a variable of the environment says: one of some names, the first if it is not set; or the last, and `:SEED`.
struct named_setting {
  int number = 0;  // of the name
  std::uint64_t seed = 1;

  template <std::size_t N>
  static named_setting of_environment(const char* variable, const std::array<const char*, N>& names) {
    const char* const value = std::getenv(variable);
    const std::string_view text = value == nullptr ? names[0] : value;
    for (std::size_t n = 0; n < N; ++n) {
      if (text == names[n]) return {static_cast<int>(n), 1};
    }
    const std::string last = std::string(names[N - 1]) + ":";
    const std::string digits(text.starts_with(last) ? text.substr(last.size()) : "");
    if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos) {
      std::fprintf(stderr, "%s must be ", variable);
      for (const char* name : names) std::fprintf(stderr, "%s, ", name);
      std::fprintf(stderr, "or %sSEED, not %s\n", last.c_str(), value);
      std::exit(2);
    }
    return {static_cast<int>(N) - 1, std::stoull(digits)};
  }
};

/// How streams work, and in which order blocks come, unless a test says otherwise.
inline const named_setting streams_of_environment =
    named_setting::of_environment<3>("ZOOMR_SIMT_STREAMS", {"early", "late", "random"});
inline const named_setting blocks_of_environment =
    named_setting::of_environment<4>("ZOOMR_SIMT_BLOCKS", {"forward", "reverse", "random", "any"});

/// How the next launches are run.
struct settings {
  order threads = order::forward;
  order blocks = static_cast<order>(blocks_of_environment.number);
  std::uint64_t seed = blocks_of_environment.seed;
  std::string without;  // "file:line" of a barrier that is left out: nobody waits, each thread has voted alone
  schedule streams = static_cast<schedule>(streams_of_environment.number);
};
inline settings how;

/// The same, but for when streams work.
inline settings with_streams(schedule when) {
  settings made = how;
  made.streams = when;
  return made;
}

/// Settings until the end of a scope.
class scoped_settings {
 public:
  explicit scoped_settings(settings until_then) : before_(std::move(how)) { how = std::move(until_then); }
  scoped_settings(const scoped_settings&) = delete;
  scoped_settings& operator=(const scoped_settings&) = delete;
  ~scoped_settings() { how = std::move(before_); }

 private:
  settings before_;
};

/// The barriers that were passed since this was cleared, as "file:line", without folders.
inline std::set<std::string> barriers_seen;

inline bool same_text(const char* a, const char* b) { return a == b || std::strcmp(a, b) == 0; }

/// A place in the source.
struct site {
  const char* file = "";
  int line = 0;
  friend bool operator==(site a, site b) { return a.line == b.line && same_text(a.file, b.file); }
};

inline std::string name_of(site at) {
  const std::string path = at.file;
  return path.substr(path.find_last_of('/') + 1) + ":" + std::to_string(at.line);
}

/// What the lanes of a collective show each other; `lanes` are those that take part.
struct shown_values {
  unsigned lanes = 0;
  std::array<std::uint64_t, warp> of{};
};

/// Where a thread waits for others, what it shows them and what it is told.
struct meeting {
  const char* name = "";  // "__syncthreads"
  site at;
  unsigned lanes = 0;  // whom it waits for; none: the block
  std::uint64_t value = 0;
  int source = 0;                                           // the lane whose value it asks for
  void (*answer)(const shown_values&, meeting&) = nullptr;  // sets `result`; none: a barrier
  std::uint64_t result = 0;
  bool undefined = false;  // the result is of a lane that takes no part
};

struct word_history;

/// An element of a shared array, for those who touch it (support/simt/shared.hpp).
struct shared_word {
  word_history* history;
  std::int32_t element;
  std::int32_t elements;  // of the array
};

/// 16 bytes on their way from global to shared memory.
struct copy_under_way {
  void* to;
  const void* from;
  shared_word word;
  std::array<unsigned char, 16> sent;
};

enum class status { ready, waits, over };

struct thread_state {
  explicit thread_state(void (*code)()) : ranges(code) {}

  fiber ranges;
  dim3 place;
  status now = status::over;
  meeting at;
  site last_barrier;
  std::uint64_t steps = 0;             // what it has done to shared memory since it last waited
  std::vector<copy_under_way> copies;  // oldest first
  std::vector<std::size_t> batches;    // how many of them each batch has
  std::size_t in_no_batch = 0;
};

/// Some of a block's threads.
class thread_set {
 public:
  void add(int thread) { add(thread, 1u); }
  /// Those of a warp, as bits from `first` on, a multiple of 32 if there are several.
  void add(int first, unsigned threads) {
    words_[word(first)] |= std::uint64_t{threads} << (first % 64);
    used_ |= 1u << word(first);
  }
  void remove(int thread) {
    words_[word(thread)] &= ~(std::uint64_t{1} << (thread % 64));
    if (words_[word(thread)] == 0) used_ &= ~(1u << word(thread));
  }
  bool empty() const { return used_ == 0; }
  /// The lowest, or -1.
  int first() const { return lowest(used_); }
  /// The highest, or -1.
  int last() const {
    if (used_ == 0) return -1;
    const int w = 31 - std::countl_zero(used_);
    return w * 64 + 63 - std::countl_zero(words_[static_cast<std::size_t>(w)]);
  }
  /// The lowest from `thread` on, or else the lowest, or -1.
  int next(int thread) const {
    const std::size_t w = word(thread);
    const std::uint64_t rest = words_[w] & ~std::uint64_t{0} << (thread % 64);
    if (rest != 0) return static_cast<int>(w) * 64 + std::countr_zero(rest);
    const unsigned later = used_ & ~((2u << w) - 1);
    return lowest(later != 0 ? later : used_);
  }

 private:
  static constexpr std::size_t word(int thread) { return static_cast<std::size_t>(thread) / 64; }
  int lowest(unsigned words) const {
    if (words == 0) return -1;
    const int w = std::countr_zero(words);
    return w * 64 + std::countr_zero(words_[static_cast<std::size_t>(w)]);
  }

  std::array<std::uint64_t, most_threads / 64> words_{};
  unsigned used_ = 0;  // words that are not 0
};

/// The lanes of a warp, and how far each has seen the others: up to which of their times. Its own time is its own
/// entry.
struct warp_state {
  unsigned living = 0;
  unsigned waiting = 0;  // in a collective
  std::array<std::array<std::uint32_t, warp>, warp> seen{};
  warp_state() {
    for (std::size_t l = 0; l < warp; ++l) seen[l][l] = 1;
  }
};

/// A barrier of this launch.
struct known_barrier {
  site at;
  bool left_out;
};

/// A kernel's call with its arguments, which are kept elsewhere. A std::function of each would be more to compile.
class kernel_call {
 public:
  kernel_call() = default;
  template <class Call>
  kernel_call(const Call& call) : kept_(&call), make_([](const void* kept) { (*static_cast<const Call*>(kept))(); }) {}
  void operator()() const { make_(kept_); }

 private:
  const void* kept_ = nullptr;
  void (*make_)(const void*) = nullptr;
};

struct block_state {
  std::vector<std::unique_ptr<thread_state>> threads;  // may be more than the block has
  std::vector<warp_state> warps;                       // the same; their times go on from block to block
  std::vector<known_barrier> barriers;
  kernel_call body;
  bool running = false;
  int number = 0;
  int size = 0;
  int living = 0;  // threads that have not ended
  int now = 0;     // the thread that is running
  thread_set ready;
  thread_set resting;  // have given way

  // Counts the barriers of all blocks, and the blocks: what happens at different times is ordered.
  std::uint64_t time = 0;
  std::uint64_t began = 0;

  site barrier;  // where those that have arrived are
  const char* barrier_name = "";
  int arrived = 0;
  int votes = 0;
  int counted_votes = 0;  // of the last barrier
  int counted_voters = 0;

  std::exception_ptr failure;
  std::mt19937_64 random;
  std::mt19937_64 orders{blocks_of_environment.seed};  // of blocks, from launch to launch: order::any
};
inline block_state block;

inline thread_state& thread(int number) { return *block.threads[static_cast<std::size_t>(number)]; }
inline thread_state& self() { return thread(block.now); }
inline int lane() { return block.now % warp; }
inline int own_warp() { return block.now / warp; }
inline warp_state& warp_of(int number) { return block.warps[static_cast<std::size_t>(number / warp)]; }

[[noreturn]] inline void fail(const std::string& sentence) {
  std::string where = " (thread " + std::to_string(block.now) + " of block " + std::to_string(block.number);
  if (self().last_barrier.line > 0) where += ", last barrier " + name_of(self().last_barrier);
  throw fault(sentence + where + ")");
}

/// Ends a thread whose block has failed.
struct cancelled {};

/// Who is next, or -1.
inline int next_thread() {
  if (block.ready.empty()) std::swap(block.ready, block.resting);
  switch (how.threads) {
    case order::forward:
      return block.ready.first();
    case order::reverse:
      return block.ready.last();
    case order::random:
    case order::any:
      return block.ready.next(static_cast<int>(block.random() % static_cast<unsigned>(block.size)));
  }
  return -1;
}

/// Makes a thread the one that is running.
inline thread_state& turn_to(int number) {
  thread_state& next = thread(number);
  block.now = number;
  threadIdx = next.place;
  return next;
}

/// Lets others run until it is this thread's turn again. If there is nobody, or the block has failed, the launch is
/// told.
inline void give_way() {
  const int next = block.failure ? -1 : next_thread();
  if (next == block.now) return;
  fiber& own = self().ranges;
  if (next < 0) return own.leave();
  own.pass_to(turn_to(next).ranges);
}

/// The same within a kernel, whose threads end when the block has failed.
inline void leave_thread() {
  give_way();
  if (block.failure) throw cancelled{};
}

inline void wait_for_others(thread_state& me) {
  me.now = status::waits;
  me.steps = 0;
  block.ready.remove(block.now);
}

inline void wake(int number) {
  thread(number).now = status::ready;
  block.ready.add(number);
}

/// Counts what a thread does, so that it cannot go on for ever unnoticed.
inline void step() {
  constexpr std::uint64_t for_ever = 1 << 20;
  if (++self().steps >= for_ever) fail("a thread goes on for ever: it does not wait, and does not end");
}

/// Before an atomic operation others may have their turn, so that those that wait for a value see it at last.
inline void step_of_atomic() {
  step();
  const bool by_chance = how.threads == order::random && block.random() % 4 == 0;
  if (!by_chance && self().steps % 64 != 0) return;
  block.ready.remove(block.now);
  block.resting.add(block.now);
  leave_thread();
}

}  // namespace simt
