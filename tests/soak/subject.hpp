// SPDX-License-Identifier: Apache-2.0
// A cache of any policy, storage type and store behind one interface, so that what drives it is compiled once.
#pragma once

#include <cache/small_policies.hpp>
#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/placement/tiered.hpp>

#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <optional>    // std::optional
#include <string>      // std::string
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
  virtual void close(zoomr::sequence) = 0;
  virtual void rollback(zoomr::sequence, index_t to) = 0;
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

template <class Policy, class T>
class subject_of final : public subject {
 public:
  subject_of(const Policy& policy, const zoomr::config& limits) : cache_(model, policy, limits) {}

  zoomr::sequence open() override { return cache_.open(); }
  void close(zoomr::sequence seq) override { cache_.close(seq); }
  void rollback(zoomr::sequence seq, index_t to) override { cache_.rollback(seq, to); }
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
  zoomr::kv_cache<Policy, T> cache_;
  std::optional<zoomr::step<Policy, T>> step_;  // ends before its cache
};

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
  const zoomr::detail::layout<Policy> made(model, policy, limits);
  const zoomr::byte_count block = made.blocks.template bytes<T>();
  limits.tiers.device = zoomr::byte_count{1} << 40;
  const zoomr::memory_use all = zoomr::kv_cache<Policy, T>::bytes(model, policy, limits);
  const index_t pages = zoomr::detail::eviction_room<Policy>::pool_pages(made, limits);
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
  std::function<std::unique_ptr<subject>(const zoomr::config&, const tier_sizes&)> tiered =
      {};  // in the caller's thread
};

template <class T>
constexpr const char* type_name() {
  if constexpr (std::same_as<T, float>) return "float";
  if constexpr (std::same_as<T, zoomr::bfloat16>) return "bfloat16";
  if constexpr (std::same_as<T, zoomr::float16>) return "float16";
  if constexpr (std::same_as<T, zoomr::float8>) return "float8";
  return "int8";
}

/// Adds a preset with one storage type; where the program is built for all of them, with all.
/// @tparam Order, Engine  of its tiers
template <class First, class Order, class Engine, class Policy>
void add(std::vector<sort>& all, const char* name, const Policy& policy) {
  const auto add_one = [&]<class T>(T) {
    const auto tiered = zoomr::with_placement(policy, zoomr::tiered<Order, Engine>{});
    using moved = std::remove_const_t<decltype(tiered)>;
    sort made{.name = name, .type = type_name<T>()};
    made.frees_unreachable = policy.placement.frees_unreachable;
    made.evicts = decltype(Policy::evict)::observes;
    made.one_by_one = policy.refresh.drift() >= -1.0f;
    made.threads = !std::same_as<Engine, zoomr::sync_transfers>;
    made.resident = [policy](const zoomr::config& limits) -> std::unique_ptr<subject> {
      return std::make_unique<subject_of<Policy, T>>(policy, limits);
    };
    made.tiered = [tiered](const zoomr::config& limits, const tier_sizes& sizes) -> std::unique_ptr<subject> {
      return std::make_unique<subject_of<moved, T>>(tiered, with_tiers<T>(tiered, limits, sizes));
    };
    all.push_back(std::move(made));
  };
#if defined(ZOOMR_SOAK_ALL)
  add_one(float{}), add_one(zoomr::bfloat16{}), add_one(zoomr::float16{}), add_one(zoomr::float8{});
  add_one(zoomr::int8{});
#else
  add_one(First{});
#endif
}

using farthest = zoomr::cyclic_mru;
using recent = zoomr::lru;
using frequent = zoomr::lfu;
using at_once = zoomr::sync_transfers;
using beside = zoomr::async_transfers;

// All sorts, in several sources, since each takes a while to compile.
void add_whole(std::vector<sort>& all);
void add_thoughts(std::vector<sort>& all);
void add_sentences(std::vector<sort>& all);
void add_pages(std::vector<sort>& all);
void add_evicting(std::vector<sort>& all);

}  // namespace soak
