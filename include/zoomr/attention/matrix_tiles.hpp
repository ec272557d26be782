// SPDX-License-Identifier: Apache-2.0
// L4. Attention of a prompt's queries over whole pages, by AMX's tiles of bfloat16. A tile has 16 rows of 64 bytes: its
// products are those of 16 queries with 16 tokens over 32 dimensions, or of the weights of 16 queries with 16
// dimensions of 16 tokens, in two parts. What is no number of bfloat16 is a sum of two:
//   stored numbers  exactly: bfloat16, float8 and int8 are one part, float16 is two. Others are not taken
//   queries         but for 2^-16 of each; the second parts are left out where all are zeros, as of a bfloat16 model
//   weights         but for 2^-16 of each; they are added up unrounded
// Products are added up in floats, in the order of the instruction, and subnormal numbers count as zeros. Each query's
// sums are its own, page by page: neither the other queries nor the other pages of a call change their bits.
// Source: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: TDPBF16PS.
#pragma once

#include <zoomr/attention/page_run.hpp>

#include <algorithm>    // std::min
#include <type_traits>  // std::is_same_v

namespace zoomr::inline v0::detail {

inline constexpr index_t tile_rows = 16, tile_dims = 32;
inline constexpr index_t pages_in_tiles = 4;  // that are multiplied side by side
static_assert(page_tokens == tile_rows);

/// Numbers of bfloat16 whose sum is a stored number of type T; 0: up to two are not enough, or no path has tiles.
template <class T>
inline constexpr index_t tile_parts = !ZOOMR_TILES                 ? 0
                                      : std::is_same_v<T, float16> ? 2
                                      : std::is_same_v<T, bfloat16> || std::is_same_v<T, float8> ||
                                              std::is_same_v<T, int8> || std::is_same_v<T, scaled_int8>
                                          ? 1
                                          : 0;

/// Dimensions of queries and keys in whole tiles; what is too many is zeros. As they are where no path has tiles.
constexpr index_t dims_in_tiles(index_t key_width) {
  return ZOOMR_TILES ? (key_width + tile_dims - 1) / tile_dims * tile_dims : key_width;
}

/// Prompts over such widths are multiplied in tiles.
inline bool multiplies_tiles(cpu_path path, kv_widths widths) {
  return path == cpu_path::avx512_amx && in_vectors(widths);
}

/// A pair of numbers in one part, or in the first and the second one: bits of a float, as tiles take them.
struct split_pair {
  float first, second;

  split_pair(float a, float b)
      : first(joined(a, b)), second(joined(a - bits_as<float>(cut(a)), b - bits_as<float>(cut(b)))) {}

 private:
  static std::uint32_t cut(float x) { return bits_as<std::uint32_t>(x) & 0xffff0000u; }
  static float joined(float a, float b) { return bits_as<float>(cut(a) >> 16 | cut(b)); }
};

/// Writes one token's key as tiles take it.
/// @param key   [width]
/// @param keys  [parts, dims_in_tiles(width) / 2, page_tokens]  pairs of dimensions
inline void key_in_tiles(const float* key, index_t token, index_t width, index_t parts, float* keys) {
  const index_t dims = dims_in_tiles(width);
  for (index_t d = 0; d < dims; d += 2) {
    const split_pair pair(d < width ? key[d] : 0.0f, d < width ? key[d + 1] : 0.0f);
    float* const place = keys + std::int64_t{d / 2} * page_tokens + token;
    *place = pair.first;
    if (parts == 2) place[std::int64_t{dims / 2} * page_tokens] = pair.second;
  }
}
/// Writes the values of tokens 2 i and 2 i + 1.
/// @param values  [2, page_tokens / 2, width]  pairs of tokens: first parts, then second ones, or first ones again
inline void values_in_tiles(const float* even, const float* odd, index_t i, index_t width, index_t parts,
                            float* values) {
  float* const first = values + std::int64_t{i} * width;
  float* const second = first + std::int64_t{page_tokens / 2} * width;
  for (index_t d = 0; d < width; ++d) {
    const split_pair pair(even[d], odd[d]);
    first[d] = pair.first;
    second[d] = parts == 2 ? pair.second : pair.first;
  }
}

/// Queries in parts, evenly apart: row r begins at first + r * apart.
struct split_queries {
  const float* first = nullptr;  // [rows][2 parts, dims_in_tiles of bfloat16]
  std::int64_t apart = 0;        // in floats
  index_t parts = 2;             // 1: second ones are all zeros

  split_queries from(index_t row) const { return {first + row * apart, apart, parts}; }
};

}  // namespace zoomr::inline v0::detail

#define ZOOMR_EACH_CPU_PATH <zoomr/attention/matrix_tiles.inl>
#include <zoomr/core/each_cpu_path.inl>

#if ZOOMR_TILES
namespace zoomr::inline v0::detail {

// Tiles 0 to 4 have a row for each query, 5 to 7 have 16. No compiler takes one by itself.
#define ZOOMR_LOAD_TILE(tile, place, apart) \
  "tileloadd {(%[" place "],%[" apart "],1), %%tmm" tile "|tmm" tile ", [%[" place "]+%[" apart "]*1]}\n\t"
#define ZOOMR_STORE_TILE(tile, place, apart) \
  "tilestored {%%tmm" tile ", (%[" place "],%[" apart "],1)|[%[" place "]+%[" apart "]*1], tmm" tile "}\n\t"
#define ZOOMR_MULTIPLY_TILES(sum, a, b) \
  "tdpbf16ps {%%tmm" b ", %%tmm" a ", %%tmm" sum "|tmm" sum ", tmm" a ", tmm" b "}\n\t"

/// The tiles of this thread, from here on.
class tiles_in_use {
 public:
  explicit tiles_in_use(index_t queries) {
    struct {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      std::uint8_t rows[16] = {};
    } shapes;
    for (index_t tile = 0; tile < 8; ++tile) {
      shapes.rows[tile] = static_cast<std::uint8_t>(tile < 5 ? queries : tile_rows);
    }
    asm volatile("ldtilecfg %0" : : "m"(shapes));
  }
  tiles_in_use(const tiles_in_use&) = delete;
  tiles_in_use& operator=(const tiles_in_use&) = delete;
  ~tiles_in_use() { asm volatile("tilerelease"); }
};

/// Products of queries with the keys of pages_in_tiles pages.
/// @param keys  of each page, as of key_in_tiles
/// @param out   [pages, tile_rows, page_tokens]
inline void multiply_keys(const split_queries& queries, const float* const* keys, index_t parts, index_t dims,
                          float* out) {
  const std::int64_t line = 64, apart = queries.apart * 4;
  asm volatile(
      "tilezero {%%tmm0|tmm0}\n\ttilezero {%%tmm1|tmm1}\n\ttilezero {%%tmm2|tmm2}\n\ttilezero {%%tmm3|tmm3}" ::);
  for (index_t q = 0; q < queries.parts; ++q) {
    for (index_t k = 0; k < parts; ++k) {
      for (index_t d = 0; d < dims; d += tile_dims) {
        const std::int64_t place = (std::int64_t{k} * dims + d) * (page_tokens / 2);
        asm volatile(
            ZOOMR_LOAD_TILE("4", "query", "apart")                                 //
            ZOOMR_LOAD_TILE("5", "a", "line") ZOOMR_MULTIPLY_TILES("0", "4", "5")  //
            ZOOMR_LOAD_TILE("6", "b", "line") ZOOMR_MULTIPLY_TILES("1", "4", "6")  //
            ZOOMR_LOAD_TILE("7", "c", "line") ZOOMR_MULTIPLY_TILES("2", "4", "7")  //
            ZOOMR_LOAD_TILE("5", "d", "line") ZOOMR_MULTIPLY_TILES("3", "4", "5")
            :
            : [query] "r"(queries.first + (std::int64_t{q} * dims + d) / 2), [apart] "r"(apart), [line] "r"(line),
              [a] "r"(keys[0] + place), [b] "r"(keys[1] + place), [c] "r"(keys[2] + place), [d] "r"(keys[3] + place)
            : "memory");
      }
    }
  }
  constexpr index_t page = tile_rows * page_tokens;
  asm volatile(ZOOMR_STORE_TILE("0", "a", "line") ZOOMR_STORE_TILE("1", "b", "line")  //
               ZOOMR_STORE_TILE("2", "c", "line") ZOOMR_STORE_TILE("3", "d", "line")
               :
               : [line] "r"(line), [a] "r"(out), [b] "r"(out + page), [c] "r"(out + 2 * page), [d] "r"(out + 3 * page)
               : "memory");
}

/// out += weights * values
/// @param weights  as of weigh_rows
/// @param values   of a page, as of values_in_tiles
/// @param apart    from the output of one query to that of the next, in floats
inline void multiply_values(const bfloat16* weights, const float* values, index_t parts, index_t width, float* out,
                            std::int64_t apart) {
  const std::int64_t line = 64, out_apart = apart * 4, values_apart = std::int64_t{width} * 4;
  const bfloat16* const second = weights + tile_rows * 2 * page_tokens;
  asm volatile(ZOOMR_LOAD_TILE("3", "first", "line") : : [first] "r"(weights), [line] "r"(line) : "memory");
  if (parts == 2)
    asm volatile(ZOOMR_LOAD_TILE("4", "second", "line") : : [second] "r"(second), [line] "r"(line) : "memory");
  for (index_t d = 0; d < width; d += tile_rows) {
    asm volatile(
        ZOOMR_LOAD_TILE("0", "out", "out_apart") ZOOMR_LOAD_TILE("5", "values", "values_apart")
            ZOOMR_MULTIPLY_TILES("0", "3", "5")
        :
        : [out] "r"(out + d), [out_apart] "r"(out_apart), [values] "r"(values + d), [values_apart] "r"(values_apart)
        : "memory");
    if (parts == 2) asm volatile(ZOOMR_MULTIPLY_TILES("0", "4", "5")::);
    asm volatile(ZOOMR_STORE_TILE("0", "out", "out_apart")
                 :
                 : [out] "r"(out + d), [out_apart] "r"(out_apart)
                 : "memory");
  }
}
#undef ZOOMR_LOAD_TILE
#undef ZOOMR_STORE_TILE
#undef ZOOMR_MULTIPLY_TILES

/// Writes a query in parts.
/// @param to  [2 parts, dims_in_tiles(width)]
/// @return    false if the second part is all zeros
inline bool split_query(cpu_path path, const float* query, index_t width, float* to) {
  const index_t dims = dims_in_tiles(width);
  bfloat16* const upper = reinterpret_cast<bfloat16*>(to);
  for (index_t d = width; d < dims; ++d) upper[d] = upper[dims + d] = bfloat16{};
  bool left = false;
  dispatch(path, [&](auto vectors) { left = split_row(vectors, query, width, upper, upper + dims); });
  return left;
}

/// Adds whole pages to the state of each query, as attend_run does.
/// @param pages        1 to pages_in_tiles, side by side, of 16 tokens each: keys as of key_in_tiles, values as of
/// values_in_tiles, all of them finite
/// @param parts        of their numbers
/// @param split        the queries, as split_query writes them
/// @param queries      whose outputs are as far apart as these
/// @param first_slot   of the first page, for the hook
/// @param first_query  the number of the first query, for the hook
/// @pre   multiplies_tiles(path, widths)
/// @cost  for 16 queries and a page a product of tiles for each 32 dimensions of a key, times parts of queries and of
/// keys, and for each 16 of a value, times its parts; fewer pages than pages_in_tiles cost the former of all of them
template <class Hook>
void attend_tiles(cpu_path path, view<const page_tile> pages, index_t parts, const split_queries& split,
                  view<const run_query> queries, kv_widths widths, float scale, const Hook& hook, index_t first_slot,
                  index_t first_query) {
  alignas(64) float logits[std::size_t{pages_in_tiles * tile_rows * page_tokens}];
  alignas(64) bfloat16 weights[std::size_t{2 * tile_rows * 2 * page_tokens}];
  const float* keys[std::size_t{pages_in_tiles}];
  for (index_t p = 0; p < pages_in_tiles; ++p) keys[p] = pages[(std::min)(p, pages.size() - 1)].keys;
  for (index_t q = 0; q < queries.size(); q += tile_rows) {
    const index_t count = (std::min)(tile_rows, queries.size() - q);
    const tiles_in_use tiles(count);
    multiply_keys(split.from(q), keys, parts, dims_in_tiles(widths.key), logits);
    for (index_t p = 0; p < pages.size(); ++p) {
      const hooked<Hook> call{hook, first_slot + p * page_tokens, first_query + q};
      dispatch(path, [&](auto vectors) {
        weigh_rows(vectors, logits + p * tile_rows * page_tokens, pages[p], queries.data() + q, count, widths.value,
                   scale, call, parts, weights);
      });
      multiply_values(weights, pages[p].values, parts, widths.value, queries[q].state->out, split.apart);
    }
  }
}

}  // namespace zoomr::inline v0::detail
#endif
