// SPDX-License-Identifier: Apache-2.0
// gather_attend on the host: one KV lane, four query heads, head_dim 128, one thread.
//   host/attend/TYPE/tokens:N/ranges_of:L   N tokens in ranges of L, each before a gap of L / 2 (L = N: one range), in
//                                           pages of 16 that lie in another order
// bytes_per_second: keys and values, once for the four heads. Ceilings: of_read of reading in order (8 MiB of it where
// the data are smaller than 16 MiB, else 512 MiB), of_fma of 4 flops for each number of a key and head.
// Checked: the first and the last head, all tokens, against attention in double; tolerance::end_to_end.
#include <zoomr/attention/gather.hpp>

#include "../support/host.hpp"
#include "../support/kernels.hpp"
#include "../support/noise.hpp"
#include "../support/reference.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t head_dim = toy ? 16 : 128;
constexpr index_t group = 4;
constexpr index_t stretch(index_t length) { return length * 3 / 2; }

/// One lane's keys and values, in shuffled pages.
template <class T>
struct stored_lane {
  std::vector<index_t> pages;
  std::vector<T> numbers;  // [page][key | value][16][head_dim]

  explicit stored_lane(index_t tokens)
      : pages(shuffled_pages(pages_for(tokens))),
        numbers(noise<T>(std::int64_t{pages_for(tokens)} * 2 * page_tokens * head_dim, 5)) {}

  paged_kv_lane<const T> lane() const {
    index_t dim = head_dim;
    asm("" : "+r"(dim));  // no constant, as in a cache
    const std::int64_t half = std::int64_t{page_tokens} * dim;
    return {numbers.data(), 2 * half, half, dim, pages};
  }
};

/// What is attended, by whom, and what comes of it.
template <class T>
struct scene {
  const stored_lane<T>& held;
  std::vector<token_range> ranges;
  std::vector<float> queries = noise(group * head_dim, 9, query_scale);
  std::vector<float> out = std::vector<float>(queries.size());
  std::vector<attention_state> states = std::vector<attention_state>(static_cast<std::size_t>(group));

  scene(const stored_lane<T>& in, index_t tokens, index_t length) : held(in) {
    for (index_t first = 0, left = tokens; left > 0; first += stretch(length), left -= length) {
      ranges.push_back({first, first + std::min(left, length)});
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

  void expect_right() {
    attend();
    std::vector<index_t> slots;
    for (const token_range& r : ranges) {
      for (index_t slot = r.first; slot < r.last; ++slot) slots.push_back(slot);
    }
    const auto lane = held.lane();
    const auto key = [&](index_t t, index_t d) { return to_float(lane.key(slots[static_cast<std::size_t>(t)])[d]); };
    const auto value = [&](index_t t, index_t d) {
      return to_float(lane.value(slots[static_cast<std::size_t>(t)])[d]);
    };
    for (const index_t head : {0, group - 1}) {
      attention_state& state = states[static_cast<std::size_t>(head)];
      const float lse = state.finish(head_dim);
      const auto query = queries.begin() + head * head_dim;
      const auto expected = attention({query, query + head_dim}, static_cast<index_t>(slots.size()), key, value);
      expect_lse(expected, lse);
      expect_outputs(expected, [&](index_t d) { return state.out[d]; });
    }
  }
};

template <class T>
void add_rows() {
  for (const index_t tokens : toy ? std::vector<index_t>{100} : std::vector<index_t>{8192, 131072}) {
    for (const index_t length : toy ? std::vector<index_t>{24} : std::vector<index_t>{24, 400, tokens}) {
      const std::string name = std::string("host/attend/") + type_name<T>() + "/tokens:" + std::to_string(tokens) +
                               "/ranges_of:" + std::to_string(length);
      add_row(name, 10, [=](int iterations) {
        const auto held = kept<stored_lane<T>>("lane of " + name, [&] {
          return std::make_unique<stored_lane<T>>((tokens / length + 1) * stretch(length));
        });
        scene<T> made(*held, tokens, length);
        check_once(name, [&] { made.expect_right(); });
        const double bytes = 2.0 * tokens * head_dim * sizeof(T);
        return against_ceilings(timed_on_host(iterations, [&] { made.attend(); }), bytes,
                                4.0 * tokens * head_dim * group, bytes < (16 << 20));
      });
    }
  }
}

}  // namespace

void host::add_gather_attend() {
  add_rows<float>(), add_rows<bfloat16>(), add_rows<float16>(), add_rows<float8>(), add_rows<int8>();
}

}  // namespace zoomr_bench
