// SPDX-License-Identifier: Apache-2.0
// Ranks that pass for one cache: each that is in this process has some of the heads, or some of the tokens, and a
// thread of its own.
#pragma once

#include <cache/support/driving.hpp>
#include <zoomr/core/ranks/rank_group.hpp>
#include <zoomr/core/ranks/thread_ranks.hpp>

#include <algorithm>  // std::copy

#include <condition_variable>  // std::condition_variable
#include <exception>           // std::exception_ptr
#include <functional>          // std::function
#include <memory>              // std::unique_ptr
#include <mutex>               // std::mutex
#include <optional>            // std::optional
#include <stdexcept>           // std::logic_error
#include <string>              // std::string
#include <thread>              // std::thread
#include <vector>              // std::vector

namespace zoomr_test {

/// A thread for each rank; all do the same work at the same time.
class rank_workers {
 public:
  explicit rank_workers(index_t ranks) : failures(static_cast<std::size_t>(ranks)) {
    for (index_t rank = 0; rank < ranks; ++rank) threads_.emplace_back([this, rank] { serve(rank); });
  }
  rank_workers(const rank_workers&) = delete;
  ~rank_workers() {
    give({});
    for (std::thread& thread : threads_) thread.join();
  }
  /// work(rank), by each; the first failure is thrown on.
  void run(const std::function<void(index_t)>& work) {
    run_all(work);
    for (const std::exception_ptr& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }
  /// The same, but failures stay in `failures`.
  void run_all(const std::function<void(index_t)>& work) {
    give(work);
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return busy_ == 0; });
  }

  std::vector<std::exception_ptr> failures;  // [ranks]  of the last work

 private:
  void give(const std::function<void(index_t)>& work) {
    const std::unique_lock lock(mutex_);
    work_ = work, busy_ = threads_.size(), ++round_;
    changed_.notify_all();
  }
  void serve(index_t rank) {
    for (int done = 0;; ++done) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return round_ > done; });
      if (!work_) return;
      lock.unlock();
      std::exception_ptr failure;
      try {
        work_(rank);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      failures[static_cast<std::size_t>(rank)] = failure;
      if (--busy_ == 0) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void(index_t)> work_;
  std::size_t busy_ = 0;
  int round_ = 0;
  std::vector<std::thread> threads_;
};

/// Of each rank an end.
inline std::vector<zoomr::rank_group> all_of(zoomr::thread_ranks& ranks) {
  std::vector<zoomr::rank_group> ends;
  for (index_t rank = 0; rank < ranks.count(); ++rank) ends.emplace_back(ranks.end(rank));
  return ends;
}

/// An end whose messages may go wrong on the way.
struct frail_end {
  zoomr::thread_ranks::member& end;
  enum kind { sound, mute, deaf, damaged, short_of_one } fault = sound;
  index_t before = 0;  // messages that come first, without a fault

  index_t rank() const { return end.rank(); }
  index_t ranks() const { return end.ranks(); }
  index_t all_gather(view<const std::int64_t> sent, view<std::int64_t, 2> received) {
    if (fault != sound && before-- > 0) return end.all_gather(sent, received);
    if (fault == mute) return rank() == 0 ? 1 : 0;
    if (fault == deaf) return end.all_gather(sent, received), rank() == 0 ? 1 : 0;
    std::vector<std::int64_t> message(sent.begin(), sent.end());
    if (fault == short_of_one) message.pop_back();
    if (fault == damaged) message.back() ^= 0x100;
    if (fault != short_of_one) return end.all_gather(view<const std::int64_t>(message), received);
    std::vector<std::int64_t> room(message.size() * static_cast<std::size_t>(ranks()));
    return end.all_gather(view<const std::int64_t>(message),
                          {room.data(), {ranks(), static_cast<index_t>(message.size())}});
  }
};

inline bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

/// Which heads of a model each rank has.
struct head_split {
  std::vector<index_t> first;  // [ranks + 1]  query heads
  bool splits_kv_heads = false;
  index_t deal = 0;  // more: each rank has all heads, and tokens are dealt out instead

  index_t ranks() const { return static_cast<index_t>(first.size()) - 1; }
};

inline head_split dealt(index_t ranks, index_t deal) {
  return {std::vector<index_t>(static_cast<std::size_t>(ranks) + 1), false, deal};
}

/// The heads of a rank.
struct head_part {
  index_t head = 0, kv_head = 0;  // the first
  shape model;                    // of the part

  head_part(const shape& whole, const head_split& split, index_t rank) : model(whole) {
    if (split.deal > 0) return;
    const index_t last = split.first[static_cast<std::size_t>(rank) + 1], group = whole.group();
    head = split.first[static_cast<std::size_t>(rank)], kv_head = head / group;
    model.heads = last - head, model.kv_heads = (last + group - 1) / group - kv_head;
  }
  template <class Number>
  view<Number, 3> queries(view<Number, 3> all) const {
    return {all.data() + head * all.stride(1),
            {all.extent(0), model.heads, all.extent(2)},
            {all.stride(0), all.stride(1), 1}};
  }
  template <class Number>
  view<Number, 3> rows(view<Number, 3> all) const {
    return {all.data() + kv_head * all.stride(1),
            {all.extent(0), model.kv_heads, all.extent(2)},
            {all.stride(0), all.stride(1), 1}};
  }
  view<float, 2> lse(view<float, 2> all) const {
    return {all.data() + head, {all.extent(0), model.heads}, {all.stride(0), 1}};
  }
};

class ranked_step;

/// One cache to whoever drives it. Each rank's is in `caches`; what is of heads elsewhere is 0.
class ranked_cache {
 public:
  using cache_type = zoomr::any_kv_cache<float>;
  using step_type = ranked_step;

  /// @param here  the ranks of this process
  template <class Policy>
  ranked_cache(const shape& whole, const Policy& policy, zoomr::config limits, const head_split& split,
               const std::vector<zoomr::rank_group>& here)
      : workers(static_cast<index_t>(here.size())), whole_(whole), split_(split), traces_(here.size()) {
    limits = with_voters(policy, limits, whole);
    if (split.deal == 0) limits.ranks.first = view<const index_t>(split_.first);
    limits.ranks.kv_heads = split.splits_kv_heads ? whole.kv_heads : 0;
    for (const zoomr::rank_group& group : here) {
      (split.deal > 0 ? limits.token_ranks.group : limits.ranks.group) = group;
      if (split.deal > 0) limits.token_ranks.deal = split.deal;
      const head_part& part = parts.emplace_back(whole, split, group.rank());
      caches.push_back(std::make_unique<cache_type>(zoomr::kv_cache<Policy, float>(part.model, policy, limits)));
      caches.back()->trace(&traces_[caches.size() - 1]);
    }
  }

  const shape& model() const { return whole_; }
  void trace(zoomr::attention_trace* into) { into_ = into; }
  zoomr::sequence open() {
    return of_all([&](index_t rank) { return at(rank).open(); });
  }
  zoomr::sequence fork(zoomr::sequence from) {
    return of_all([&](index_t rank) { return at(rank).fork(from); });
  }
  void close(zoomr::sequence seq) {
    workers.run([&](index_t rank) { at(rank).close(seq); });
  }
  void rollback(zoomr::sequence seq, index_t tokens) {
    workers.run([&](index_t rank) { at(rank).rollback(seq, tokens); });
  }
  index_t tokens(zoomr::sequence seq) { return at(0).tokens(seq); }
  bool in_prompt(zoomr::sequence seq) { return at(0).in_prompt(seq); }
  ranked_step begin(view<const zoomr::step_item> items);

  cache_type& at(index_t rank) { return *caches[static_cast<std::size_t>(rank)]; }
  bool deals() const { return split_.deal > 0; }
  /// Records of all heads, as one cache has them. Where tokens are dealt out each rank has all.
  void collect_trace() {
    for (std::size_t r = 1; deals() && r < traces_.size(); ++r) {
      if (traces_[r] != traces_[0]) throw std::logic_error("ranks have chosen differently");
      traces_[r].clear();
    }
    for (std::size_t r = 0; r < traces_.size(); ++r) {
      for (zoomr::attended_record& record : traces_[r]) {
        record.head += parts[r].head;
        if (into_ != nullptr) into_->push_back(record);
      }
      traces_[r].clear();
    }
  }

  rank_workers workers;
  std::vector<head_part> parts;                     // [here]
  std::vector<std::unique_ptr<cache_type>> caches;  // [here]

 private:
  template <class Make>
  zoomr::sequence of_all(Make make) {
    std::vector<zoomr::sequence> handles(caches.size());
    workers.run([&](index_t rank) { handles[static_cast<std::size_t>(rank)] = make(rank); });
    return handles.front();
  }

  shape whole_;
  head_split split_;
  zoomr::attention_trace* into_ = nullptr;
  std::vector<zoomr::attention_trace> traces_;  // [here]
};

class ranked_step {
 public:
  using each_step = ranked_cache::cache_type::step_type;

  ranked_step(ranked_cache& cache, view<const zoomr::step_item> items) : cache_(cache), steps_(cache.caches.size()) {
    cache_.workers.run([&](index_t rank) { at(rank).emplace(cache_.at(rank).begin(items)); });
  }

  index_t tokens() const { return any().tokens(); }
  index_t taken(index_t item) const { return any().taken(item); }
  index_t position(index_t item) const { return any().position(item); }
  index_t model_position(index_t item) const { return any().model_position(item); }
  bool active(index_t item) const { return any().active(item); }
  index_t packed(index_t item) const { return any().packed(item); }
  index_t items() const { return any().items(); }
  index_t passes() const { return any().passes(); }

  void append(index_t layer, view<const float, 3> keys, view<const float, 3> values) {
    each([&](each_step& step, const head_part& part) { step.append(layer, part.rows(keys), part.rows(values)); });
  }
  void append(index_t layer, view<const float, 3> keys) {
    each([&](each_step& step, const head_part& part) { step.append(layer, part.rows(keys)); });
  }
  void observe(index_t layer, view<const float, 3> queries) {
    each([&](each_step& step, const head_part& part) { step.observe(layer, part.queries(queries)); });
  }
  void attend(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) {
    if (cache_.deals()) return attend_dealt(layer, queries, out, lse);
    each([&](each_step& step, const head_part& part) {
      step.attend(layer, part.queries(queries), part.queries(out), part.lse(lse));
    });
  }
  void arrive() { cache_.collect_trace(); }
  bool needs_second_pass(view<const index_t> accepted) {
    std::vector<int> again(steps_.size());
    cache_.workers.run(
        [&](index_t rank) { again[static_cast<std::size_t>(rank)] = at(rank)->needs_second_pass(accepted) ? 1 : 0; });
    return again.front() != 0;
  }
  void commit(view<const index_t> accepted) {
    each([&](each_step& step, const head_part&) { step.commit(accepted); });
  }

  std::optional<each_step>& at(index_t rank) { return steps_[static_cast<std::size_t>(rank)]; }

 private:
  // All ranks have the same bits.
  void attend_dealt(index_t layer, view<const float, 3> queries, view<float, 3> out, view<float, 2> lse) {
    struct copy {
      std::vector<float> out, lse;
    };
    std::vector<copy> copies(steps_.size());
    cache_.workers.run([&](index_t rank) {
      copy& own = copies[static_cast<std::size_t>(rank)];
      own.out.resize(static_cast<std::size_t>(out.extent(0) * out.extent(1) * out.extent(2)));
      own.lse.resize(static_cast<std::size_t>(lse.extent(0) * lse.extent(1)));
      at(rank)->attend(layer, queries, view<float, 3>(own.out.data(), {out.extent(0), out.extent(1), out.extent(2)}),
                       view<float, 2>(own.lse.data(), {lse.extent(0), lse.extent(1)}));
    });
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) { return bits_of{a} == bits_of{b}; };
    for (const copy& own : copies) {
      if (!same(own.out, copies[0].out) || !same(own.lse, copies[0].lse))
        throw std::logic_error("ranks have other outputs");
    }
    std::copy(copies[0].out.begin(), copies[0].out.end(), out.data());
    std::copy(copies[0].lse.begin(), copies[0].lse.end(), lse.data());
  }
  const each_step& any() const { return *steps_.front(); }
  template <class Work>
  void each(Work work) {
    cache_.workers.run([&](index_t rank) { work(*at(rank), cache_.parts[static_cast<std::size_t>(rank)]); });
  }

  ranked_cache& cache_;
  std::vector<std::optional<each_step>> steps_;
};

/// A split, and a model of which it is one.
struct ranked_model {
  shape whole;
  head_split split;
};

class ranked_player : public cache_holder<ranked_cache>, public driver<ranked_cache> {
 public:
  template <class Policy>
  ranked_player(const ranked_model& on, const Policy& policy, const zoomr::config& limits,
                const std::vector<zoomr::rank_group>& here)
      : cache_holder<ranked_cache>{{on.whole, policy, limits, on.split, here}}, driver<ranked_cache>(cache) {
    this->donors.assign(limits.donors.begin(), limits.donors.end());
  }
};

inline ranked_step ranked_cache::begin(view<const zoomr::step_item> items) { return ranked_step(*this, items); }

}  // namespace zoomr_test
