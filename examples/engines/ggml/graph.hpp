// SPDX-License-Identifier: Apache-2.0
// One graph: which rows are whose tokens, and how its nodes attend.
#pragma once

#include <ggml.h>

#include <cstring>  // std::memcpy
#include <string>   // std::string

#include "sequences.hpp"
#include "zoomr_ggml.h"

namespace adaptor {

/// One sequence's part of a graph.
struct graph_item {
  std::int32_t id = 0;
  std::vector<zoomr::token_id> ids;
  std::vector<std::int32_t> positions;
  bool prompt_ends = false;
  std::vector<zoomr::token_span> spans = {};  // of the ids
};

/// The tokens of a graph by sequence. A cache has them one sequence after the other; a graph may mix them.
struct graph_tokens {
  std::vector<graph_item> items;
  std::vector<index_t> row_of;  // [tokens]  the row of the graph in which each is
  bool in_order = true;

  graph_tokens() = default;
  explicit graph_tokens(const zoomr_ggml_batch& batch) {
    std::vector<std::vector<index_t>> rows_of;
    for (std::int32_t row = 0; row < batch.n_tokens; ++row) {
      const std::size_t i = item_of(batch, row);
      rows_of.resize(items.size());
      rows_of[i].push_back(row);
      const std::int32_t id = batch.token == nullptr ? -1 : batch.token[row];
      items[i].ids.push_back(id < 0 ? zoomr::no_class : id);
      items[i].positions.push_back(batch.pos[row]);
      items[i].prompt_ends = batch.prompt_end != nullptr ? batch.prompt_end[row] != 0 : items[i].ids.size() == 1;
    }
    for (const std::vector<index_t>& rows : rows_of) row_of.insert(row_of.end(), rows.begin(), rows.end());
    for (std::size_t t = 0; t < row_of.size(); ++t) in_order = in_order && row_of[t] == static_cast<index_t>(t);
  }

 private:
  std::size_t item_of(const zoomr_ggml_batch& batch, std::int32_t row) {
    if (batch.n_seq_id != nullptr && batch.n_seq_id[row] != 1) {
      throw refusal("begin: a token belongs to several sequences: pass it for one, and copy that (seq_cp)");
    }
    const std::int32_t id = batch.seq_id[row][0];
    std::size_t i = 0;
    while (i < items.size() && items[i].id != id) ++i;
    if (i == items.size()) items.push_back({id, {}, {}, false});
    return i;
  }
};

/// What a tensor [width, heads, tokens] of a graph holds.
inline rows rows_of(const ggml_tensor& tensor, const char* name) {
  rows out;
  switch (tensor.type) {
    case GGML_TYPE_F32:
      out.type = number::f32;
      break;
    case GGML_TYPE_F16:
      out.type = number::f16;
      break;
    case GGML_TYPE_BF16:
      out.type = number::bf16;
      break;
    default:
      throw refusal(std::string("attn: ") + name + " must be f32, f16 or bf16");
  }
  const std::size_t size = ggml_type_size(tensor.type);
  if (tensor.ne[3] != 1) throw refusal(std::string("attn: ") + name + " must have three dimensions");
  if (tensor.nb[0] != size) throw refusal(std::string("attn: rows of ") + name + " must be contiguous");
  out.data = tensor.data;
  for (int d = 0; d < 3; ++d) {
    out.extents.at[d] = static_cast<index_t>(tensor.ne[2 - d]);
    out.strides[d] = static_cast<std::int64_t>(tensor.nb[2 - d] / size);
  }
  return out;
}

/// Rows in the order of a cache, copied where the graph has another one.
class packed_rows {
 public:
  /// @param row_of  where each is in the graph
  packed_rows(const rows& from, const std::vector<index_t>& row_of) : rows_(from) {
    const std::size_t size = from.type == number::f32 ? 4 : 2;
    const auto heads = static_cast<std::size_t>(from.extents.at[1]),
               width = static_cast<std::size_t>(from.extents.at[2]);
    memory_.resize(row_of.size() * heads * width * size);
    std::byte* to = memory_.data();
    for (const index_t row : row_of) {
      for (std::size_t head = 0; head < heads; ++head, to += width * size) {
        const std::int64_t at = row * from.strides[0] + static_cast<std::int64_t>(head) * from.strides[1];
        std::memcpy(to, static_cast<const std::byte*>(from.data) + at * static_cast<std::int64_t>(size), width * size);
      }
    }
    rows_.data = memory_.data();
    rows_.strides[1] = from.extents.at[2], rows_.strides[0] = std::int64_t{from.extents.at[1]} * from.extents.at[2];
  }
  /// @pre  they are f32
  void multiply(float factor) {
    for (std::size_t at = 0; at < memory_.size(); at += sizeof(float)) {
      float number;
      std::memcpy(&number, memory_.data() + at, sizeof number);
      number *= factor;
      std::memcpy(memory_.data() + at, &number, sizeof number);
    }
  }
  operator const rows&() const { return rows_; }

 private:
  std::vector<std::byte> memory_;
  rows rows_;
};

/// Attends in one node of a graph.
/// @param query_factor  queries are multiplied by it, where the scale of logits is not the cache's
inline void attend_node(cache& in, const graph_tokens& tokens, index_t layer, float query_factor, ggml_tensor& dst) {
  const rows q = rows_of(*dst.src[0], "q"), k = rows_of(*dst.src[1], "k"), v = rows_of(*dst.src[2], "v");
  const zoomr::extents<3> shape{{static_cast<index_t>(dst.ne[2]), q.extents.at[1], static_cast<index_t>(dst.ne[0])}};
  const view<float, 3> out(static_cast<float*>(dst.data), shape);
  if (static_cast<std::size_t>(shape.at[0]) != tokens.row_of.size()) {
    throw refusal("attn: the graph has " + std::to_string(shape.at[0]) + " tokens, begin was told of " +
                  std::to_string(tokens.row_of.size()));
  }
  const std::vector<index_t>& order = tokens.row_of;
  if (tokens.in_order && query_factor == 1.0f) return in.attend(layer, q, k, v, out);
  packed_rows queries(q, order);
  if (query_factor != 1.0f) queries.multiply(query_factor);
  if (tokens.in_order) return in.attend(layer, queries, k, v, out);
  std::vector<float> packed(static_cast<std::size_t>(dst.ne[0] * dst.ne[1] * dst.ne[2]));
  const view<float, 3> packed_out(packed.data(), shape);
  in.attend(layer, queries, packed_rows(k, order), packed_rows(v, order), packed_out);
  for (index_t t = 0; t < shape.at[0]; ++t) {
    std::memcpy(out[order[static_cast<std::size_t>(t)]].data(), packed_out[t].data(), dst.nb[2]);
  }
}

}  // namespace adaptor
