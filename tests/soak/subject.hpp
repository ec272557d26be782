// SPDX-License-Identifier: Apache-2.0
// A cache of any policy, storage type and store behind one interface, so that what drives it is compiled once.
#pragma once

#include <cache/saved_bytes.hpp>
#include <cache/small_policies.hpp>
#include <support/paged_engine.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <optional>    // std::optional
#include <string>      // std::string
#include <utility>     // std::forward
#include <vector>      // std::vector

namespace soak {

using zoomr::index_t;
using zoomr::view;

inline constexpr zoomr::shape model{2, 4, 2, 8};

/// What is seen of one sequence from outside; a call that fails changes none of it.
struct looks {
  index_t tokens = 0;
  std::vector<zoomr::segment> segments;
  zoomr::memory_use use;
  std::int64_t counted_prompt_tokens = 0;
  std::int64_t counted_tokens = 0;
  friend bool operator==(const looks&, const looks&) = default;
};

/// A cache, and the step that is in progress or was the last.
class subject {
 public:
  virtual ~subject() = default;
  virtual zoomr::sequence open() = 0;
  virtual zoomr::sequence fork(zoomr::sequence) = 0;
  virtual zoomr_test::saved_bytes save(zoomr::sequence) = 0;
  virtual zoomr::sequence load(const zoomr_test::saved_bytes&) = 0;
  virtual void close(zoomr::sequence) = 0;
  virtual void rollback(zoomr::sequence, index_t to) = 0;
  virtual void erase(zoomr::sequence, zoomr::token_range span) = 0;
  virtual index_t tokens(zoomr::sequence) const = 0;
  virtual looks look(zoomr::sequence) const = 0;
  virtual void selected(zoomr::sequence, index_t row) const = 0;
  virtual void begin(view<const zoomr::step_item>) = 0;
  virtual void drop() = 0;  // the step
  virtual index_t step_tokens() const = 0;
  virtual index_t step_tokens(index_t item) const = 0;
  virtual index_t position(index_t item) const = 0;
  virtual bool active(index_t item) const = 0;
  virtual index_t packed(index_t item) const = 0;
  virtual const char* failure(index_t item) const = 0;
  virtual void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) = 0;
  virtual void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) = 0;
  virtual void observe(index_t layer, view<const float, 3> queries) = 0;
  virtual bool needs_second_pass(view<const index_t> accepted) = 0;
  virtual void commit(view<const index_t> accepted) = 0;
};

/// @tparam Cache  an any_kv_cache, or an engine that has one
template <class Cache>
class subject_of final : public subject {
 public:
  template <class... Arguments>
  explicit subject_of(Arguments&&... arguments) : cache_(std::forward<Arguments>(arguments)...) {}

  zoomr::sequence open() override { return cache_.open(); }
  zoomr::sequence fork(zoomr::sequence seq) override { return cache_.fork(seq); }
  zoomr_test::saved_bytes save(zoomr::sequence seq) override {
    zoomr_test::memory_sink into;
    cache_.save(seq, into);
    return std::move(into.bytes);
  }
  zoomr::sequence load(const zoomr_test::saved_bytes& bytes) override {
    zoomr_test::memory_source from(bytes);
    return cache_.load(from);
  }
  void close(zoomr::sequence seq) override { cache_.close(seq); }
  void rollback(zoomr::sequence seq, index_t to) override { cache_.rollback(seq, to); }
  void erase(zoomr::sequence seq, zoomr::token_range span) override { cache_.erase(seq, span); }
  index_t tokens(zoomr::sequence seq) const override { return cache_.tokens(seq); }
  looks look(zoomr::sequence seq) const override {
    const auto all = cache_.segments(seq);
    const zoomr::statistics& stats = cache_.stats(seq);
    return {cache_.tokens(seq), {all.begin(), all.end()}, cache_.bytes(seq), stats.prompt_tokens, stats.tokens};
  }
  void selected(zoomr::sequence seq, index_t row) const override { cache_.selected(seq, row); }
  void begin(view<const zoomr::step_item> items) override {
    auto made = cache_.begin(items);
    step_.reset();
    step_.emplace(std::move(made));
  }
  void drop() override { step_.reset(); }
  index_t step_tokens() const override { return step_->tokens(); }
  index_t step_tokens(index_t item) const override { return step_->taken(item); }
  index_t position(index_t item) const override { return step_->position(item); }
  bool active(index_t item) const override { return step_->active(item); }
  index_t packed(index_t item) const override { return step_->packed(item); }
  const char* failure(index_t item) const override { return step_->failure(item); }
  void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) override {
    step_->append(layer, keys, values);
  }
  void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) override {
    step_->attend(layer, queries, out, lse);
  }
  void observe(index_t layer, view<const float, 3> queries) override { step_->observe(layer, queries); }
  bool needs_second_pass(view<const index_t> accepted) override { return step_->needs_second_pass(accepted); }
  void commit(view<const index_t> accepted) override { step_->commit(accepted); }

 private:
  Cache cache_;
  std::optional<typename Cache::step_type> step_;  // ends before its cache
};

template <class T, class Policy>
std::unique_ptr<subject> make_subject(const Policy& policy, const zoomr::config& limits) {
  return std::make_unique<subject_of<zoomr::any_kv_cache<T, decltype(Policy::placement)>>>(
      zoomr::kv_cache<Policy, T>(model, policy, limits));
}

/// Blocks on the device and in host memory, and where the file under them is made; no file: host memory holds all.
struct tier_sizes {
  index_t device = 0;
  index_t host = 0;
  const char* path = nullptr;
};

/// `limits` with the bytes that so many blocks take.
template <class T, class Policy>
zoomr::config with_tiers(const Policy& policy, zoomr::config limits, const tier_sizes& sizes) {
  using pool_type = zoomr::pool_of<decltype(Policy::placement), T>;
  const zoomr::detail::layout made(model, zoomr::detail::any_policy_of<Policy>(policy), limits, pool_type::may_fail);
  const zoomr::byte_count block = made.blocks.template bytes<T>();
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = zoomr::kv_cache<Policy, T>::bytes(model, policy, limits);
  const index_t pages = made.pool_pages(limits);
  const zoomr::byte_count blocks = zoomr::byte_count{pages} * made.blocks.pieces();
  const zoomr::byte_count device = std::min<zoomr::byte_count>(sizes.device, blocks);
  limits.tiers.device = all.total() - all.details + device * block;
  if (sizes.path == nullptr) return limits;
  using tier_type = typename pool_type::tier_type;
  const zoomr::byte_count host = std::min<zoomr::byte_count>(sizes.host, blocks);
  const zoomr::byte_count tables =
      blocks * (2 * tier_type::block_table_bytes + 1 + zoomr::byte_count{sizeof(std::uint64_t)});
  limits.tiers.host = tables + (device + host) * tier_type::slot_table_bytes + host * block;
  limits.tiers.file = blocks * block;
  limits.tiers.path = sizes.path;
  return limits;
}

/// A policy with a storage type, and how to make caches of it.
struct sort {
  std::string name;                // of the preset
  std::string type;                // of what is stored
  bool frees_unreachable = false;  // pages that no query can reach: no deep rollback
  bool evicts = false;             // tokens: no rollback behind that
  bool one_by_one = false;         // drafts are one token long
  bool threads = false;            // a thread moves bytes: faults need not come in the same places again
  std::function<std::unique_ptr<subject>(const zoomr::config&)> resident = {};
  /// In the pages of an engine; empty where these have no room for what is stored.
  std::function<std::unique_ptr<subject>(const zoomr::config&, const zoomr_test::engine_layout&)> engine = {};
  std::function<std::unique_ptr<subject>(const zoomr::config&, const tier_sizes&)> tiered =
      {};  // in the caller's thread
};

template <class T>
constexpr const char* type_name() {
  if constexpr (std::same_as<T, float>) return "float";
  if constexpr (std::same_as<T, zoomr::bfloat16>) return "bfloat16";
  if constexpr (std::same_as<T, zoomr::float16>) return "float16";
  if constexpr (std::same_as<T, zoomr::float8>) return "float8";
  return "scaled_int8";
}

/// Adds the presets of one storage type: in a source for each, since each takes a while to compile.
template <class T>
void add(std::vector<sort>& all);

}  // namespace soak
