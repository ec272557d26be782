// SPDX-License-Identifier: Apache-2.0
// Ranks whose caches are on devices, under the shim: each has a stream of its own, and one thread enqueues for all.
#pragma once

#include <cache/device/device_driving.hpp>
#include <cache/ranks/ranked_cache.hpp>

#include <functional>  // std::function
#include <memory>      // std::unique_ptr
#include <stdexcept>   // std::logic_error
#include <utility>     // std::exchange
#include <vector>      // std::vector

namespace zoomr_test {

/// What stands for NCCL: an all-reduce is work on the stream of each rank, and none of these goes on before all have
/// come to it. The first to come has the other streams go on until they have, so that the shim must do its work late:
/// when all ranks have enqueued theirs.
class stream_ranks {
 public:
  class member {
   public:
    using stream = zoomr::stream_ref;
    index_t rank() const { return rank_; }
    index_t ranks() const { return static_cast<index_t>(all_->ends_.size()); }
    void add_up(std::int64_t* numbers, std::int64_t count, stream queue) {
      ++enqueued;
      queue_ = queue;
      simt::enqueue(queue, [this, numbers, count] { all_->meet(*this, {numbers, count}); });
    }
    index_t enqueued = 0;
    std::int64_t words = 0;  // that have been added up

   private:
    friend class stream_ranks;
    stream_ranks* all_ = nullptr;
    index_t rank_ = 0;
    stream queue_;
    std::size_t met_ = 0;
  };

  explicit stream_ranks(index_t ranks) : ends_(static_cast<std::size_t>(ranks)) {
    for (index_t rank = 0; rank < ranks; ++rank) end(rank).all_ = this, end(rank).rank_ = rank;
  }
  stream_ranks(const stream_ranks&) = delete;
  member& end(index_t rank) { return ends_[static_cast<std::size_t>(rank)]; }

  bool deaf = false;  // a fault: nothing comes from others

 private:
  struct message {
    std::int64_t* numbers = nullptr;
    std::int64_t count = 0;
  };
  struct meeting {
    std::vector<message> all;  // [ranks]
    std::size_t come = 0;
  };

  void meet(member& arriving, message brought) {
    const std::size_t number = arriving.met_++;
    if (number >= meetings_.size()) meetings_.push_back({std::vector<message>(ends_.size())});
    meetings_[number].all[static_cast<std::size_t>(arriving.rank_)] = brought;
    arriving.words += brought.count;
    if (++meetings_[number].come == ends_.size()) return add_up(meetings_[number].all);
    for (member& other : ends_) {
      while (other.met_ <= number) {
        if (other.queue_.get().pending.empty()) throw std::logic_error("a rank waits for one that does not come");
        simt::advance(other.queue_.get());
      }
    }
  }
  void add_up(const std::vector<message>& all) const {
    for (std::int64_t i = 0; i < all[0].count; ++i) {
      std::uint64_t sum = 0;
      for (const message& each : all) {
        if (each.count != all[0].count) throw std::logic_error("ranks add up other counts");
        sum += static_cast<std::uint64_t>(each.numbers[i]);
      }
      for (const message& each : all) {
        if (!deaf) each.numbers[i] = static_cast<std::int64_t>(sum);
      }
    }
  }

  std::vector<member> ends_;
  std::vector<meeting> meetings_;
};

/// One cache to whoever drives it, of a rank each in `caches`.
template <class Policy, index_t Group>
class ranked_device {
 public:
  using cache_type = device_as_host<Policy, float, 8, Group, float, zoomr::values_apart<8>, zoomr::several_ranks>;
  class step_type;

  ranked_device(const ranked_model& on, const Policy& policy, zoomr::config limits, stream_ranks& ends)
      : whole_(on.whole), split_(on.split) {
    limits = with_voters(policy, limits, whole_);
    limits.ranks.first = view<const index_t>(split_.first);
    limits.ranks.kv_heads = split_.splits_kv_heads ? whole_.kv_heads : 0;
    for (index_t rank = 0; rank < split_.ranks(); ++rank) {
      limits.ranks.group = ends.end(rank);
      const head_part& part = parts.emplace_back(whole_, split_, rank);
      queues_.push_back(std::make_unique<zoomr::own_stream>());
      caches.push_back(std::make_unique<cache_type>(part.model, policy, limits, queues_.back()->get()));
      caches.back()->trace(&trace_of_rank_);
    }
  }

  const shape& model() const { return whole_; }
  void trace(zoomr::attention_trace* into) { into_ = into; }
  zoomr::sequence open() {
    return of_all([](cache_type& cache) { return cache.open(); });
  }
  zoomr::sequence fork(zoomr::sequence from) {
    return of_all([&](cache_type& cache) { return cache.fork(from); });
  }
  void close(zoomr::sequence seq) {
    for (const auto& cache : caches) cache->close(seq);
  }
  void rollback(zoomr::sequence seq, index_t tokens) {
    for (const auto& cache : caches) cache->rollback(seq, tokens);
  }
  index_t tokens(zoomr::sequence seq) const { return caches[0]->tokens(seq); }
  bool in_prompt(zoomr::sequence seq) const { return caches[0]->in_prompt(seq); }
  step_type begin(view<const zoomr::step_item> items) { return step_type(*this, items); }

  std::vector<head_part> parts;                     // [ranks]
  std::vector<std::unique_ptr<cache_type>> caches;  // [ranks]

 private:
  template <class Make>
  zoomr::sequence of_all(Make make) {
    zoomr::sequence made;
    for (const auto& cache : caches) made = make(*cache);
    return made;
  }

  shape whole_;
  head_split split_;
  std::vector<std::unique_ptr<zoomr::own_stream>> queues_;
  zoomr::attention_trace trace_of_rank_;
  zoomr::attention_trace* into_ = nullptr;
};

/// Rows of one rank's heads, as its engine has them: without gaps.
class rank_rows {
 public:
  explicit rank_rows(view<const float, 3> rows) : numbers_(static_cast<std::size_t>(size(rows))) {
    each(rows, [&](float number, std::size_t at) { numbers_[at] = number; });
    extents_ = rows;
  }
  view<float, 3> all() { return {numbers_.data(), {extents_.extent(0), extents_.extent(1), extents_.extent(2)}}; }
  void copy_to(view<float, 3> rows) const {
    each(rows, [&](float& number, std::size_t at) { number = numbers_[at]; });
  }

 private:
  static std::int64_t size(const view<const float, 3>& rows) {
    return std::int64_t{rows.extent(0)} * rows.extent(1) * rows.extent(2);
  }
  template <class Number, class Visit>
  static void each(view<Number, 3> rows, Visit visit) {
    std::size_t at = 0;
    for (index_t t = 0; t < rows.extent(0); ++t) {
      for (index_t head = 0; head < rows.extent(1); ++head) {
        for (index_t d = 0; d < rows.extent(2); ++d) visit(rows(t, head, d), at++);
      }
    }
  }
  std::vector<float> numbers_;
  view<const float, 3> extents_;
};

template <class Policy, index_t Group>
class ranked_device<Policy, Group>::step_type {
 public:
  using each_step = typename cache_type::step_type;

  step_type(ranked_device& cache, view<const zoomr::step_item> items) : cache_(cache) {
    for (const auto& one : cache_.caches) steps_.push_back(std::make_unique<each_step>(one->begin(items)));
  }

  index_t tokens() const { return any().tokens(); }
  index_t taken(index_t item) const { return any().taken(item); }
  index_t position(index_t item) const { return any().position(item); }
  bool active(index_t item) const { return any().active(item); }
  index_t packed(index_t item) const { return any().packed(item); }
  index_t items() const { return any().items(); }
  index_t passes() const { return any().passes(); }

  void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) {
    each([&](each_step& step, const head_part& part) {
      step.append(layer, kept(part.rows(keys)).all(), kept(part.rows(values)).all());
    });
  }
  void observe(index_t layer, view<const float, 3> queries) {
    each([&](each_step& step, const head_part& part) { step.observe(layer, kept(part.queries(queries)).all()); });
  }
  void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) {
    each([&](each_step& step, const head_part& part) {
      const view<float, 3> own_out = part.queries(out);
      const view<float, 2> all_ends = part.lse(lse);
      const view<float, 3> own_ends{all_ends.data(), {lse.extent(0), part.model.heads, 1}, {lse.stride(0), 1, 1}};
      rank_rows &outs = kept(own_out), &ends = kept(own_ends);
      step.attend(layer, kept(part.queries(queries)).all(), outs.all(),
                  view<float, 2>{ends.all().data(), {lse.extent(0), part.model.heads}});
      arriving_.push_back([&outs, &ends, own_out, own_ends] { outs.copy_to(own_out), ends.copy_to(own_ends); });
    });
  }
  void arrive() {
    each([&](each_step& step, const head_part& part) {
      step.arrive();
      for (zoomr::attended_record& record : std::exchange(cache_.trace_of_rank_, {})) {
        record.head += part.head;
        if (cache_.into_ != nullptr) cache_.into_->push_back(std::move(record));
      }
    });
    for (const auto& copy : std::exchange(arriving_, {})) copy();
    rows_.clear();
  }
  bool needs_second_pass(view<const index_t> accepted) {
    bool again = false;
    each([&](each_step& step, const head_part&) { again = step.needs_second_pass(accepted); });
    return again;
  }
  void commit(view<const index_t> accepted) {
    each([&](each_step& step, const head_part&) { step.commit(accepted); });
  }

 private:
  const each_step& any() const { return *steps_.front(); }
  template <class Work>
  void each(Work work) {
    for (std::size_t rank = 0; rank < steps_.size(); ++rank) work(*steps_[rank], cache_.parts[rank]);
  }
  rank_rows& kept(view<const float, 3> rows) { return *rows_.emplace_back(std::make_unique<rank_rows>(rows)); }

  ranked_device& cache_;
  std::vector<std::unique_ptr<each_step>> steps_;
  std::vector<std::unique_ptr<rank_rows>> rows_;
  std::vector<std::function<void()>> arriving_;
};

template <class Policy, index_t Group>
class ranked_device_player : public cache_holder<ranked_device<Policy, Group>>,
                             public driver<ranked_device<Policy, Group>> {
 public:
  ranked_device_player(const ranked_model& on, const Policy& policy, const zoomr::config& limits, stream_ranks& ends)
      : cache_holder<ranked_device<Policy, Group>>{{on, policy, limits, ends}},
        driver<ranked_device<Policy, Group>>(this->cache) {}
};

}  // namespace zoomr_test
