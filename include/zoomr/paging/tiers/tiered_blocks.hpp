// SPDX-License-Identifier: Apache-2.0
// L3. Blocks in memory over a file: as many in memory as there is room for, the others in the file.
//
// Memory keeps what was used; a block that must go is written to the file, once, if it has changed; what is already
// there never moves again. Transfers are made in the order in which they were started, so that only three things must
// be waited for: a block that is read and has not arrived, a block that is written and has not left, and a changed
// block whose frame is needed for another.
#pragma once

#include <zoomr/paging/block_shape.hpp>
#include <zoomr/paging/tiers/tier.hpp>
#include <zoomr/paging/tiers/tiered_kv_lane.hpp>
#include <zoomr/paging/tiers/transfers.hpp>

#include <algorithm>  // std::find, std::min
#include <utility>    // std::exchange
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// Blocks of which some are in memory.
///
/// One thread at a time. A transfer that fails is an error of the call that needs its block; a block that could not be
/// written stays where it is.
template <class T, replacement Replacement, transfer_engine Engine>
class tiered_blocks {
 public:
  using tier_type = tier<T, Replacement>;

  /// Blocks that were reached last and stay: so many pointers are valid at a time.
  static constexpr index_t guarded = 4;

  /// @param frames  blocks in memory
  /// @param path    of the file (block_file)
  /// @throws error(capacity) without memory, error(storage) without a file
  tiered_blocks(const block_shape& block, index_t count, index_t frames, const std::string& path)
      : layers_(block.model.layers),
        written_(index_of(count)),
        memory_((std::min)(frames, count), layers_, count, block.template numbers<T>()),
        bytes_(block.template bytes<T>()),
        file_(path, bytes_, count) {}

  /// A layer is read from now on: a pass begins. The same layer again, for another item of a step, is the same pass,
  /// unless the model has no other.
  void begin_layer(index_t layer) {
    if (std::exchange(layer_, layer) == layer && layers_ > 1) return;
    memory_.order.begin_pass();
  }

  /// A block in memory; valid until `guarded` other blocks have been reached. Of a block that was never written the
  /// contents mean nothing.
  /// @throws error(storage) if it cannot be brought there
  T* reach(index_t block) { return block == last_block_ ? last_ : reach_block(block); }
  /// The same, to be changed as long as it is valid, and before `write_back`: from now on the file is stale.
  T* reach_to_write(index_t block) {
    T* numbers = reach(block);
    tier_frame& frame = memory_.at(memory_.frame_of(block));
    if (frame.leaving != 0) finish_write(frame);  // what is on its way must not change
    frame.dirty = true;
    written_[index_of(block)] = true;
    return numbers;
  }

  /// Starts bringing a block to memory, if it was ever written, it is not there, and fewer than half of the frames wait
  /// for others. It counts as used in the next pass. The system reads such blocks ahead, with several requests at the
  /// disk. Nothing waits for the block, but perhaps for one that makes room.
  /// @throws error(storage) if that one cannot be written
  void prefetch(index_t block) {
    if (!written_[index_of(block)] || memory_.frame_of(block) >= 0) return;
    if (coming_ >= memory_.count() / 2) return;
    file_.read_ahead(block);
    memory_.order.expect(bring(block));
    ++counts_.prefetched;
  }
  /// Makes a block in memory one that was used just now.
  void touch(index_t block) {
    const index_t at = memory_.frame_of(block);
    if (at >= 0) memory_.order.touch(at);
  }
  /// Starts writing a block in memory to the file, if it has changed.
  void write_back(index_t block) {
    const index_t at = memory_.frame_of(block);
    if (at < 0) return;
    const tier_frame& frame = memory_.at(at);
    if (frame.dirty && frame.leaving == 0) start_write(at);
  }
  /// What the block holds is no longer needed: it leaves memory unwritten, and what is under way is waited for.
  void forget(index_t block) {
    written_[index_of(block)] = false;
    const index_t at = memory_.frame_of(block);
    if (at < 0) return;
    tier_frame& frame = memory_.at(at);
    if (frame.arriving != 0) --coming_;
    settle(frame);
    empty(at);
  }

  /// A block is in memory, and not on its way there.
  bool in_memory(index_t block) const {
    const index_t at = memory_.frame_of(block);
    return at >= 0 && memory_.frames[index_of(at)].arriving == 0;
  }
  tier_statistics stats() const { return counts_.timed(engine_.times()); }

 private:
  static std::size_t index_of(index_t i) { return static_cast<std::size_t>(i); }

  // A visit: the block is brought if it is not there, waited for if it is on its way, and guarded.
  T* reach_block(index_t block) {
    const bool present = memory_.frame_of(block) >= 0;
    const index_t at = bring(block);
    tier_frame& frame = memory_.at(at);
    ++(present && frame.arriving == 0 ? counts_.hits : counts_.misses);
    if (frame.arriving != 0) {
      counts_.stalls += engine_.done(frame.arriving) ? 0 : 1;
      if (const ticket came = frame.arriving; !arrived(at)) fail("brought to memory", came);
    }
    recent_[turn_] = at;
    turn_ = (turn_ + 1) % guarded;
    last_block_ = block;
    last_ = memory_.numbers(at);
    return last_;
  }

  // Waits for what comes into a frame. If that has failed, the frame is empty.
  bool arrived(index_t at) {
    const bool good = engine_.wait(std::exchange(memory_.at(at).arriving, 0));
    --coming_;
    if (!good) empty(at);
    return good;
  }

  // Finds the block's frame, or makes one and starts filling it.
  index_t bring(index_t block) {
    index_t at = memory_.frame_of(block);
    if (at < 0) {
      at = claim();
      memory_.enter(at, block);
      if (written_[index_of(block)]) {
        memory_.at(at).arriving = engine_.start({&file_, block, memory_.numbers(at), false});
        counts_.bytes_in += bytes_;
        ++coming_;
      }
    }
    memory_.order.touch(at);
    return at;
  }

  // An empty frame. If none is left, a block goes that is not guarded: rather one that need not be waited for.
  index_t claim() {
    if (memory_.free.empty()) {
      const auto may_go = [&](index_t at) { return std::find(recent_, recent_ + guarded, at) == recent_ + guarded; };
      const auto goes_at_once = [&](index_t at) {  // a page that is being filled stays if it can
        const tier_frame& frame = memory_.at(at);
        return may_go(at) && (frame.leaving == 0 ? !frame.dirty : engine_.done(frame.leaving));
      };
      index_t victim = memory_.order.victim(goes_at_once);
      if (victim < 0) victim = memory_.order.victim(may_go);
      ZOOMR_ASSERT(victim >= 0, "memory has fewer frames than it needs");
      release(victim);
    }
    return memory_.claim();
  }

  // Empties a frame; what has changed is written to the file first.
  // Where that fails the block keeps its frame, and the call that needs it fails.
  void release(index_t at) {
    tier_frame& frame = memory_.at(at);
    if (frame.arriving != 0 && !arrived(at)) return;
    if (frame.leaving != 0) finish_write(frame);
    if (frame.dirty) {
      start_write(at);
      const ticket left = frame.leaving;
      finish_write(frame);
      if (frame.dirty) fail("written to the file", left);
    }
    empty(at);
  }

  // As tier::empty; the pointer to the last block is forgotten with its frame.
  void empty(index_t at) {
    if (memory_.at(at).block == last_block_) last_block_ = -1;
    memory_.empty(at);
  }

  // Starts writing a changed block to the file. It stays dirty until the write is waited for.
  void start_write(index_t at) {
    tier_frame& frame = memory_.at(at);
    frame.leaving = engine_.start({&file_, frame.block, memory_.numbers(at), true});
    counts_.bytes_out += bytes_;
  }

  // Waits for a write. If it has failed, the block is still to be written.
  void finish_write(tier_frame& frame) {
    if (engine_.wait(std::exchange(frame.leaving, 0))) frame.dirty = false;
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
  std::vector<char> written_;  // [blocks]  it was written, in memory or to the file
  tier_type memory_;
  byte_count bytes_;  // of a block
  block_file file_;
  tier_statistics counts_;
  index_t recent_[guarded] = {-1, -1, -1, -1};
  index_t turn_ = 0;
  index_t coming_ = 0;  // frames with a transfer into them that has not been waited for
  index_t layer_ = -1;  // that is being read
  index_t last_block_ = -1;
  T* last_ = nullptr;
  Engine engine_;  // last: it ends before what it works on
};

}  // namespace zoomr::inline v0
