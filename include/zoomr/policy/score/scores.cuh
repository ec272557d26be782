// SPDX-License-Identifier: Apache-2.0
// L4. Device twin of the scoring in cache/host/choosing/chooser.hpp: the heads of one KV head score all segments at
// once. A warp takes as many segments as give 32 scores; each thread holds one of the 32 partial sums of all of them,
// and the tree of the contract (math/dot.hpp) is walked for all together, every exchange halving what a thread still
// holds.
#pragma once

#include <zoomr/core/device/vectors.cuh>
#include <zoomr/math/dot.cuh>
#include <zoomr/policy/concepts.hpp>

namespace zoomr::inline v0 {

/// Where the device's index keeps dimension `d` of a summary: those of one partial sum side by side, so that a thread
/// loads all of its own at once. Where partial sums have not equally many, as the host does.
ZOOMR_HD constexpr index_t summary_place(index_t head_dim, index_t d) {
  if (head_dim % partial_sums != 0) return d;
  return d % partial_sums * (head_dim / partial_sums) + d / partial_sums;
}

/// The heads of one KV head whose queries are scored against all segments, and where the scores go. As it is made by
/// default, with no segments, there is nothing to score.
/// @tparam Number   of queries
/// @tparam Summary  in which the index is kept
template <class Number, class Summary = float>
struct row_to_score {
  view<const Number, 2> queries;       // [heads, head_dim]  of the token
  view<const float, 2> sums;           // [heads, head_dim]  over the open segment; empty: the queries alone
  index_t count = 1;                   // queries in the sums
  const Summary* summaries = nullptr;  // [segments][head_dim, in the order of summary_place][rows]  aligned to 16 bytes
  index_t segments = 0;
  view<float, 2> scores;          // [heads, segments]  out
  const float* scales = nullptr;  // [segments]  of summaries that have them
};

/// Heads for which there is room: the next power of two.
template <index_t Group>
inline constexpr index_t scored_heads = Group <= 1    ? 1
                                        : Group <= 2  ? 2
                                        : Group <= 4  ? 4
                                        : Group <= 8  ? 8
                                        : Group <= 16 ? 16
                                                      : 32;

/// One warp's part of scoring, in a cache's layer_kernel (cache/device/launching/layer_kernel.cuh).
template <index_t Heads, index_t HeadDim, class Scorer, class Number, class Summary>
struct scoring_warp {
  static constexpr index_t at_once = warp_lanes / Heads;  // segments that are scored at once
  static constexpr index_t rows = Scorer::summary::rows;
  static constexpr index_t sums = sums_of<Scorer>();
  static constexpr index_t own = (HeadDim + partial_sums - 1) / partial_sums;  // dimensions of a thread, at most
  static constexpr bool even = HeadDim % partial_sums == 0;                    // exactly
  static constexpr bool in_registers = Heads * own <= 32;                      // the queries
  static constexpr bool scaled = scales_summaries<Summary>;
  static constexpr bool scales_numbers = scaled && !homogeneous_scorer<Scorer>;  // or else scores
  /// Segments whose numbers a thread has at once: as many as registers hold.
  static constexpr index_t fitting(index_t n) { return n > 1 && n * own * rows > 64 ? fitting(n / 2) : n; }
  static constexpr index_t loaded = fitting(at_once);

  const Scorer& scorer;
  const row_to_score<Number, Summary>& row;
  shared_array<float, Heads * HeadDim>& asking_queries;  // [heads][head_dim]
  float queries[std::size_t{in_registers ? Heads * own : 1}];

  __device__ scoring_warp(const Scorer& for_scorer, const row_to_score<Number, Summary>& for_row,
                          shared_array<float, Heads * HeadDim>& for_queries)
      : scorer(for_scorer), row(for_row), asking_queries(for_queries) {
    if constexpr (in_registers) {
#pragma unroll
      for (index_t i = 0; i < Heads * own; ++i) queries[i] = query_number(i / own, i % own);
    }
  }

  /// The thread's j-th number of a head's query.
  __device__ float query_number(index_t head, index_t j) const {
    return head < row.queries.extent(0) && has(j) ? asking_queries[head * HeadDim + warp_lane() + j * partial_sums]
                                                  : 0.0f;
  }
  __device__ static index_t warp_lane() { return static_cast<index_t>(threadIdx.x) % warp_lanes; }
  __device__ static bool has(index_t j) { return even || warp_lane() + j * partial_sums < HeadDim; }

  /// The thread's numbers of one summary.
  struct own_numbers {
    float at[std::size_t{own * rows}];
  };
  __device__ own_numbers load(index_t segment) const {
    own_numbers numbers;
    const Summary* summary = row.summaries + std::int64_t{segment} * (HeadDim * rows);
    constexpr index_t bytes = own * rows * static_cast<index_t>(sizeof(Summary));
    if constexpr (even && bytes % 16 == 0) {
      load_words<uint4>(summary, numbers, [](const uint4& four, index_t i) {
        return i == 0 ? four.x : i == 1 ? four.y : i == 2 ? four.z : four.w;
      });
    } else if constexpr (even && bytes % 8 == 0) {
      load_words<uint2>(summary, numbers, [](const uint2& two, index_t i) { return i == 0 ? two.x : two.y; });
    } else if constexpr (even && bytes % 4 == 0) {
      load_words<unsigned>(summary, numbers, [](unsigned word, index_t) { return word; });
    } else if constexpr (even && bytes % 2 == 0 && sizeof(Summary) == 1) {
      const auto* from = reinterpret_cast<const std::uint16_t*>(summary) + warp_lane() * (bytes / 2);
#pragma unroll
      for (index_t p = 0; p < bytes / 2; ++p) {
        float four[4];  // the upper two are of no number
        stored_word<Summary>::unpack(from[p], four);
        numbers.at[2 * p] = four[0];
        numbers.at[2 * p + 1] = four[1];
      }
    } else {
#pragma unroll
      for (index_t j = 0; j < own; ++j) {
        const index_t place = summary_place(HeadDim, warp_lane() + j * partial_sums);
#pragma unroll
        for (index_t r = 0; r < rows; ++r) {
          numbers.at[j * rows + r] = has(j) ? to_float(summary[place * rows + r]) : 0.0f;
        }
      }
    }
    if constexpr (scales_numbers) {
      const float scale = row.scales[segment];
#pragma unroll
      for (index_t i = 0; i < own * rows; ++i) numbers.at[i] = fused(numbers.at[i], scale, -0.0f);
    }
    return numbers;
  }
  template <class Piece, class WordOf>
  __device__ static void load_words(const Summary* summary, own_numbers& to, WordOf word_of) {
    constexpr auto of_word = static_cast<index_t>(4 / sizeof(Summary));
    constexpr index_t words = static_cast<index_t>(sizeof(Piece)) / 4;
    constexpr index_t pieces = own * rows / (of_word * words);
    const auto* from = reinterpret_cast<const Piece*>(summary) + warp_lane() * pieces;
#pragma unroll
    for (index_t p = 0; p < pieces; ++p) {
      const Piece piece = from[p];
#pragma unroll
      for (index_t i = 0; i < words; ++i) {
        stored_word<Summary>::unpack(word_of(piece, i), to.at + (p * words + i) * of_word);
      }
    }
  }

  /// Scores of segments [first, first + together) for each of `Heads` heads; thread h * together + s gets that of head
  /// h and segment s. Behind the last segment the last one is scored again.
  /// @tparam Whole  none of them is after it
  template <bool Whole>
  __device__ float score(index_t first) const {
    float partial[std::size_t{sums}][std::size_t{partial_sums}] = {};
#pragma unroll
    for (index_t begin = 0; begin < at_once; begin += loaded) {
      own_numbers summary[std::size_t{loaded}];
#pragma unroll
      for (index_t s = 0; s < loaded; ++s) {
        const index_t segment = first + begin + s;
        summary[s] = load(Whole || segment < row.segments ? segment : row.segments - 1);
      }
#pragma unroll
      for (index_t j = 0; j < own; ++j) {
        if (!has(j)) continue;
#pragma unroll
        for (index_t h = 0; h < Heads; ++h) {
          const float query = in_registers ? queries[in_registers ? h * own + j : 0] : query_number(h, j);
#pragma unroll
          for (index_t s = 0; s < loaded; ++s) {
            cells<rows> c;
#pragma unroll
            for (index_t r = 0; r < rows; ++r) c.row[r] = summary[s].at[j * rows + r];
            add(partial, h * at_once + begin + s, query, c);
          }
        }
      }
    }
    if constexpr (several_sums_scorer<Scorer>) {
      score_sums<sums> sums_of_warp;
#pragma unroll
      for (index_t i = 0; i < sums; ++i) sums_of_warp.at[i] = warp_sums(partial[i]);
      return scorer.finish(sums_of_warp);
    } else {
      return warp_sums(partial[0]);
    }
  }
  /// Scores its share of the row's segments, as the `number`-th of so many warps.
  __device__ void score_all(index_t number, index_t warps) const {
    const index_t head = warp_lane() / at_once, segment = warp_lane() % at_once;
    const bool present = head < row.queries.extent(0);
    index_t first = number * at_once;
    for (; first + at_once <= row.segments; first += warps * at_once) {
      const float own_score = score<true>(first);
      if (present) row.scores(head, first + segment) = of_numbers(own_score, first + segment);
    }
    if (first >= row.segments) return;
    const float own_score = score<false>(first);
    if (present && first + segment < row.segments) {
      row.scores(head, first + segment) = of_numbers(own_score, first + segment);
    }
  }

 private:
  /// What a score of the numbers that are kept is for the numbers that they stand for.
  __device__ float of_numbers(float score, index_t segment) const {
    if constexpr (scaled && !scales_numbers) score = fused(score, row.scales[segment], -0.0f);
    return score;
  }
  __device__ void add(float (&partial)[std::size_t{sums}][std::size_t{partial_sums}], index_t at, float query,
                      const cells<rows>& c) const {
    if constexpr (several_sums_scorer<Scorer>) {
      score_sums<sums> acc;
#pragma unroll
      for (index_t i = 0; i < sums; ++i) acc.at[i] = partial[i][at];
      acc = scorer.term(acc, query, c);
#pragma unroll
      for (index_t i = 0; i < sums; ++i) partial[i][at] = acc.at[i];
    } else {
      partial[0][at] = scorer.term(partial[0][at], query, c);
    }
  }
};

}  // namespace zoomr::inline v0
