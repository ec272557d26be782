// SPDX-License-Identifier: Apache-2.0
// What the adaptor asks of a cache, whatever keys and values are stored as: storage.hpp makes one for each type.
#pragma once

#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/zoomr.hpp>

#include <memory>   // std::unique_ptr
#include <utility>  // std::pair
#include <vector>   // std::vector

#include "../../decode/policy_choice.hpp"
#include "rotation.hpp"

namespace adaptor {

using zoomr::index_t;
using zoomr::view;

/// Which numbers a tensor has.
enum class number { f32, f16, bf16 };
/// What keys and values are stored as.
enum class storage { f32, f16, q8_0, q4_0 };

/// A tensor [tokens, heads, width] of a graph, where it is.
struct rows {
  const void* data = nullptr;
  number type = number::f32;
  zoomr::extents<3> extents{};
  std::int64_t strides[3] = {};  // in numbers

  template <class Number>
  view<const Number, 3> as() const {
    return {static_cast<const Number*>(data), extents, strides};
  }
};

/// All that a cache is made of.
struct cache_settings {
  zoomr::shape model;
  zoomr::config limits;          // its tables are below
  std::vector<index_t> windows;  // [layers] of sliding-window layers, 0 of the others; empty: there are none
  decode::policy_choice policy;
  std::vector<zoomr::token_class> classes;
  std::vector<float> voters;  // [layers, heads]
  rope_table ropes;
};

/// A cache, and the step that is in progress.
class cache {
 public:
  virtual ~cache() = default;
  virtual zoomr::sequence open() = 0;
  virtual void close(zoomr::sequence seq) = 0;
  virtual zoomr::sequence fork(zoomr::sequence from) = 0;
  virtual void rollback(zoomr::sequence seq, index_t tokens) = 0;
  /// @param turn  nullptr: a gap is left, and keys stay turned as they are
  virtual void erase(zoomr::sequence seq, zoomr::token_range span, const layer_rotation* turn) = 0;
  /// Nothing changes.
  /// @throws what `erase` would
  virtual void plan_erase(zoomr::sequence seq, zoomr::token_range span, const layer_rotation* turn) const = 0;
  virtual void shift(zoomr::sequence seq, zoomr::token_range span, const layer_rotation& turn) = 0;
  virtual bool holds_all() const = 0;
  virtual bool evicts_while_decoding() const = 0;
  virtual void save(zoomr::sequence seq, zoomr::byte_sink& to) = 0;
  virtual zoomr::byte_count save_bytes(zoomr::sequence seq) = 0;
  virtual zoomr::sequence load(zoomr::byte_source& from) = 0;
  virtual index_t tokens(zoomr::sequence seq) const = 0;
  virtual index_t model_position(zoomr::sequence seq, index_t token) const = 0;
  virtual bool in_prompt(zoomr::sequence seq) const = 0;
  virtual zoomr::statistics stats(zoomr::sequence seq) const = 0;
  virtual zoomr::byte_count bytes(zoomr::sequence seq) const = 0;
  virtual zoomr::byte_count capacity() const = 0;

  /// Tokens of one sequence that a step can pass whole after its prompt, at most; more are a later prompt.
  virtual index_t longest_whole() const = 0;
  /// Nothing changes.
  /// @throws zoomr::precondition_error if a step cannot take the item as it is
  virtual void plan(const zoomr::step_item& item) const = 0;
  virtual void begin(view<const zoomr::step_item> items) = 0;
  virtual void attend(index_t layer, const rows& q, const rows& k, const rows& v, view<float, 3> out) = 0;
  virtual void commit(view<const index_t> accepted) = 0;
  /// The step never happened; without one nothing is done.
  virtual void drop() = 0;
};

/// @param settings  outlive the cache
/// @throws decode::input_error, also where that policy or storage is not compiled; zoomr::precondition_error,
///         zoomr::error
std::unique_ptr<cache> open_cache(const cache_settings& settings, storage stored);
// Of one storage type: each is compiled in a source of its own.
std::unique_ptr<cache> open_f32(const cache_settings& settings);
std::unique_ptr<cache> open_f16(const cache_settings& settings);
std::unique_ptr<cache> open_q8_0(const cache_settings& settings);
std::unique_ptr<cache> open_q4_0(const cache_settings& settings);

}  // namespace adaptor
