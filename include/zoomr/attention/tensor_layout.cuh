// SPDX-License-Identifier: Apache-2.0
// L4. Which types attention multiplies on tensor cores, and how a block shares out the work then: what gather.cuh and
// its warps (gather_tensor.cuh) agree on.
#pragma once

#include <zoomr/core/device/device.cuh>
#include <zoomr/core/device/vectors.cuh>
#include <zoomr/core/shape.hpp>

#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0 {

/// True if heads share keys, and tensor cores multiply their numbers exactly: queries of 16 bits, keys and values of
/// their type or of 8 bits. Two tiles of 16 tokens must fit a block, and a value that is in its key ends where eight
/// threads that read it at once do.
template <class T, class Number, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
constexpr bool fits_tensor_cores() {
  const bool multiplied = std::is_same_v<Number, bfloat16> || std::is_same_v<Number, float16>;
  const bool exact = std::is_same_v<T, Number> || sizeof(T) == 1;
  constexpr index_t keys = HeadDim, values = Values::width;
  const bool fitting = (keys == 64 || keys == 96 || keys == 128 || keys == 192 || keys == 256 || keys == 576) &&
                       (values == 64 || values == 96 || values == 128 || values == 256 || values == 512);
  const bool fit_a_block = (keys + Values::stored) * static_cast<index_t>(sizeof(T)) <= 1280;
  return Group >= 2 && multiplied && exact && fitting && fit_a_block && (!Values::in_keys || values % 64 == 0);
}

/// How a block shares out its work; everything follows from the types. Warps share a token where a value has too many
/// numbers for the registers of one: each has some dimensions of both products, whose first is added up.
template <class T, index_t HeadDim, index_t Group, class Values = values_apart<HeadDim>>
struct tensor_layout {
  static constexpr index_t per_piece = per_vector<T>;     // numbers in 16 bytes
  static constexpr index_t pieces = HeadDim / per_piece;  // of a key
  static constexpr index_t value_pieces = Values::width / per_piece;
  static constexpr index_t value_row = Values::in_keys ? pieces : value_pieces;  // from a value to the next one
  static constexpr index_t heads = 16;           // rows of a tile; those that a group does not have are zeros
  static constexpr index_t tokens_at_once = 16;  // of a warp
  static constexpr index_t dim_parts = Values::width > 256 ? 4 : Values::width > 128 ? 2 : 1;  // warps that share it
  static constexpr index_t in_tile = 16384 / ((HeadDim + Values::stored) * static_cast<index_t>(sizeof(T)));
  static constexpr index_t fits = (in_tile + (dim_parts == 1 ? tokens_at_once / 2 : 0)) / tokens_at_once;
  static constexpr index_t states = 512 / Values::width;  // of 16 heads, that fit the room of two tiles
  static constexpr index_t parts = fits < states ? fits : states;
  static constexpr index_t token_parts = parts >= 4   ? 4
                                         : parts >= 2 ? 2
                                                      : 1;  // warps, or as many of them as share a token
  static constexpr index_t head_parts = 1;
  static constexpr index_t threads = token_parts * dim_parts * warp_lanes;
  static constexpr index_t block_heads = heads;
  static constexpr index_t head_blocks = (Group + heads - 1) / heads;
  static constexpr index_t tile = token_parts * tokens_at_once;
  static constexpr index_t stage = tile * pieces;  // pieces of a tile's keys
  static constexpr index_t value_stage = Values::in_keys ? 0 : tile * value_pieces;

  static constexpr bool reads_whole_tiles = true;
  static constexpr index_t product_numbers = dim_parts > 1 ? threads * 8 : 1;  // what warps that share tokens exchange

  /// What is flipped in the number of a token's pieces, so that these are in different banks: two adjacent pieces of
  /// the tokens 0 ... 3, or 4 ... 7; four adjacent pieces of an even and of an odd token.
  /// @param row  pieces from a token to the next one
  ZOOMR_HD static constexpr index_t flipped(index_t row, index_t token) {
    return (row % 4 == 0 ? token & 2 : 0) + (row % 8 == 0 ? (token & 1) * 4 : 0);
  }
  /// Where a piece of a token is in a stage whose rows have so many.
  ZOOMR_HD static constexpr index_t place(index_t row, index_t token, index_t piece) {
    return token * row + (piece ^ flipped(row, token));
  }
};

}  // namespace zoomr::inline v0
