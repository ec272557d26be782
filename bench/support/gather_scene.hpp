// SPDX-License-Identifier: Apache-2.0
// The rows of one launch of gather_attend, on the device.
#pragma once

#include "attention_scene.hpp"

namespace zoomr_bench {

/// @tparam Tokens  tile_of_ranges: those of a draft read together
template <class T, index_t Group, class Tokens = zoomr::tokens_of_ranges, class Model = shared_heads>
class gather_scene {
 public:
  gather_scene(const problem& of, const page_memory<T, Model>& in)
      : p_(of),
        held_(in),
        ranges_(of.ranges()),
        queries_(std::int64_t{query_tokens()} * kv_heads * Group * head_dim),
        out_(std::int64_t{query_tokens()} * kv_heads * Group * values::width),
        lse_(std::int64_t{query_tokens()} * kv_heads * Group),
        partial_(zoomr::gather_workspace_bytes<T, head_dim, heads, values>(query_tokens() * kv_heads, of.splits) / 4),
        arrived_(std::int64_t{query_tokens()} * kv_heads * 16) {
    std::vector<index_t> sums{0};
    for (const zoomr::token_range& r : of.ranges()) sums.push_back(sums.back() + r.size());
    sums.pop_back();
    before_ = device_buffer<index_t>(sums);
    attending_ = device_buffer<unsigned>(std::vector<unsigned>(sums.size(), ~0u));
    listed_ = device_buffer<row_type>(rows());
    fill_with_noise(queries_.data(), queries_.size(), 3, query_scale);
    zoomr::zero_on_device(arrived_.data(), arrived_.bytes(), the_stream());
  }

  void enqueue() const {
    const auto rows = static_cast<index_t>(listed_.size());
    zoomr::gather_task<T, zoomr::bfloat16, listed_rows<Tokens>, zoomr::scaled_logits> task;
    task.layer = held_.layer();
    task.rows = {view<const row_type>(listed_.data(), {rows}), rows};
    task.logits = {1.0f / std::sqrt(static_cast<float>(head_dim))};
    task.queries = {queries_.data(), {{query_tokens(), all_heads, head_dim}}};
    task.out = {out_.data(), {{query_tokens(), all_heads, values::width}}};
    task.lse = {lse_.data(), {{query_tokens(), all_heads}}};
    task.partial = partial_.data();
    task.arrived = arrived_.data();
    zoomr::gather_attend<T, head_dim, heads, values>(task, p_.splits, the_stream());
  }

  /// @throws wrong
  void expect_right() const {
    fill_with_noise(out_.data(), out_.size(), 98), fill_with_noise(lse_.data(), lse_.size(), 99);
    enqueue();
    constexpr bool rounds = zoomr::fits_tensor_cores<T, zoomr::bfloat16, head_dim, heads, values>();
    expect_attended(p_, held_, queries_, out_, lse_.values(), rounds ? tolerance::rounded_weights(7, p_.tokens) : 0.0);
  }

  /// Of what is attended, each token once.
  double bytes() const {
    return 1.0 * p_.sequences * p_.tokens * kv_heads * (head_dim + values::stored) * static_cast<double>(sizeof(T));
  }

 private:
  using row_type = zoomr::attending_row<Tokens>;
  using values = typename Model::values;
  static constexpr index_t head_dim = Model::head_dim, kv_heads = Model::kv_heads, all_heads = kv_heads * Group;
  static constexpr bool together = zoomr::query_tile<Tokens>;
  static constexpr index_t heads = together ? 16 : Group;  // of a row

  index_t query_tokens() const { return p_.sequences * p_.draft; }

  std::vector<row_type> rows() const {
    const auto count = static_cast<index_t>(ranges_.size());
    std::vector<row_type> all;
    for (index_t token = 0; token < query_tokens(); token += together ? p_.draft : 1) {
      for (index_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
        row_type row;
        static_cast<zoomr::tokens_of_ranges&>(row.tokens) = {view<const zoomr::token_range>(ranges_.data(), {count}),
                                                             view<const index_t>(before_.data(), {count}),
                                                             held_.pages_of(token / p_.draft), p_.tokens, 4};
        if constexpr (together) {
          row.tokens.attending = {attending_.data(), {count}};
          row.sharing = p_.draft;
        }
        row.token = token;
        row.kv_head = kv_head;
        row.first_head = kv_head * Group;
        row.heads = Group;
        all.push_back(row);
      }
    }
    return all;
  }

  problem p_;
  const page_memory<T, Model>& held_;
  device_buffer<zoomr::token_range> ranges_;
  device_buffer<index_t> before_;
  device_buffer<unsigned> attending_;
  device_buffer<row_type> listed_;
  device_buffer<zoomr::bfloat16> queries_, out_;
  device_buffer<float> lse_, partial_;
  device_buffer<unsigned> arrived_;
};

template <class T, class Model = shared_heads>
std::shared_ptr<page_memory<T, Model>> the_pages() {
  using pages = page_memory<T, Model>;
  return kept<pages>("pages " + std::to_string(Model::head_dim) + type_name<T>(),
                     [] { return std::make_unique<pages>(); });
}

}  // namespace zoomr_bench
