// SPDX-License-Identifier: Apache-2.0
// L1. Two kinds of failure, one channel each: a caller's mistake is a `precondition_error`, the world's
// fault (memory, files, devices) is an `error` with a code that has its section in docs/errors.md.
//
// Without exceptions both go to an error handler, which does not return. Other headers use `ZOOMR_TRY`, `ZOOMR_CATCH`
// and `rethrow`, so that they compile either way.
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

namespace zoomr::inline v0 {

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
  ranks,           ///< another rank does not answer, or is elsewhere
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

/// A failure, as an error handler receives it.
struct reported_failure {
  std::optional<errc> code;        ///< as of `error`; none: it would have been a precondition_error
  const char* sentence = nullptr;  ///< as `what()`
};

/// What is done about a failure where there are no exceptions: it ends the program. It must not return, nor jump out of
/// the call, which has undone nothing. It runs in the thread that made the call.
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

/// Without exceptions, for all threads: from now on `handler` is called with each failure. If it returns, the program
/// is aborted. At first a handler is set that prints the sentence to stderr and aborts. With exceptions it is never
/// called.
/// @param handler  nullptr: the one that was set at first
/// @return         the one before
inline error_handler set_error_handler(error_handler handler) noexcept {
  return detail::handler_in_use().exchange(handler == nullptr ? detail::print_and_abort : handler);
}

namespace detail {

#if ZOOMR_EXCEPTIONS

/// A fault of the world.
[[noreturn]] inline void raise(errc code, const std::string& sentence) { throw error(code, sentence); }
/// A mistake of the caller.
[[noreturn]] inline void raise_precondition(const std::string& sentence) {
  throw precondition_error(std::string(error::prefix) + sentence);
}
/// Within ZOOMR_CATCH or ZOOMR_CATCH_ALL: what was caught goes on.
[[noreturn]] inline void rethrow() { throw; }

#else

[[noreturn]] inline void report(std::optional<errc> code, const std::string& sentence) {
  const std::string what = std::string(error::prefix) + sentence;
  handler_in_use().load()({code, what.c_str()});
  std::abort();
}
[[noreturn]] inline void raise(errc code, const std::string& sentence) { report(code, sentence); }
[[noreturn]] inline void raise_precondition(const std::string& sentence) { report(std::nullopt, sentence); }
[[noreturn]] inline void rethrow() { std::abort(); }

/// Stands for what ZOOMR_CATCH names, where nothing is ever caught.
struct never_caught {
  template <class T>
  [[noreturn]] operator const T&() const {
    std::abort();
  }
};

#endif

}  // namespace detail
}  // namespace zoomr::inline v0

// try { ... } catch (const error& cause) { ... } catch (...) { ... } is written
//
//   ZOOMR_TRY { ... }
//   ZOOMR_CATCH(const error& cause) { ... }
//   ZOOMR_CATCH_ALL { ... }
//
// so that it compiles without exceptions too: then only the first block is ever entered. What is caught has a name.
#if ZOOMR_EXCEPTIONS
#define ZOOMR_TRY try
#define ZOOMR_CATCH(declaration) catch (declaration)
#define ZOOMR_CATCH_ALL catch (...)
#else
#define ZOOMR_TRY if constexpr (true)
#define ZOOMR_CATCH(declaration) \
  if constexpr (false)           \
    if ([[maybe_unused]] declaration = ::zoomr::detail::never_caught{}; true)
#define ZOOMR_CATCH_ALL if constexpr (false)
#endif

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
