// SPDX-License-Identifier: Apache-2.0
// One policy at work on a trace: its cache gets what the model's attention got, token by token, and what it answers is
// compared with full attention.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <string>      // std::string
#include <vector>      // std::vector

#include "../decode/policy_choice.hpp"
#include "../decode/report/recorder.hpp"
#include "../decode/voters.hpp"
#include "reference.hpp"
#include "replay_result.hpp"
#include "trace.hpp"

namespace replay {

/// What a cache may take.
struct memory_limits {
  zoomr::byte_count memory = 0;  // of one cache
  zoomr::byte_count device = 0;  // of these, as a device would have, over a file; 0: all of them
  std::string scratch;           // a folder, for what memory does not hold
};

/// What all policies share beside the trace.
struct settings {
  memory_limits limits;
  decode::learnt_voters voters;  // without weights: unknown
};

/// Calls come in this order: `prompt`, `play` for adjacent tokens up to the trace's last, `result`.
class player {
 public:
  virtual ~player() = default;

  /// For a page of what is read: it is told of the cache's state after the prompt and after each token. Before
  /// `prompt`.
  virtual void record(report::recorder* into) = 0;
  /// What a recorder must know of the policy.
  virtual const report::policy_facts& facts() const = 0;

  /// Passes the prompt, densely, in the chunks of zoomr-decode. Nothing is compared there, since every policy attends
  /// to everything.
  /// @param passed  called with the number of tokens passed so far
  virtual void prompt(trace& from, const std::function<void(index_t)>& passed) = 0;
  /// @param exact  of the same tokens
  virtual void play(const token_rows& rows, const exact_answers& exact) = 0;
  virtual replay_result result() const = 0;
};

/// The player of a policy. Its cache is one of zoomr-decode as long as there is memory for that; else keys and values
/// that have no room there are in a file without a name in `limits.scratch`.
/// @param text  the policy as the command line says it
/// @throws decode::input_error  no such policy, or one that cannot work on this trace or within these limits
std::unique_ptr<player> open_player(const decode::policy_choice& choice, const std::string& text, const trace& from,
                                    const settings& shared);

/// What is known of a policy and its cache before it plays.
struct opened {
  std::string text, options;
  report::policy_facts facts;
  index_t chunk = 256;  // tokens of a prompt that pass together
  bool dense = false;   // the policy leaves out nothing in any layer that the trace has
};

/// The player of a cache that is there.
std::unique_ptr<player> play_on(zoomr::any_kv_cache<float, zoomr::placement> cache, opened known, const trace& from);
std::unique_ptr<player> play_on(zoomr::any_kv_cache<float, zoomr::tiered<>> cache, opened known, const trace& from);

}  // namespace replay

// They are compiled with the decoder's sessions.
extern template class zoomr::any_kv_cache<float, zoomr::placement>;
extern template class zoomr::any_kv_cache<float, zoomr::tiered<>>;
extern template class zoomr::step<float, zoomr::placement>;
extern template class zoomr::step<float, zoomr::tiered<>>;
