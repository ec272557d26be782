// SPDX-License-Identifier: Apache-2.0
// L3. The pinned memory of a device cache, and a file under it, where all pages are that have no room there. A block
// is a page in one layer. What tiered_blocks does for a host's cache, but that kernels read and write the memory, and
// that what a layer reads is asked for at once.
//
// Functions of the host in a stream call `hold` and `read` (cache/device/tiers/file_tier.cuh). So calls come one at a
// time, each after the kernels that were enqueued before it: whatever these have written is there.
#pragma once

#include <zoomr/core/view.hpp>
#include <zoomr/paging/block_file.hpp>
#include <zoomr/paging/tiers/frame_table.hpp>

#include <algorithm>  // std::find, std::max, std::replace
#include <atomic>     // std::atomic
#include <string>     // std::string
#include <vector>     // std::vector

namespace zoomr::inline v0 {

/// A page that a step needs in all layers.
struct held_page {
  index_t page = 0;
  bool fresh = false;    // no token that was committed is there
  bool written = false;  // the step may write there
};

/// Blocks for which the memory has room beside those that it holds: the spare.
inline constexpr index_t pinned_spares = 1;

/// Blocks of which some are in memory that the caller gives, and all others in a file.
///
/// A block that must make room is written to the file first if it may have changed since it came. Where the file fails,
/// nothing is lost: a block that cannot be written stays where it is, one that cannot be read stays in the file. Who
/// asked for a block that has no place then is given the spare one, which belongs to no page; what is read there means
/// nothing, and `take_fault` says so.
template <class T, replacement Replacement>
class pinned_blocks {
 public:
  /// @param memory          [most + pinned_spares][numbers]
  /// @param most            blocks that are in memory
  /// @param layers, pages   of which each pair is a block
  /// @param numbers         of a block
  /// @param path            of the file (block_file)
  /// @throws error(storage) if there can be no file; error(capacity) without memory for the tables
  pinned_blocks(T* memory, index_t most, index_t layers, index_t pages, std::int64_t numbers, const std::string& path)
      : memory_(memory),
        numbers_(numbers),
        layers_(layers),
        pages_(pages),
        frames_(most, layers, std::int64_t{layers} * pages),
        in_file_(frames_.block_frames.size()),
        file_(path, numbers * static_cast<byte_count>(sizeof(T)), std::int64_t{layers} * pages) {
    for (std::vector<index_t>* list : {&held_, &coming_}) list->reserve(frames_.frames.size());
  }

  /// Blocks that have room in memory.
  index_t most() const { return frames_.count(); }

  /// A step begins that needs these pages. They come, and stay until the next call.
  /// @param places  [pages][layers]  out: where each is, in blocks
  /// @pre   no kernel goes on that reads or writes the memory; there is room (`most` blocks) for these pages in all
  ///        layers, beside one layer that was asked for ahead
  void hold(view<const held_page> pages, index_t* places) {
    release();
    begin_pass();
    index_t* next = places;
    for (const held_page& one : pages) {
      for (index_t layer = 0; layer < layers_; ++layer) {
        const index_t at = *next++ = bring(layer, one.page, pass_, !one.fresh);
        if (at == spare()) continue;
        pinned_frame& frame = frames_.at(at);
        frame.dirty = frame.dirty || one.written;
        if (!frame.held) held_.push_back(at);
        frame.held = true;
      }
    }
    await({places, {static_cast<index_t>(next - places)}});
  }

  /// A layer is read next, these pages of it. They come, and stay until another layer has been read.
  /// @param ahead   while the layer before is still read: its blocks stay too
  /// @param pages   some may be the same
  /// @param places  [pages]  out: where each is, in blocks
  /// @pre   there is room for them, for what is held, and for what the layer before has asked for if `ahead`
  void read(index_t layer, bool ahead, view<const index_t> pages, view<index_t> places) {
    if (!ahead) begin_pass();
    for (index_t i = 0; i < pages.size(); ++i) {
      places[i] = bring(layer, pages[i], ahead ? pass_ + 1 : pass_, true);
    }
    await(places);
  }

  /// Where a block is, until another is asked for. Nothing is held any more.
  /// @param write  it is written there, as a whole
  /// @pre   nothing is enqueued that uses the memory
  /// @throws error(storage) if it cannot be brought there
  T* reach(index_t layer, index_t page, bool write) {
    release();
    begin_pass();
    index_t at = bring(layer, page, pass_, !write);
    await({&at, {1}});
    if (at == spare()) detail::raise(errc::storage, "a page of details cannot be moved: " + take_fault());
    if (write) frames_.at(at).dirty = true;
    return memory_ + at * numbers_;
  }

  /// What has failed since this was asked last, or "". Any thread may ask.
  std::string take_fault() {
    if (!failed_.load(std::memory_order_acquire)) return {};
    const std::string sentence = fault_.sentence();
    failed_.store(false, std::memory_order_release);
    return sentence;
  }
  /// Bytes that were read from the file, and written to it, so far. Any thread may ask.
  byte_count file_in() const { return blocks_in_.load(std::memory_order_relaxed) * block_bytes(); }
  byte_count file_out() const { return blocks_out_.load(std::memory_order_relaxed) * block_bytes(); }

 private:
  struct pinned_frame {
    std::int64_t block = -1;  // -1: empty
    std::int64_t pass = 0;    // that has asked for it last
    bool dirty = false;       // the file has something else, or nothing
    bool held = false;
  };

  static std::size_t index_of(std::int64_t i) { return static_cast<std::size_t>(i); }
  index_t spare() const { return most(); }
  byte_count block_bytes() const { return numbers_ * static_cast<byte_count>(sizeof(T)); }

  void release() {
    for (const index_t at : held_) frames_.at(at).held = false;
    held_.clear();
  }
  void begin_pass() {
    ++pass_;
    frames_.order.begin_pass();
  }

  // Where a block is, or will once `await` has been called.
  // @param wanted  false: what it held does not matter
  index_t bring(index_t layer, index_t page, std::int64_t pass, bool wanted) {
    const std::int64_t block = std::int64_t{layer} * pages_ + page;
    index_t at = frames_.frame_of(block);
    if (at < 0) {
      at = claim();
      if (at < 0) return spare();
      frames_.enter(at, block);
      if (wanted && in_file_[index_of(block)]) {
        file_.begin_read(block, memory_ + at * numbers_);  // as many as the ring takes; `await` reads the others
        coming_.push_back(at);
      }
    }
    pinned_frame& frame = frames_.at(at);
    frame.pass = (std::max)(frame.pass, pass);
    frames_.order.touch(at);
    if (pass > pass_) frames_.order.expect(at);
    return at;
  }

  // Waits for what `bring` has begun to read. Where that has failed, the spare is what `places` name.
  void await(view<index_t> places) {
    for (const index_t at : coming_) {
      const std::int64_t block = frames_.at(at).block;
      const block_fault fault = file_.try_read(block, memory_ + at * numbers_);
      blocks_in_.fetch_add(1, std::memory_order_relaxed);
      if (!fault) continue;
      note(fault);
      empty(at);
      std::replace(places.begin(), places.end(), at, spare());
    }
    coming_.clear();
  }

  // An empty frame; -1 if a block should make room for it, and cannot be written.
  index_t claim() {
    if (frames_.free.empty()) {
      const index_t victim = frames_.order.victim([&](index_t at) {
        const pinned_frame& frame = frames_.at(at);
        return !frame.held && frame.pass < pass_;
      });
      ZOOMR_ASSERT(victim >= 0, "pinned memory has room for fewer blocks than a layer needs");
      pinned_frame& frame = frames_.at(victim);
      if (frame.dirty) {
        if (const block_fault fault = file_.try_write(frame.block, memory_ + victim * numbers_)) {
          note(fault);
          return -1;
        }
        in_file_[index_of(frame.block)] = true;
        blocks_out_.fetch_add(1, std::memory_order_relaxed);
      }
      empty(victim);
    }
    return frames_.claim();
  }

  void empty(index_t at) {
    if (frames_.at(at).held) held_.erase(std::find(held_.begin(), held_.end(), at));
    frames_.empty(at);
  }

  void note(const block_fault& fault) {
    if (failed_.load(std::memory_order_acquire)) return;  // the first is what is told
    fault_ = fault;
    failed_.store(true, std::memory_order_release);
  }

  T* memory_;
  std::int64_t numbers_;
  index_t layers_;
  index_t pages_;
  frame_table<pinned_frame, Replacement> frames_;  // a block that has none is in the file alone, if anywhere
  std::vector<char> in_file_;                      // [blocks]  something was written there
  std::vector<index_t> held_;
  std::vector<index_t> coming_;  // frames whose blocks are being read
  std::int64_t pass_ = 0;
  block_fault fault_;
  std::atomic<bool> failed_{false};
  std::atomic<std::int64_t> blocks_in_{0}, blocks_out_{0};
  block_file file_;  // last: reads that are under way end before what they read into
};

}  // namespace zoomr::inline v0
