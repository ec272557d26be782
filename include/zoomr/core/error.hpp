// SPDX-License-Identifier: Apache-2.0
// L1. Two kinds of failure, one channel each: a caller's mistake is a `precondition_error`, the world's
// fault (memory, files, devices) is an `error` with a code that has its section in docs/errors.md.
//
// Without exceptions both go to an error handler, which does not return. No other header throws or catches: they use
// what is in `detail` here.
#pragma once

#include <zoomr/core/platform.hpp>
#include <zoomr/core/version.hpp>

#include <atomic>       // std::atomic
#include <cstdio>       // std::fprintf
#include <cstdlib>      // std::abort
#include <optional>     // std::optional
#include <stdexcept>    // std::logic_error, std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <utility>      // std::exchange, std::move

namespace zoomr {
inline namespace v0 {

/// The caller broke a documented precondition. Nothing was changed.
class precondition_error : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Which fault of the world it was: decides what the caller can do about it, not which call has failed.
enum class errc {
  capacity,        ///< a pool, a table or a sequence is full
  rollback_depth,  ///< a rollback goes deeper than the records that are kept
  not_held,        ///< tokens are to be erased, but of what is there some were evicted or freed
  device,          ///< a kernel cannot be started, or a copy fails
  busy,            ///< the device is too far behind: wait, and call again
  storage,         ///< a file cannot be made, read or written, or a tier's gives back something else
  format,          ///< a saved sequence is damaged, or not for this cache
};

/// The world's fault, with the sizes involved and what to do in its text. Nothing was changed.
class error : public std::runtime_error {
 public:
  static constexpr std::string_view prefix = "zoomr: ";  // of `what()`

  error(errc code, const std::string& what) : std::runtime_error(std::string(prefix) + what), code_(code) {}
  errc code() const { return code_; }

 private:
  errc code_;
};

/// A failure, as an error handler is told of it.
struct reported_failure {
  std::optional<errc> code;        ///< as of `error`; none: it would have been a precondition_error
  const char* sentence = nullptr;  ///< as `what()`; valid until the next failure in this thread
};

/// What is done about a failure where there are no exceptions. It must not return: it ends the program, or jumps out of
/// the failed call (std::longjmp) to where the step in progress, if there is one, still exists. It runs in the thread
/// that made the call.
using error_handler = void (*)(const reported_failure&);

namespace detail {

[[noreturn]] inline void print_and_abort(const reported_failure& failure) {
  std::fprintf(stderr, "%s\n", failure.sentence);
  std::abort();
}

inline std::atomic<error_handler>& handler_in_use() {
  static std::atomic<error_handler> handler{print_and_abort};
  return handler;
}

}  // namespace detail

/// Without exceptions, for all threads: from now on `handler` is told of each failure. If it returns, the program is
/// aborted. At first a handler is set that prints the sentence to stderr and aborts. With exceptions it is never
/// called.
/// @param handler  nullptr: the one that was set at first
/// @return         the one before
inline error_handler set_error_handler(error_handler handler) noexcept {
  return detail::handler_in_use().exchange(handler == nullptr ? detail::print_and_abort : handler);
}

namespace detail {

#if ZOOMR_EXCEPTIONS

/// A fault of the world.
[[noreturn]] inline void raise(errc code, std::string sentence) { throw error(code, sentence); }
/// A mistake of the caller.
[[noreturn]] inline void raise_precondition(std::string sentence) {
  throw precondition_error(std::string(error::prefix) + sentence);
}

/// work(), or where that throws a `Caught`, handle(what was thrown), which returns the same type, raises something
/// else, or throws on (`rethrow`). Without exceptions `handle` is never called: the error handler has not returned.
template <class Caught, class Work, class Handle>
auto handled(Work&& work, Handle&& handle) -> decltype(work()) {
  try {
    return work();
  } catch (const Caught& what) {
    return handle(what);
  }
}
[[noreturn]] inline void rethrow() { throw; }

/// work(), and where that fails undo(), before the failure is thrown on. Without exceptions `undo` is called before
/// the error handler.
template <class Work, class Undo>
void undone_if_failed(Work&& work, Undo undo) {
  try {
    work();
  } catch (...) {
    undo();
    throw;
  }
}
/// The same where `error` is the failure, no other.
template <class Work, class Undo>
void undone_if_error(Work&& work, Undo undo) {
  try {
    work();
  } catch (const error&) {
    undo();
    throw;
  }
}

/// work(), for what is ended or given back whatever fails: a failure is forgotten.
template <class Work>
void ignoring_failures(Work&& work) {
  try {
    work();
  } catch (...) {
  }
}
constexpr bool failures_are_ignored() { return false; }

#else

/// What the calls in progress would undo, the innermost first.
class pending_undo {
 public:
  template <class Undo>
  pending_undo(Undo& undo, bool of_errors_alone)
      : undo_(&undo),
        call_([](void* target) { (*static_cast<Undo*>(target))(); }),
        of_errors_alone_(of_errors_alone),
        outer_(std::exchange(innermost(), this)) {}
  pending_undo(const pending_undo&) = delete;
  pending_undo& operator=(const pending_undo&) = delete;
  ~pending_undo() { innermost() = outer_; }

  /// Each is forgotten before it is called: the frames that it stands in may be jumped over.
  static void undo_all(bool is_error) {
    while (innermost() != nullptr) {
      const pending_undo& next = *std::exchange(innermost(), innermost()->outer_);
      if (is_error || !next.of_errors_alone_) next.call_(next.undo_);
    }
  }

 private:
  static pending_undo*& innermost() {
    thread_local pending_undo* undo = nullptr;
    return undo;
  }

  void* undo_;
  void (*call_)(void*);
  bool of_errors_alone_;
  pending_undo* outer_;
};

inline int& ignoring() {
  thread_local int depth = 0;
  return depth;
}

[[noreturn]] inline void report(std::optional<errc> code, std::string&& sentence) {
  thread_local std::string kept;
  kept = error::prefix;
  kept += sentence;
  sentence = std::string();  // a jump out of the call would leak it
  ignoring() = 0;
  pending_undo::undo_all(code.has_value());
  handler_in_use().load()({code, kept.c_str()});
  std::abort();
}

[[noreturn]] inline void raise(errc code, std::string sentence) { report(code, std::move(sentence)); }
[[noreturn]] inline void raise_precondition(std::string sentence) { report(std::nullopt, std::move(sentence)); }

template <class Caught, class Work, class Handle>
auto handled(Work&& work, Handle&&) -> decltype(work()) {
  return work();
}
[[noreturn]] inline void rethrow() { std::abort(); }

template <class Work, class Undo>
void undone_if_failed(Work&& work, Undo undo) {
  const pending_undo pending(undo, false);
  work();
}
template <class Work, class Undo>
void undone_if_error(Work&& work, Undo undo) {
  const pending_undo pending(undo, true);
  work();
}

template <class Work>
void ignoring_failures(Work&& work) {
  ++ignoring();
  work();
  --ignoring();
}
inline bool failures_are_ignored() { return ignoring() > 0; }

#endif

}  // namespace detail
}  // namespace v0
}  // namespace zoomr

/// Always checked, in public calls of host code: throws `precondition_error` with the sentence, which is built only
/// then.
#define ZOOMR_EXPECTS(condition, sentence)                                        \
  do {                                                                            \
    if (!(condition)) ::zoomr::detail::raise_precondition(std::string(sentence)); \
  } while (false)

/// Checked in debug builds, in inner loops of host code; elsewhere the condition is not even evaluated.
#if ZOOMR_CHECKED && !defined(__CUDA_ARCH__)
#define ZOOMR_ASSERT(condition, sentence) ZOOMR_EXPECTS(condition, sentence)
#else
#define ZOOMR_ASSERT(condition, sentence) static_cast<void>(0)
#endif
