// SPDX-License-Identifier: Apache-2.0
// gather_attend on the host: one KV lane, four query heads, head_dim 128, one thread.
//   host/attend/TYPE/tokens:N/ranges_of:L   N tokens in ranges of L, each before a gap of L / 2 (L = N: one range), in
//                                           pages of 16 that lie in another order: 8,192, or 512 MiB of them
// bytes_per_second: keys and values, once for the four heads. Ceilings: of_read of reading in order (8 MiB of it where
// the data are smaller than 16 MiB, else 512 MiB), of_pieces of only reading the same keys and values where they lie,
// with or without asking for them ahead, whichever is faster; of_fma of 4 flops for each number of a key and head.
// Checked: the first and the last head, all tokens, against attention in double; tolerance::end_to_end and of_path.
#include <zoomr/attention/gather.hpp>
#include <zoomr/core/buffer.hpp>
#include <zoomr/core/storage_types.hpp>

#include <cstring>  // std::memcpy

#include "../../tests/support/rounded_weights.hpp"
#include "../support/host.hpp"
#include "../support/kernels.hpp"
#include "../support/noise.hpp"
#include "../support/reference.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t head_dim = 128;
constexpr index_t group = 4;
/// What a row takes, in `T` and in bytes.
template <class T>
constexpr index_t row_size = static_cast<index_t>(stored_size<T>(head_dim));
template <class T>
constexpr std::size_t row_bytes = std::size_t{row_size<T>} * sizeof(T);
constexpr index_t stretch(index_t length) { return length * 3 / 2; }

/// One lane's keys and values, in shuffled pages.
template <class T>
struct stored_lane {
  std::vector<index_t> pages;
  buffer<T> numbers;  // [page][key | value][16][head_dim], in huge pages, as a cache has them

  explicit stored_lane(index_t tokens)
      : pages(shuffled_pages(pages_for(tokens))),
        numbers(std::int64_t{pages_for(tokens)} * 2 * page_tokens * row_size<T>) {
    if constexpr (in_blocks<T>) {
      float block[numbers_in_block];
      for (std::int64_t i = 0; i < numbers.size(); i += block_size<T>) {
        for (index_t d = 0; d < numbers_in_block; ++d) block[d] = noise_at(numbers_in_block * i + d, 5);
        store_block(block, 1.0f, numbers.data() + i);
      }
    } else {
      for (std::int64_t i = 0; i < numbers.size(); ++i) numbers.data()[i] = stored_noise<T>(i, 5);
    }
  }

  paged_kv_lane<const T> lane() const {
    index_t dim = head_dim;
    asm("" : "+r"(dim));  // no constant, as in a cache
    return {numbers.data(), std::int64_t{2} * page_tokens * stored_size<T>(dim),
            kv_rows::in_page<T>({1, 1, 1, dim}, 1, 0), pages};
  }
};

/// What is attended, by whom, and what comes of it.
template <class T>
struct scene {
  /// Keys of adjacent tokens of a page, or their values.
  struct piece {
    const char* at = nullptr;
    std::size_t bytes = 0;
  };

  const stored_lane<T>& held;
  std::vector<token_range> ranges;
  std::vector<piece> pieces;
  std::vector<float> queries = noise(group * head_dim, 9, query_scale);
  std::vector<float> out = std::vector<float>(queries.size());
  std::vector<attention_state> states = std::vector<attention_state>(static_cast<std::size_t>(group));

  scene(const stored_lane<T>& in, index_t tokens, index_t length) : held(in) {
    for (index_t first = 0, left = tokens; left > 0; first += stretch(length), left -= length) {
      ranges.push_back({first, first + std::min(left, length)});
    }
    const auto lane = held.lane();
    for (const token_range& r : ranges) {
      for (index_t first = r.first; first < r.last;) {
        const index_t last = std::min(r.last, (first / page_tokens + 1) * page_tokens);
        const std::size_t bytes = static_cast<std::size_t>(last - first) * row_bytes<T>;
        pieces.push_back({reinterpret_cast<const char*>(lane.key(first)), bytes});
        pieces.push_back({reinterpret_cast<const char*>(lane.value(first)), bytes});
        first = last;
      }
    }
  }

  void attend() {
    std::fill(out.begin(), out.end(), 0.0f);
    for (index_t h = 0; h < group; ++h) {
      states[static_cast<std::size_t>(h)] = {-infinity, 0.0f, out.data() + h * head_dim};
    }
    gather_attend(view<const token_range>(ranges), held.lane(), view<const float, 2>(queries.data(), {group, head_dim}),
                  1.0f / std::sqrt(static_cast<float>(head_dim)), view<attention_state>(states));
    use(out[0]);
  }

  /// The sum of the 32-bit words that are attended, read where they lie and in their order.
  /// @tparam Ask  the lines of the piece after the next are asked for meanwhile
  template <bool Ask>
  std::uint32_t read() const {
    using line = std::uint32_t __attribute__((vector_size(64)));
    line sum{};
    detail::on_fastest_path([&] {
      for (std::size_t p = 0; p < pieces.size(); ++p) {
        const piece& now = pieces[p];
        const piece& ahead = pieces[p + 2 < pieces.size() ? p + 2 : p];
        std::size_t i = 0;
        for (; i + sizeof(line) <= now.bytes; i += sizeof(line)) {
          if (Ask) __builtin_prefetch(ahead.at + (i < ahead.bytes ? i : 0), 0, 2);
          line one;
          std::memcpy(&one, now.at + i, sizeof one);
          sum += one;
        }
        line rest{};
        if (i < now.bytes) std::memcpy(&rest, now.at + i, now.bytes - i);
        sum += rest;
      }
    });
    std::uint32_t all = 0;
    for (int l = 0; l < 16; ++l) all += sum[l];
    return all;
  }

  void expect_right() {
    attend();
    std::vector<index_t> slots;
    for (const token_range& r : ranges) {
      for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
    }
    const auto lane = held.lane();
    std::uint32_t words = 0;
    for (const index_t slot : slots) {
      for (const T* row : {lane.key(slot), lane.value(slot)}) {
        std::uint32_t of_row[row_bytes<T> / 4];
        std::memcpy(of_row, row, sizeof of_row);
        for (const std::uint32_t word : of_row) words += word;
      }
    }
    comparison("words read").same(read<true>(), words);
    comparison("words read").same(read<false>(), words);
    const auto key = [&](index_t t, index_t d) { return number_at(lane.key(slots[static_cast<std::size_t>(t)]), d); };
    const auto value = [&](index_t t, index_t d) {
      return number_at(lane.value(slots[static_cast<std::size_t>(t)]), d);
    };
    for (const index_t head : {0, group - 1}) {
      attention_state& state = states[static_cast<std::size_t>(head)];
      const float lse = state.finish(head_dim);
      const auto query = queries.begin() + head * head_dim;
      const auto expected = attention({query, query + head_dim}, static_cast<index_t>(slots.size()), key, value);
      expect_lse(expected, lse);
      expect_outputs(expected, [&](index_t d) { return state.out[d]; },
                     {.of_weights = tolerance::of_path<T>(head_dim)});
    }
  }
};

template <class T>
void add_rows() {
  constexpr index_t far = (1 << 28) / row_bytes<T>;  // 512 MiB
  for (const index_t tokens : toy ? std::vector<index_t>{100} : std::vector<index_t>{8192, far}) {
    for (const index_t length : toy ? std::vector<index_t>{24} : std::vector<index_t>{24, 400, tokens}) {
      const std::string name = std::string("host/attend/") + type_name<T>() + "/tokens:" + std::to_string(tokens) +
                               "/ranges_of:" + std::to_string(length);
      add_row(name, 10, [=](int iterations) {
        const auto held = kept<stored_lane<T>>("lane of " + name, [&] {
          return std::make_unique<stored_lane<T>>((tokens / length + 1) * stretch(length));
        });
        scene<T> made(*held, tokens, length);
        check_once(name, [&] { made.expect_right(); });
        const double bytes = 2.0 * tokens * row_bytes<T>;
        std::vector<double> reading, asking, attending;  // in turn
        const auto timed = [](std::vector<double>& seconds, auto work) {
          const double from = now();
          work();
          seconds.push_back(now() - from);
        };
        made.attend();  // to warm up
        for (int i = 0; i < iterations; ++i) {
          timed(reading, [&] { use(static_cast<float>(made.template read<false>())); });
          timed(asking, [&] { use(static_cast<float>(made.template read<true>())); });
          timed(attending, [&] { made.attend(); });
        }
        const double of_pieces =
            std::min(quantile(reading, 0.5), quantile(asking, 0.5)) / std::max(quantile(attending, 0.5), 1e-9);
        result of = against_ceilings(std::move(attending), bytes, 4.0 * tokens * head_dim * group, bytes < (16 << 20));
        of.figures.push_back({"of_pieces", of_pieces});
        return of;
      });
    }
  }
}

}  // namespace

void host::add_gather_attend() {
  for_each_type(storage_types{}, []<class T>() {
    if constexpr (!scales_rows<T>) add_rows<T>();
  });
}

}  // namespace zoomr_bench
