// SPDX-License-Identifier: Apache-2.0
// L6. What the caches of host and device say of their sequences.
#pragma once

#include <zoomr/cache/state/sequences.hpp>

#include <memory>   // std::unique_ptr
#include <utility>  // std::move

namespace zoomr {
inline namespace v0 {
namespace detail {

/// `kv_cache` and `device_cache` are made of it.
/// @tparam Core  what the cache owns: `states`, `step`, `sizes.model`, `policy`
template <class Core>
class cache_base {
 public:
  const shape& model() const { return core_->sizes.model; }

  /// A new, empty sequence.
  /// @throws error(capacity) if config.max_sequences are open
  sequence open() { return open_sequence(core_->states); }

  /// Committed tokens.
  index_t tokens(sequence seq) const { return expect_open(seq).tokens(); }
  /// True until a step with `prompt_ends` is committed: all tokens until then are prompt, and attend to everything.
  bool in_prompt(sequence seq) const { return expect_open(seq).in_prompt(); }
  /// Closed segments, ascending; valid until the sequence changes.
  view<const segment> segments(sequence seq) const { return expect_open(seq).segments; }

 protected:
  void expect_idle() const { core_->step.expect_idle(); }
  auto& expect_open(sequence seq) const { return detail::expect_open(core_->states, seq); }

  std::unique_ptr<Core> core_;
};

}  // namespace detail
}  // namespace v0
}  // namespace zoomr
