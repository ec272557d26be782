// SPDX-License-Identifier: Apache-2.0
// L1. The shape of a model's attention, validated in one place.
#pragma once

#include <zoomr/core/types.hpp>

namespace zoomr::inline v0 {

/// Numbers of a key and of a value.
struct kv_widths {
  index_t key = 0;
  index_t value = 0;
};

/// How values are stored, as a compile-time argument of kernels: beside their keys, or in them (the latents of MLA), as
/// the first numbers of a key. `shape` has the same at run time.
template <index_t Width>
struct values_apart {
  static constexpr index_t width = Width;   // numbers of a value
  static constexpr index_t stored = Width;  // those that are stored of it beside its key
  static constexpr bool in_keys = false;
};
template <index_t Width>
struct values_in_keys {
  static constexpr index_t width = Width;
  static constexpr index_t stored = 0;
  static constexpr bool in_keys = true;
};

/// What a cache needs of a model. `heads` query heads share `kv_heads` KV heads in groups: query head h reads KV head h
/// / group().
struct shape {
  index_t layers = 0;
  index_t heads = 0;
  index_t kv_heads = 0;
  index_t head_dim = 0;         // numbers of a key, and of a query
  index_t value_dim = 0;        // numbers of a value, and of an output; 0: head_dim
  bool values_in_keys = false;  // a value is the first numbers of its key, and is not stored: the latents of MLA

  static constexpr index_t most_head_dim = 576;

  friend constexpr bool operator==(const shape& a, const shape& b) {
    return a.layers == b.layers && a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
           a.value_width() == b.value_width() && a.values_in_keys == b.values_in_keys;
  }

  /// Numbers of a value, and of an output.
  ZOOMR_HD constexpr index_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
  /// Those that are stored of a value, beside its key.
  ZOOMR_HD constexpr index_t stored_value_width() const { return values_in_keys ? 0 : value_width(); }
  /// Query heads that read one KV head.
  ZOOMR_HD constexpr index_t group() const { return heads / kv_heads; }
  /// Pairs of a layer and a KV head: each has keys, values and an index of its own.
  ZOOMR_HD constexpr index_t kv_lanes() const { return layers * kv_heads; }

  /// nullptr, or a sentence: what is wrong with this shape. Caches refuse such a shape before anything else; `group`
  /// must not be called on one.
  constexpr const char* problem() const {
    if (layers < 1 || heads < 1 || kv_heads < 1) return "shape: layers, heads and kv_heads must be at least 1";
    if (heads % kv_heads != 0) return "shape: heads must be a multiple of kv_heads";
    if (head_dim < 8 || head_dim > most_head_dim || head_dim % 8 != 0) {
      return "shape: head_dim must be a multiple of 8 from 8 to 576";
    }
    if (value_dim < 0 || value_dim > most_head_dim || value_dim % 8 != 0) {
      return "shape: value_dim must be 0 (as wide as keys) or a multiple of 8 up to 576";
    }
    if (values_in_keys && value_dim > head_dim) return "shape: values that lie in keys cannot be wider than keys";
    if (layers > 1024 || heads > 1024) return "shape: more than 1024 layers or heads";
    return nullptr;
  }
};

}  // namespace zoomr::inline v0
