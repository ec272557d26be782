// SPDX-License-Identifier: Apache-2.0
// L3. Which block makes room when memory is full (tiered_blocks). Whatever it returns, results have the same bits; only
// how many bytes move depends on it.
#pragma once

#include <zoomr/core/types.hpp>

#include <concepts>  // std::same_as
#include <vector>    // std::vector

namespace zoomr::inline v0 {

/// Watches the frames of the memory. A pass is the reading of one layer; a step is a circle of them. It is constructed
/// with the number of frames, and of layers. Empty frames are never offered as victims; `forget` is called when a
/// victim leaves.
template <class T>
concept replacement = std::constructible_from<T, index_t, index_t> &&
    requires(T& order, index_t frame, bool (*may_go)(index_t)) {
  { T::frame_bytes } -> std::convertible_to<byte_count>;  // of its tables
  order.begin_pass();
  order.touch(frame);                                 // it is used in this pass, perhaps for the first time
  order.expect(frame);                                // it was touched for the next pass
  order.forget(frame);                                // it is empty again
  { order.victim(may_go) } -> std::same_as<index_t>;  // a frame in use for which may_go(frame), or -1 if there is none
};

/// Frames in the order of their last uses.
/// @cost  O(1) for each use; a search as much for each frame that it passes
class use_order {
 public:
  static constexpr byte_count frame_bytes = 2 * sizeof(index_t);

  explicit use_order(index_t frames)
      : next_(static_cast<std::size_t>(frames) + 1), before_(next_.size()), end_(frames) {
    for (index_t frame = 0; frame <= frames; ++frame) at(next_, frame) = at(before_, frame) = frame;  // alone
  }

  /// Makes it the newest, wherever it was.
  void append(index_t frame) {
    remove(frame);
    const index_t last = at(before_, end_);
    at(next_, last) = frame;
    at(before_, frame) = last;
    at(next_, frame) = end_;
    at(before_, end_) = frame;
  }
  /// Takes it out of the order; nothing happens if it is not there.
  void remove(index_t frame) {
    at(next_, at(before_, frame)) = at(next_, frame);
    at(before_, at(next_, frame)) = at(before_, frame);
    at(next_, frame) = at(before_, frame) = frame;
  }
  index_t newest() const { return before(end_); }
  /// The one that was used just before it; `end()` if there is none.
  index_t before(index_t frame) const { return before_[static_cast<std::size_t>(frame)]; }
  index_t end() const { return end_; }
  /// The first from the oldest on for which may_go(frame), or -1.
  template <class MayGo>
  index_t oldest(MayGo may_go) const {
    index_t frame = next_[static_cast<std::size_t>(end_)];
    while (frame != end_ && !may_go(frame)) frame = next_[static_cast<std::size_t>(frame)];
    return frame == end_ ? -1 : frame;
  }

 private:
  static index_t& at(std::vector<index_t>& table, index_t frame) { return table[static_cast<std::size_t>(frame)]; }

  // A ring, oldest first; the last place is its end.
  std::vector<index_t> next_;
  std::vector<index_t> before_;
  index_t end_;
};

/// The one that is used again last, if each layer reads next time what it has read last time: what its layer has passed
/// over, the oldest first; then what was read just before this pass, whose layer comes again last; then what this pass
/// has read. Steps that read a little more than there is room for then find most of it again, where by age they would
/// find nothing.
/// @cost  O(1) for each use; for a victim as much for each that may not go, or waits for the next pass
class cyclic_mru {
 public:
  static constexpr byte_count frame_bytes = use_order::frame_bytes + sizeof(std::int64_t);

  cyclic_mru(index_t frames, index_t layers)
      : order_(frames), passes_(static_cast<std::size_t>(frames)), layers_(layers), before_pass_(order_.end()) {}

  /// What is the newest now was read just before this pass, which is how `victim` finds it.
  void begin_pass() {
    ++pass_;
    before_pass_ = order_.newest();
  }
  void touch(index_t frame) { use(frame, pass_); }
  void expect(index_t frame) { use(frame, pass_ + 1); }
  void forget(index_t frame) {
    if (frame == before_pass_) before_pass_ = order_.before(frame);
    order_.remove(frame);
  }
  template <class MayGo>
  index_t victim(MayGo may_go) const {
    // More than a circle without a use: its layer has been read since, and has passed it over.
    const index_t oldest = order_.oldest(may_go);
    if (oldest < 0 || pass_of(oldest) + layers_ < pass_) return oldest;
    for (index_t frame = before_pass_; frame != order_.end(); frame = order_.before(frame)) {
      if (pass_of(frame) < pass_ && pass_of(frame) + layers_ > pass_ && may_go(frame)) return frame;
      if (pass_of(frame) + layers_ <= pass_) break;  // of this layer: it comes now
    }
    // What is left is needed in this pass or the next: what has been read already goes first, the last of it.
    for (index_t frame = order_.newest(); frame != order_.end() && pass_of(frame) >= pass_;
         frame = order_.before(frame)) {
      if (pass_of(frame) == pass_ && may_go(frame)) return frame;
    }
    return oldest;
  }

 private:
  std::int64_t pass_of(index_t frame) const { return passes_[static_cast<std::size_t>(frame)]; }
  void use(index_t frame, std::int64_t pass) {
    forget(frame);
    order_.append(frame);
    passes_[static_cast<std::size_t>(frame)] = pass;
  }

  use_order order_;
  std::vector<std::int64_t> passes_;  // [frames]  of the last use
  std::int64_t pass_ = 0;
  index_t layers_;
  index_t before_pass_;  // the newest use before this pass
};

/// The one that was used longest ago.
/// @cost  O(1) for each use; for a victim as much for each that may not go
class lru {
 public:
  static constexpr byte_count frame_bytes = use_order::frame_bytes;

  lru(index_t frames, index_t) : order_(frames) {}

  void begin_pass() {}
  void touch(index_t frame) { order_.append(frame); }
  void expect(index_t) {}
  void forget(index_t frame) { order_.remove(frame); }
  template <class MayGo>
  index_t victim(MayGo may_go) const {
    return order_.oldest(may_go);
  }

 private:
  use_order order_;
};

/// One that is used seldom: a hand goes round and takes one off the count of each frame that it passes, until it finds
/// one that has none left. Old uses are forgotten as fast as room is needed.
/// @cost  O(1) for each use; for a victim as many frames as the hand passes, at most `most` rounds
class lfu {
 public:
  static constexpr index_t most = 7;  // uses that count
  static constexpr byte_count frame_bytes = sizeof(index_t);

  lfu(index_t frames, index_t) : uses_(static_cast<std::size_t>(frames), -1) {}

  void begin_pass() {}
  void expect(index_t) {}
  /// The first use, by which it comes, counts nothing: a block that is not used again goes in the first round.
  void touch(index_t frame) {
    index_t& uses = uses_[static_cast<std::size_t>(frame)];
    uses = uses < most ? uses + 1 : most;
  }
  void forget(index_t frame) { uses_[static_cast<std::size_t>(frame)] = -1; }
  template <class MayGo>
  index_t victim(MayGo may_go) {
    const auto frames = static_cast<index_t>(uses_.size());
    for (index_t idle = 0; idle < frames; ++idle) {  // a round in which nothing may go is the last one
      hand_ = (hand_ + 1) % frames;
      index_t& uses = uses_[static_cast<std::size_t>(hand_)];
      if (uses < 0 || !may_go(hand_)) continue;
      if (uses == 0) return hand_;
      --uses;
      idle = -1;
    }
    return -1;
  }

 private:
  std::vector<index_t> uses_;  // [frames]  since it came; -1: empty
  index_t hand_ = -1;
};

static_assert(replacement<cyclic_mru> && replacement<lru> && replacement<lfu>);

}  // namespace zoomr::inline v0
