// SPDX-License-Identifier: Apache-2.0
// L3. Blocks in tiers: a bounded device arena, host memory under it, perhaps a file under that.
//
// A tier keeps what was used there; a block that must go is written to the tier below, once, if it has changed; what is
// already there never moves again. Transfers are made in the order in which they were started, so that only three
// things must be waited for: a block that is read and has not arrived, a block that is written and has not left, and a
// changed block whose frame is wanted for another.
#pragma once

#include <zoomr/paging/block_shape.hpp>
#include <zoomr/paging/tiers/tier.hpp>
#include <zoomr/paging/tiers/tiered_kv_lane.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

#include <algorithm>  // std::find, std::min
#include <memory>     // std::unique_ptr
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Blocks of which some are on the device.
///
/// One thread at a time. A transfer that fails is an error of the call that needs its block; a block that could not be
/// written below stays where it is.
template <class T, replacement Replacement, transfer_engine Engine>
class tiered_blocks {
 public:
  using tier_type = tier<T, Replacement>;

  /// Blocks that were reached last and stay: so many pointers are valid at a time.
  static constexpr index_t guarded = 4;

  /// @param device_frames  blocks on the device
  /// @param host_frames    blocks in host memory; all of them, if there is no file
  /// @param path          of the file (block_file); empty: there is none
  /// @throws error(capacity) without memory, error(storage) without a file
  tiered_blocks(const block_shape& block, index_t count, index_t device_frames, index_t host_frames,
                const std::string& path)
      : layers_(block.model.layers), bytes_(block.template bytes<T>()), written_(index_of(count)) {
    tiers_.reserve(2);
    for (const index_t frames : {device_frames, path.empty() ? count : host_frames}) {
      tiers_.emplace_back((std::min)(frames, count), layers_, count, block.template numbers<T>());
    }
    if (!path.empty()) file_ = std::make_unique<block_file>(path, bytes_, count);
  }

  /// Says that a layer is being read from now on: a pass begins. The same layer again, for another item of a step, is
  /// the same pass, unless the model has no other.
  void begin_layer(index_t layer) {
    if (std::exchange(layer_, layer) == layer && layers_ > 1) return;
    for (tier_type& each : tiers_) each.order.begin_pass();
  }

  /// A block on the device; valid until `guarded` other blocks have been asked for. Of a block that was never written
  /// the contents mean nothing.
  /// @throws error(storage) if it cannot be brought there
  T* reach(index_t block) { return block == last_block_ ? last_ : reach_block(block); }
  /// The same, to be changed as long as it is valid, and before `write_back`: from now on the tier below is stale.
  T* reach_to_write(index_t block) {
    T* numbers = reach(block);
    tier_frame& at = tiers_[0].at(tiers_[0].frame_of(block));
    if (at.leaving != 0) finish_write(0, at);  // what is on its way must not change
    at.dirty = true;
    written_[index_of(block)] = true;
    return numbers;
  }

  /// Starts bringing a block to the device, if something is known of it, it is not there, and fewer than half of the
  /// frames wait for others. It counts as used in the next pass. Nobody waits for the block, but perhaps for one that
  /// makes room.
  /// @throws error(storage) if that one cannot be written below
  void prefetch(index_t block) {
    if (!written_[index_of(block)] || tiers_[0].frame_of(block) >= 0) return;
    if (coming_ >= tiers_[0].count() / 2) return;
    tiers_[0].order.expect(bring(0, block));
    ++counts_.prefetched;
  }
  /// Makes a block on the device one that was used just now.
  void touch(index_t block) {
    const index_t at = tiers_[0].frame_of(block);
    if (at >= 0) tiers_[0].order.touch(at);
  }
  /// Starts writing a block on the device to the tier below, if it has changed.
  /// @throws error(storage) if another block that must make room cannot be written
  void write_back(index_t block) {
    const index_t at = tiers_[0].frame_of(block);
    if (at < 0) return;
    const tier_frame& frame = tiers_[0].at(at);
    if (frame.dirty && frame.leaving == 0) start_write(0, at);
  }
  /// Nobody needs what the block holds any more: it leaves all tiers unwritten, and what is under way is waited for.
  void forget(index_t block) {
    written_[index_of(block)] = false;
    for (index_t t = 0; t < 2; ++t) {
      const index_t at = tiers_[index_of(t)].frame_of(block);
      if (at < 0) continue;
      tier_frame& frame = tiers_[index_of(t)].at(at);
      if (t == 0 && frame.arriving != 0) --coming_;
      settle(frame);
      empty(tiers_[index_of(t)], at);
    }
  }

  /// A block is on the device, and not on its way there.
  bool on_device(index_t block) const {
    const index_t at = tiers_[0].frame_of(block);
    return at >= 0 && tiers_[0].frames[index_of(at)].arriving == 0;
  }
  tier_statistics stats() const { return counts_.timed(engine_.times()); }

 private:
  static std::size_t index_of(index_t i) { return static_cast<std::size_t>(i); }

  // A visit: the block is brought if it is not there, waited for if it is on its way, and guarded.
  T* reach_block(index_t block) {
    const bool here = tiers_[0].frame_of(block) >= 0;
    const index_t at = bring(0, block);
    tier_frame& frame = tiers_[0].at(at);
    ++(here && frame.arriving == 0 ? counts_.hits : counts_.misses);
    if (frame.arriving != 0) {
      counts_.stalls += engine_.done(frame.arriving) ? 0 : 1;
      if (const ticket came = frame.arriving; !arrived(0, at)) fail("brought to the device", came);
    }
    recent_[turn_] = at;
    turn_ = (turn_ + 1) % guarded;
    last_block_ = block;
    last_ = tiers_[0].numbers(at);
    return last_;
  }

  // Waits for what comes into a frame. If that has failed, neither this frame nor the one below holds the block.
  bool arrived(index_t t, index_t at) {
    tier_type& here = tiers_[index_of(t)];
    tier_frame& frame = here.at(at);
    const bool good = engine_.wait(std::exchange(frame.arriving, 0));
    if (t == 0) --coming_;
    if (good) return true;
    const index_t block = frame.block;
    empty(here, at);
    const index_t below = t > 0 ? -1 : tiers_[1].frame_of(block);
    if (below >= 0 && tiers_[1].at(below).arriving != 0) arrived(1, below);
    return false;
  }

  // Finds the block's frame in a tier, or makes one and starts filling it.
  index_t bring(index_t t, index_t block) {
    tier_type& here = tiers_[index_of(t)];
    index_t at = here.frame_of(block);
    if (at < 0) {
      at = claim(t);
      ZOOMR_TRY {
        if (written_[index_of(block)]) fetch(t, at, block);
      }
      ZOOMR_CATCH_ALL {
        here.free.push_back(at);
        detail::rethrow();
      }
      here.enter(at, block);
    }
    here.order.touch(at);
    return at;
  }

  // Starts filling a claimed frame from the tier below. Where that has yet to be filled from the file, the
  // second transfer comes after the first, and fails with it.
  void fetch(index_t t, index_t at, index_t block) {
    tier_type& here = tiers_[index_of(t)];
    transfer one{.to = here.numbers(at), .bytes = bytes_};
    if (t == 0) {
      const index_t below = bring(1, block);
      one.from = tiers_[1].numbers(below);
      one.after = tiers_[1].at(below).arriving;
    } else {
      one.file = file_.get();
      one.block = block;
    }
    (t == 0 ? counts_.device_in : counts_.file_in) += one.bytes;
    here.at(at).arriving = engine_.start(one);
    if (t == 0) ++coming_;
  }

  // An empty frame. If none is left, a block goes: rather one that need not be waited for, and on the device never one
  // that is guarded.
  index_t claim(index_t t) {
    tier_type& here = tiers_[index_of(t)];
    if (here.free.empty()) {
      const auto may_go = [&](index_t at) {
        return t > 0 || std::find(recent_, recent_ + guarded, at) == recent_ + guarded;
      };
      const auto goes_at_once = [&](index_t at) {  // a page of the device that is being filled stays if it can
        const tier_frame& frame = here.at(at);
        return may_go(at) && (frame.leaving == 0 ? t > 0 || !frame.dirty : engine_.done(frame.leaving));
      };
      index_t victim = here.order.victim(goes_at_once);
      if (victim < 0) victim = here.order.victim(may_go);
      ZOOMR_ASSERT(victim >= 0, "a tier has fewer frames than it needs");
      release(t, victim);
    }
    return here.claim();
  }

  // Empties a frame; what has changed is written to the tier below first.
  // Where that fails the block keeps its frame, and the call that wanted it fails.
  void release(index_t t, index_t at) {
    tier_frame& frame = tiers_[index_of(t)].at(at);
    if (frame.arriving != 0 && !arrived(t, at)) return;
    if (frame.leaving != 0) finish_write(t, frame);
    if (frame.dirty) {
      start_write(t, at);
      const ticket left = frame.leaving;
      finish_write(t, frame);
      if (frame.dirty) fail("written to the tier below", left);
    }
    empty(tiers_[index_of(t)], at);
  }

  // As tier::empty; the pointer to the last block is forgotten with its frame.
  void empty(tier_type& here, index_t at) {
    if (&here == &tiers_[0] && here.at(at).block == last_block_) last_block_ = -1;
    here.empty(at);
  }

  // Starts writing a changed block to the tier below, which is given a frame for it. It stays dirty until the write is
  // waited for.
  void start_write(index_t t, index_t at) {
    tier_frame& frame = tiers_[index_of(t)].at(at);
    transfer one{.from = tiers_[index_of(t)].numbers(at), .bytes = bytes_};
    if (t == 0) {
      index_t below = tiers_[1].frame_of(frame.block);
      if (below < 0) {  // nothing is fetched into it
        below = claim(1);
        tiers_[1].enter(below, frame.block);
      }
      tiers_[1].order.touch(below);
      tier_frame& target = tiers_[1].at(below);
      settle(target);
      one.to = tiers_[1].numbers(below);
      target.dirty = file_ != nullptr;
      counts_.device_out += one.bytes;
      frame.leaving = target.arriving = engine_.start(one);
    } else {
      one.file = file_.get();
      one.block = frame.block;
      counts_.file_out += one.bytes;
      frame.leaving = engine_.start(one);
    }
  }

  // Waits for a write. If it has failed, the block below is worth nothing, and this one is still to be written.
  void finish_write(index_t t, tier_frame& frame) {
    const bool good = engine_.wait(std::exchange(frame.leaving, 0));
    if (good) frame.dirty = false;
    const index_t below = t > 0 ? -1 : tiers_[1].frame_of(frame.block);
    if (below < 0) return;
    tiers_[1].at(below).arriving = 0;
    if (!good) empty(tiers_[1], below);
  }

  // Waits for everything that goes on in a frame, whatever comes of it.
  void settle(tier_frame& frame) {
    if (frame.arriving != 0) engine_.wait(std::exchange(frame.arriving, 0));
    if (frame.leaving != 0) engine_.wait(std::exchange(frame.leaving, 0));
  }

  [[noreturn]] void fail(const char* what, ticket number) {
    detail::raise(errc::storage,
                  std::string("a page of details cannot be ") + what + ": " + engine_.why(number).sentence());
  }

  index_t layers_;
  byte_count bytes_;              // of a block
  std::vector<char> written_;     // [blocks]  something is known of it
  std::vector<tier_type> tiers_;  // device, host
  std::unique_ptr<block_file> file_;
  tier_statistics counts_;
  index_t recent_[guarded] = {-1, -1, -1, -1};
  index_t turn_ = 0;
  index_t coming_ = 0;  // frames of the device with a transfer that has not been waited for
  index_t layer_ = -1;  // that is being read
  index_t last_block_ = -1;
  T* last_ = nullptr;
  Engine engine_;  // last: it ends before what it works on
};

}  // namespace zoomr::inline v0
