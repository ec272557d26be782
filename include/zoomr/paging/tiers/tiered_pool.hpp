// SPDX-License-Identifier: Apache-2.0
// L3. Pages in tiers. What moves is a block (block_shape): a piece of a page. This maps pages, KV heads and slots to
// blocks and back; what happens to blocks is in tiered_blocks.hpp.
#pragma once

#include <zoomr/paging/page_pool.hpp>
#include <zoomr/paging/tiers/tiered_blocks.hpp>

namespace zoomr::inline v0 {

/// Pages of which some are in memory, the others in a file; all else as page_pool.
template <class T, replacement Replacement, transfer_engine Engine>
class tiered_pool : public page_stock {
 public:
  using number = T;
  using kv_lane_type = tiered_kv_lane<tiered_pool>;
  using blocks_type = tiered_blocks<T, Replacement, Engine>;
  using tier_type = typename blocks_type::tier_type;

  static constexpr bool may_fail = true;
  static constexpr bool owns_pages = true;
  static constexpr index_t guarded = blocks_type::guarded;
  /// The least that memory can work with, in blocks: with those that stay reachable there is room for others.
  static constexpr index_t least_frames = guarded + 2;

  /// Arguments as of tiered_blocks.
  tiered_pool(const block_shape& block, index_t pages, index_t frames, const std::string& path)
      : page_stock(pages), shape_(block), blocks_(block, block.pieces() * pages, frames, path) {}

  /// From a config: `tiers` in bytes, of the memory what `others` leave.
  /// @throws precondition_error if a tier is too small; error(capacity) without memory, error(storage) without a file
  static tiered_pool make(const block_shape& block, index_t pages, const tier_bytes& tiers, byte_count others) {
    return tiered_pool(block, pages, frames_in_memory<tiered_pool>(block, pages, tiers, others).frames, tiers.path);
  }
  /// What `make` will take of each tier; it allocates nothing, and refuses the same.
  static pool_bytes bytes(const block_shape& block, index_t pages, const tier_bytes& tiers, byte_count others) {
    const tier_frames memory = frames_in_memory<tiered_pool>(block, pages, tiers, others);
    return {memory.frames * block.template bytes<T>(), memory.tables,
            bounded_product({pages, page_bytes(block.model)})};
  }
  byte_count bytes_of_page() const { return page_bytes(shape_.model); }
  static byte_count page_bytes(const shape& model) { return page_pool<T>::page_bytes(model); }

  kv_lane_type kv_lane(index_t layer, index_t kv_head, view<const index_t> pages) {
    const index_t head = kv_head % shape_.heads;
    return {this, piece_of(layer, kv_head), head * head_numbers<T>(shape_.model.head_dim),
            kv_rows::in_page<T>(shape_.model, shape_.heads, head), pages};
  }
  index_t piece_of(index_t layer, index_t kv_head) const { return shape_.piece_of(layer, kv_head); }

  void begin_layer(index_t layer) { blocks_.begin_layer(layer); }

  /// A piece of a page in memory; valid until four other blocks have been reached.
  /// @throws error(storage) if it cannot be brought there
  /// @cost  O(1) in memory, without a wait; else a transfer, and what must make room
  const T* reach(index_t piece, index_t page) { return blocks_.reach(block_of(piece, page)); }
  T* reach_to_write(index_t piece, index_t page) { return blocks_.reach_to_write(block_of(piece, page)); }
  void prefetch(index_t piece, index_t page) { blocks_.prefetch(block_of(piece, page)); }
  void touch(index_t piece, index_t page) { blocks_.touch(block_of(piece, page)); }

  void prefetch(index_t layer, token_range kv_heads, view<const index_t> pages, token_range slots) {
    each_piece(layer, kv_heads, pages, slots, [&](index_t piece, index_t page) { prefetch(piece, page); });
  }
  void touch(index_t layer, token_range kv_heads, view<const index_t> pages, token_range slots) {
    each_piece(layer, kv_heads, pages, slots, [&](index_t piece, index_t page) { touch(piece, page); });
  }

  /// Starts writing a page, which is full, to the file, all pieces that have changed. What cannot be written now will
  /// be when its room is needed.
  void write_back(index_t page) {
    for (index_t piece = 0; piece < shape_.pieces(); ++piece) blocks_.write_back(block_of(piece, page));
  }

  /// As of page_pool, piece by piece, in memory.
  /// @throws error(storage) if pages do not come; some of it is copied then
  void copy_page(index_t from, index_t to) {
    for (index_t piece = 0; piece < shape_.pieces(); ++piece) {
      const T* const numbers = reach(piece, from);
      std::copy_n(numbers, shape_.template numbers<T>(), reach_to_write(piece, to));
    }
  }

  void forget(index_t page) override {
    for (index_t piece = 0; piece < shape_.pieces(); ++piece) blocks_.forget(block_of(piece, page));
  }

  bool in_memory(index_t piece, index_t page) const { return blocks_.in_memory(block_of(piece, page)); }
  tier_statistics stats() const { return blocks_.stats(); }

 private:
  // Blocks are numbered by pieces, then pages: those of one layer are together.
  index_t block_of(index_t piece, index_t page) const { return piece * pages() + page; }

  // The pieces of [kv_heads.first, kv_heads.last) in the pages that hold some of `slots`: page after page, as attention
  // reads them.
  template <class Visit>
  void each_piece(index_t layer, token_range kv_heads, view<const index_t> pages, token_range slots, Visit visit) {
    const index_t last = piece_of(layer, kv_heads.last - 1);
    for (index_t at = slots.first / page_tokens; at * page_tokens < slots.last; ++at) {
      for (index_t piece = piece_of(layer, kv_heads.first); piece <= last; ++piece) visit(piece, pages[at]);
    }
  }

  block_shape shape_;
  blocks_type blocks_;
};

}  // namespace zoomr::inline v0
