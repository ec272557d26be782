// SPDX-License-Identifier: Apache-2.0
// L6. What has been called so far in a pass, one bit for each layer: so that nothing is forgotten, and nothing comes
// out of its order. The steps of host and device share it.
#pragma once

#include <zoomr/core/error.hpp>
#include <zoomr/core/table.hpp>
#include <zoomr/core/types.hpp>
#include <zoomr/core/view.hpp>

#include <algorithm>  // std::any_of, std::copy, std::fill
#include <bit>        // std::countr_one
#include <string>     // std::to_string

namespace zoomr::inline v0::detail {

/// Layers whose keys were appended, and whose queries were seen (attended or observed), in the present pass. Each call
/// is for all items of the pass, so that one bit for each layer is enough.
///
/// The keys of a layer may be appended again, which overwrites them, until its queries are seen: what has been attended
/// is what is committed. The queries of a layer are seen once, since choices and statistics count them. A layer that
/// attends the keys of another one, its donor, has nothing to append, and comes after it.
/// @cost  a few instructions a call, one word for 64 layers at the end of a pass; no allocation after construction
class step_layers {
 public:
  step_layers() = default;
  /// @param donors  [layers]  config.donors, or empty
  step_layers(index_t layers, view<const index_t> donors)
      : layers_(layers), donors_(layers), keyless_(words(layers)), appended_(words(layers)), seen_(words(layers)) {
    for (index_t layer = 0; layer < layers; ++layer) {
      donors_[layer] = donors.size() > 0 ? donors[layer] : layer;
      if (donors_[layer] != layer) set(keyless_, layer);
    }
    clear();
  }
  static byte_count bytes(index_t layers) {
    return 3 * words(layers) * static_cast<byte_count>(sizeof(std::uint64_t)) +
           layers * static_cast<byte_count>(sizeof(index_t));
  }

  /// A new pass begins.
  void clear() {
    std::copy(keyless_.begin(), keyless_.end(), appended_.begin());
    std::fill(seen_.begin(), seen_.end(), 0u);
    any_ = started_ = false;
  }
  /// False if neither `append` nor `attend` nor `observe` was called in this pass: a replayed graph may have done so.
  bool any() const { return any_; }

  /// @throws precondition_error if there is no such layer
  void expect_layer(const char* call, index_t layer) const {
    ZOOMR_EXPECTS(layer >= 0 && layer < layers_, std::string(call) + ": there is no layer " + std::to_string(layer) +
                                                     ", the model has " + std::to_string(layers_));
  }
  /// Before `append`: the layer has keys of its own, and its queries have not been seen.
  void expect_append(index_t layer) const {
    ZOOMR_EXPECTS(donors_[layer] == layer, "append: layer " + std::to_string(layer) +
                                               " has no keys of its own: by config.donors it attends those of layer " +
                                               std::to_string(donors_[layer]));
    ZOOMR_EXPECTS(!has(seen_, layer), "append: layer " + std::to_string(layer) +
                                          " was attended or observed in this pass, so that its keys cannot change");
  }
  /// Before `attend` or `observe`, which is `call`: the layer has keys, and its queries have not been seen.
  void expect_queries(const char* call, index_t layer) const {
    ZOOMR_EXPECTS(has(appended_, layer), std::string(call) + ": append the keys of layer " + std::to_string(layer) +
                                             " before, in the same pass");
    ZOOMR_EXPECTS(!has(seen_, layer),
                  std::string(call) + ": layer " + std::to_string(layer) +
                      " was attended or observed in this pass already; a layer of the model that shares its keys is "
                      "one of its own, with a donor in config.donors");
    const index_t donor = donors_[layer];
    ZOOMR_EXPECTS(donor == layer || has(seen_, donor), std::string(call) + ": layer " + std::to_string(layer) +
                                                           " attends the keys of layer " + std::to_string(donor) +
                                                           ": attend or observe that one before, in the same pass");
  }
  /// The same where this layer reads what `anchor` chooses: that one's queries have been seen.
  void expect_queries(const char* call, index_t layer, index_t anchor) const {
    expect_queries(call, layer);
    ZOOMR_EXPECTS(anchor == layer || has(seen_, anchor), std::string(call) + ": layer " + std::to_string(layer) +
                                                             " reads what layer " + std::to_string(anchor) +
                                                             " chooses: attend that one before, in the same pass");
  }
  bool seen(index_t layer) const { return has(seen_, layer); }
  /// On a device: the pass's table is uploaded. Until then nothing may be enqueued that reads it.
  void start() { started_ = true; }
  /// On a device, before `call`: so it is, and layers come in ascending order.
  void expect_next(const char* call, index_t layer) const {
    ZOOMR_EXPECTS(started_, std::string(call) + ": enqueue `start` before, and `restart` before the second pass");
    const index_t next = first_missing(appended_);
    ZOOMR_EXPECTS(next >= layer, std::string(call) + ": layers ascend on a device, so that layer " +
                                     std::to_string(next) + " comes before layer " + std::to_string(layer));
  }
  void append(index_t layer) { set(appended_, layer); }
  void see(index_t layer) { set(seen_, layer); }

  /// True if the queries of some layer were seen.
  bool any_seen() const {
    return std::any_of(seen_.begin(), seen_.end(), [](std::uint64_t word) { return word != 0; });
  }
  /// True if the queries of all layers were seen.
  bool all_seen() const { return first_missing(seen_) == layers_; }
  /// Before tokens of an item are accepted: each layer was appended and, where its queries are `needed`, seen.
  void expect_complete(const char* call, index_t item, bool needed) const {
    const index_t not_appended = first_missing(appended_);
    ZOOMR_EXPECTS(not_appended == layers_, missing(call, item, not_appended) + " was not appended");
    const index_t not_seen = needed ? first_missing(seen_) : layers_;
    ZOOMR_EXPECTS(not_seen == layers_,
                  missing(call, item, not_seen) + " was not attended (or, in the prompt, observed)");
  }

 private:
  using bits = table<std::uint64_t>;

  static index_t words(index_t layers) { return (layers + 63) / 64; }
  static bool has(const bits& marks, index_t layer) { return (marks[layer / 64] >> (layer % 64)) & 1u; }
  void set(bits& marks, index_t layer) {
    marks[layer / 64] |= std::uint64_t{1} << (layer % 64);
    any_ = true;
  }
  // `layers_` if none is.
  index_t first_missing(const bits& marks) const {
    index_t first = 0;
    for (const std::uint64_t word : marks) {
      const int ones = std::countr_one(word);
      first += ones;
      if (ones < 64) break;
    }
    return first;
  }
  std::string missing(const char* call, index_t item, index_t layer) const {
    return std::string(call) + ": tokens of item " + std::to_string(item) + " are accepted, but layer " +
           std::to_string(layer) + " of " + std::to_string(layers_);
  }

  index_t layers_ = 0;
  table<index_t> donors_;  // [layers]  whose keys each attends
  bits keyless_;           // one bit for each layer: it attends those of another
  bits appended_;          // nothing is left to append
  bits seen_;
  bool any_ = false;
  bool started_ = false;
};

}  // namespace zoomr::inline v0::detail
