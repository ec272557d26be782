// SPDX-License-Identifier: Apache-2.0
// The best k of each row, by a kernel of its own: rows of votes by the walk of math/best.cuh, which a cache's kernels
// call too, rows of floats by a search of their own. No step launches it: it is here to test that walk, and for the
// benchmarks, where it stands beside the top-k of other libraries.
#pragma once

#include <zoomr/math/best.cuh>

#include <type_traits>  // std::is_same_v

namespace zoomr_test {

using zoomr::best_scratch;
using zoomr::best_walk;
using zoomr::block_scratch;
using zoomr::block_threads;
using zoomr::index_t;
using zoomr::launch;
using zoomr::launch_shape;
using zoomr::not_eligible;
using zoomr::order_key;
using zoomr::scanned;
using zoomr::shared_array;
using zoomr::stream_ref;
using zoomr::take_limits;
using zoomr::view;
using zoomr::votes_t;
using zoomr::warp_lanes;
using zoomr::write_best;

/// Shared memory of best_floats: 2,048 digits, some for each of up to 1,024 threads.
template <index_t Threads>
struct best_floats_scratch {
  static_assert(Threads >= warp_lanes && Threads <= 1024 && (Threads & (Threads - 1)) == 0);
  static constexpr int digit_bits = 11;
  static constexpr index_t digits = 1 << digit_bits;
  shared_array<index_t, digits> count;  // keys with this digit
  shared_array<index_t, 3> reached;     // the digit of the k-th best, how many are better, how many have it
};

/// The best k of a row of floats, by one block, where nothing but their number is limited: what a walk gives, with
/// fewer instructions, since keys have 32 bits and are read four at a time. It looks for the k-th best digit by digit,
/// as a walk does, and then writes what is better and the first of what equals it.
///
/// All of a block's threads call the same things in the same order.
/// @cost  reads the row once for each of 3 digits, less often where fewer tell the k-th best, and once to write; 3
///        barriers for each digit, 1 for each 8 * Threads scores written; atomics in shared memory only
template <index_t Threads>
class best_floats {
 public:
  __device__ best_floats(block_threads& block, best_floats_scratch<Threads>& scratch, view<const float> row)
      : block_(block), scratch_(scratch), row_(row) {
    const auto past = static_cast<index_t>(reinterpret_cast<std::uintptr_t>(row.data()) / sizeof(float) % 4);
    const index_t to_aligned = (4 - past) % 4;
    head_ = to_aligned < row.size() ? to_aligned : row.size();
    pieces_ = (row.size() - head_) / piece;
  }

  /// Writes the ids of the best, ascending: highest score, ties to the lower id, NaN last.
  /// @param ids  [k]  padded with -1
  /// @return     how many were taken, to all threads
  __device__ index_t write(view<index_t> ids) {
    const index_t wanted = ids.size() < row_.size() ? ids.size() : row_.size();
    if (wanted > 0) {
      find(wanted);
      write_best(ids, wanted);
    }
    for (index_t i = wanted + block_.thread(); i < ids.size(); i += Threads) ids[i] = -1;
    return wanted;
  }

 private:
  // A row is up to 3 scores at its head, then pieces of 8 that begin at a multiple of 16 bytes, then up to 7 scores.
  static constexpr index_t piece = 8;
  static constexpr index_t own_digits = best_floats_scratch<Threads>::digits / Threads;

  // A key needs 32 bits of the 64.
  __device__ static std::int32_t key_of(float score) { return static_cast<std::int32_t>(order_key(score)); }
  __device__ std::int32_t key_at(index_t id) const { return key_of(row_[id]); }
  __device__ void read(index_t i, std::int32_t (&key)[piece]) const {
    const auto* from = reinterpret_cast<const float4*>(row_.data() + head_ + i * piece);
    const float4 four[] = {from[0], from[1]};
    for (index_t j = 0; j < 2; ++j) {
      key[4 * j] = key_of(four[j].x), key[4 * j + 1] = key_of(four[j].y);
      key[4 * j + 2] = key_of(four[j].z), key[4 * j + 3] = key_of(four[j].w);
    }
  }
  __device__ index_t behind_pieces() const { return head_ + pieces_ * piece; }

  __device__ void find(index_t wanted) {
    for (index_t i = 0; i < own_digits; ++i) scratch_.count[own_digit(i)] = 0;
    __syncthreads();
    if (!digit<21, 11>(wanted) && !digit<10, 11>(wanted)) digit<0, 10>(wanted);
  }

  // Narrows the bound by one digit.
  // @return  true if what has the bound's digits is one, or is all taken: no more digits are needed
  template <int Shift, int Bits>
  __device__ bool digit(index_t wanted) {
    constexpr bool first = Shift + Bits == 32;
    for (index_t i = block_.thread(); i < pieces_; i += Threads) {
      std::int32_t key[piece];
      read(i, key);
      for (const std::int32_t each : key) count<Shift, Bits>(each);
    }
    const index_t edges = row_.size() - pieces_ * piece;
    for (index_t i = block_.thread(); i < edges; i += Threads) {
      count<Shift, Bits>(key_at(i < head_ ? i : i + pieces_ * piece));
    }
    __syncthreads();
    index_t of_thread = 0;
    for (index_t i = 0; i < own_digits; ++i) of_thread += scratch_.count[own_digit(i)];
    index_t better = better_ + block_.sum_before(of_thread).before;
    for (index_t i = 0; i < own_digits; ++i) {
      const index_t mine = scratch_.count[own_digit(i)];
      if (better < wanted && better + mine >= wanted) {
        scratch_.reached[0] = own_digit(i), scratch_.reached[1] = better, scratch_.reached[2] = mine;
      }
      better += mine;
      scratch_.count[own_digit(i)] = 0;  // for the next digit, whose keys are counted after the barrier
    }
    __syncthreads();
    shift_ = Shift;
    bound_ = first ? scratch_.reached[0] - (1 << (Bits - 1)) : (bound_ << Bits) + scratch_.reached[0];
    better_ = scratch_.reached[1];
    const index_t left = scratch_.reached[2];
    return left == 1 || better_ + left == wanted;
  }
  // The first digit has a sign.
  template <int Shift, int Bits>
  __device__ void count(std::int32_t key) {
    constexpr bool first = Shift + Bits == 32;
    if (!first && key >> (first ? 0 : Shift + Bits) != bound_) return;
    const std::int32_t digit = first ? (key >> Shift) + (1 << (Bits - 1)) : key >> Shift & ((1 << Bits) - 1);
    atomicAdd(&scratch_.count[digit], 1);
  }
  // The digits that this thread looks after: highest first, over the threads and within each.
  __device__ index_t own_digit(index_t i) const {
    return best_floats_scratch<Threads>::digits - 1 - block_.thread() * own_digits - i;
  }

  __device__ void write_best(view<index_t> ids, index_t wanted) {
    written so_far{ids, wanted - better_, 0, 0};
    if (head_ > 0) write_edge(so_far, 0, head_);
    for (index_t first = 0; first < pieces_; first += Threads) {
      const index_t i = first + block_.thread();
      std::int32_t key[piece] = {};
      if (i < pieces_) read(i, key);
      write_tile(so_far, key, i < pieces_, head_ + i * piece);
    }
    if (behind_pieces() < row_.size()) write_edge(so_far, behind_pieces(), row_.size());
  }
  struct written {
    view<index_t> ids;
    index_t ties;  // so many of what equals the bound are taken
    index_t better, equal;
  };
  __device__ void write_edge(written& so_far, index_t first, index_t last) {
    const index_t id = first + block_.thread();
    const std::int32_t key[] = {id < last ? key_at(id) : 0};
    write_tile(so_far, key, id < last, id);
  }
  // What a tile has of them: N adjacent keys, from `first_id` on, of each thread that has some.
  template <std::size_t N>
  __device__ void write_tile(written& so_far, const std::int32_t (&key)[N], bool some, index_t first_id) {
    unsigned better = 0, equal = 0;  // a bit for each key
    for (std::size_t j = 0; j < N; ++j) {
      const std::int32_t digits = key[j] >> shift_;
      if (digits > bound_) better += 1u << j;
      if (digits == bound_) equal += 1u << j;
    }
    if (!some) better = equal = 0;
    const auto count = [](unsigned bits) { return static_cast<unsigned>(__popc(bits)); };
    const scanned<unsigned> of_tile = block_.sum_before(count(equal) << 16 | count(better));
    const index_t equal_before = so_far.equal + static_cast<index_t>(of_tile.before >> 16);
    index_t ties = so_far.ties - equal_before;  // left for this thread
    index_t to =
        so_far.better + static_cast<index_t>(of_tile.before & 0xffffu) + (ties > 0 ? equal_before : so_far.ties);
    for (unsigned taken = better | equal; taken != 0; taken &= taken - 1) {
      const index_t place = __ffs(static_cast<int>(taken)) - 1;
      if ((better >> place & 1u) == 0 && ties-- <= 0) continue;
      so_far.ids[to++] = first_id + place;
    }
    so_far.better += static_cast<index_t>(of_tile.all & 0xffffu);
    so_far.equal += static_cast<index_t>(of_tile.all >> 16);
  }

  block_threads& block_;
  best_floats_scratch<Threads>& scratch_;
  view<const float> row_;
  index_t head_;  // scores before the first piece
  index_t pieces_;
  int shift_ = 0;           // below it digits of keys are not looked at
  std::int32_t bound_ = 0;  // the digits of the k-th best; what is above is taken
  index_t better_ = 0;      // how many are above
};

/// Threads of a block. Floats are read in pieces of 16 bytes, and a row of them by more threads at once.
template <class Score>
inline constexpr index_t top_k_threads = std::is_same_v<Score, float> ? 512 : 256;

/// One row of votes as a walk sees it.
struct row_of_votes {
  view<const votes_t> row;
  __device__ index_t size() const { return row.size(); }
  __device__ votes_t key(index_t id) const { return row[id]; }
  __device__ index_t tokens(index_t) const { return 1; }
};

/// A block for each row, which blockIdx.x names. @see launch_top_k
template <class Score>
__global__ void __launch_bounds__(top_k_threads<Score>)
    top_k_kernel(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts) {
  constexpr index_t threads = top_k_threads<Score>;
  __shared__ block_scratch scratch;
  block_threads block(scratch);
  const auto row = static_cast<index_t>(blockIdx.x);
  index_t taken = 0;
  if constexpr (std::is_same_v<Score, float>) {
    __shared__ best_floats_scratch<threads> own_scratch;
    taken = best_floats<threads>(block, own_scratch, scores[row]).write(ids[row]);
  } else {
    __shared__ best_scratch<threads> walk_scratch;
    const row_of_votes items{scores[row]};
    const take_limits limits{.segments = ids.extent(1)};
    best_walk<threads, row_of_votes> walk(block, walk_scratch, items, limits, not_eligible + 1);
    taken = write_best(block, walk, ids[row]);
  }
  if (block.thread() == 0) counts[row] = taken;
}

/// The best of each row: highest score, ties to the lower id, NaN last.
///
/// @param scores  [rows, n]  votes, of which `not_eligible` is never taken, or floats; n up to 65,536
/// @param ids     [rows, k]  the ids of the best k, ascending, padded with -1
/// @param counts  [rows]     how many were taken
/// @throws error(device) if the kernel cannot be started
/// @cost   one block for each row. Reads a row of floats two to four times (best_floats), of votes twice, and once
///         more for each 10 bits in which they differ
template <class Score>
void launch_top_k(view<const Score, 2> scores, view<index_t, 2> ids, view<index_t> counts, stream_ref stream) {
  ZOOMR_EXPECTS(ids.extent(0) == scores.extent(0) && counts.size() == scores.extent(0),
                "top_k: ids and counts need a row for each row of scores");
  if (scores.extent(0) == 0) return;
  const launch_shape shape{dim3(static_cast<unsigned>(scores.extent(0))), dim3(top_k_threads<Score>)};
  launch(shape, stream, &top_k_kernel<Score>, scores, ids, counts);
}

}  // namespace zoomr_test
