// SPDX-License-Identifier: Apache-2.0
// What sees all that attention gets in a session of one sequence, pass by pass.
#pragma once

#include <zoomr/core/types.hpp>  // zoomr::token_id
#include <zoomr/core/view.hpp>   // zoomr::view

#include "head_parts.hpp"

namespace decode {

using zoomr::index_t;
using zoomr::token_id;

/// Listens to a session. Tokens may be passed again before they are committed: in a second pass, or after a draft of
/// which fewer were accepted. The last pass counts.
///
/// T = tokens of a pass
class attention_tap {
 public:
  using rows = zoomr::view<const float, 3>;

  virtual ~attention_tap() = default;
  /// Before each pass.
  /// @param ids    [T]
  /// @param first  the position of the first one; the others follow it
  virtual void pass(zoomr::view<const token_id> ids, index_t first) = 0;
  /// @param keys, values  [T, kv_heads, head_dim]  with rotary embedding, as the cache gets them
  virtual void append(index_t layer, rows keys, rows values) = 0;
  /// @param queries  [T, heads, head_dim]
  virtual void attend(index_t layer, rows queries) = 0;
  /// After each step.
  /// @param tokens  of the sequence
  virtual void commit(index_t tokens) = 0;
};

/// A step that a tap listens to, and that has the heads of this rank.
template <class Step>
struct tapped_step {
  Step& step;
  attention_tap* tap;  // nullptr: none
  head_parts* parts;   // nullptr: it has all heads

  void append(index_t layer, attention_tap::rows keys, attention_tap::rows values) {
    if (tap != nullptr) tap->append(layer, keys, values);
    if (parts != nullptr) keys = parts->own_kv_heads(keys), values = parts->own_kv_heads(values);
    step.append(layer, keys, values);
  }
  void attend(index_t layer, attention_tap::rows queries, zoomr::view<float, 3> out) {
    if (tap != nullptr) tap->attend(layer, queries);
    if (parts == nullptr) return step.attend(layer, queries, out);
    step.attend(layer, parts->own_heads(queries), parts->own_heads(out));
    parts->gather(layer, out);
  }
};

}  // namespace decode
