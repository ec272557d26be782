// SPDX-License-Identifier: Apache-2.0
// L1. Two kinds of failure, one channel each: a caller's mistake is a `precondition_error`, the world's
// fault (memory, files, devices) is an `error` with a code that has its section in docs/errors.md.
#pragma once

#include <zoomr/core/platform.hpp>
#include <zoomr/core/version.hpp>

#include <stdexcept>    // std::logic_error, std::runtime_error
#include <string>       // std::string
#include <string_view>  // std::string_view

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

}  // namespace v0
}  // namespace zoomr

/// Always checked, in public calls of host code: throws `precondition_error` with the sentence, which is built only
/// then.
#define ZOOMR_EXPECTS(condition, sentence)                                                    \
  do {                                                                                        \
    if (!(condition)) throw ::zoomr::precondition_error(std::string("zoomr: ") + (sentence)); \
  } while (false)

/// Checked in debug builds, in inner loops of host code; elsewhere the condition is not even evaluated.
#if ZOOMR_CHECKED && !defined(__CUDA_ARCH__)
#define ZOOMR_ASSERT(condition, sentence) ZOOMR_EXPECTS(condition, sentence)
#else
#define ZOOMR_ASSERT(condition, sentence) static_cast<void>(0)
#endif
