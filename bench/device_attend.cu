// SPDX-License-Identifier: Apache-2.0
// gather_attend alone: sequences x attended tokens, in scattered runs and in one; a sweep of splits.
#include <zoomr/attend/gather.cuh>

#include <device.hpp>

#include <cmath>  // std::sqrt

namespace zoomr_bench {

namespace {

using namespace zoomr;
using zoomr::index;

constexpr index head_dim = 128;
constexpr index kv_heads = toy ? 2 : 8;
constexpr index run_tokens = 24;
constexpr index stretch_tokens = 96;  // a run of 24 in each

template <class T>
constexpr const char* type_name() {
  if constexpr (std::is_same_v<T, bfloat16>) return "bf16";
  if constexpr (std::is_same_v<T, float16>) return "f16";
  return "fp8";
}

template <class Tokens>
struct listed_rows {
  view<const attending_row<Tokens>> listed;
  index count = 0;
  ZOOMR_HD attending_row<Tokens> at(index i) const { return listed[i]; }
};

/// Keys and values in shuffled pages, [page][key | value][kv_head][16][head_dim]; each sequence has pages of its own.
template <class T>
struct pool {
  index most_sequences;
  index sequence_pages;
  device_buffer<T> numbers;
  device_buffer<index> pages;  // [sequences][sequence_pages]

  static constexpr std::int64_t page_numbers = std::int64_t{2} * kv_heads * page_tokens * head_dim;

  pool(index sequences, index tokens)
      : most_sequences(sequences),
        sequence_pages(pages_for(tokens)),
        numbers(std::int64_t{sequences} * sequence_pages * page_numbers),
        pages(shuffled(sequences * sequence_pages)) {
    fill_with_noise(numbers.data(), numbers.size(), 7);
  }

  static std::vector<index> shuffled(index count) {
    std::vector<index> made;
    std::uint32_t random = 12345;
    for (index page = 0; page < count; ++page) made.push_back(page);
    for (index i = count - 1; i > 0; --i) {
      random = random * 1664525u + 1013904223u;
      std::swap(made[static_cast<std::size_t>(i)], made[static_cast<std::size_t>(random >> 8) % std::size_t(i + 1)]);
    }
    return made;
  }
  view<const index> pages_of(index sequence) const {
    return {pages.data() + std::int64_t{sequence} * sequence_pages, {sequence_pages}};
  }
  stored_layer<T> layer() const {
    const std::int64_t head = std::int64_t{page_tokens} * head_dim;
    return {numbers.data(), numbers.data() + kv_heads * head, page_numbers, head, head_dim, 4};
  }
};

/// One launch: every sequence attends to the same number of tokens.
struct problem {
  index sequences = 1;
  index tokens = 0;
  bool scattered = false;
  index splits = 1;
  index draft = 1;  // query tokens of each sequence, all of which attend to all of them
};

/// @tparam Tokens  shared_tokens_of_runs: those of a draft read together
template <class T, index Group, class Tokens = tokens_of_runs>
struct scene {
  static constexpr bool together = shared_tokens<Tokens>;
  static constexpr index heads = together ? 16 : Group;  // of a row

  problem p;
  const pool<T>& held;
  device_buffer<run> runs;
  device_buffer<index> before;
  device_buffer<unsigned> attending;
  device_buffer<attending_row<Tokens>> listed;
  device_buffer<bfloat16> queries, out;
  device_buffer<float> lse, partial;
  device_buffer<unsigned> arrived;

  scene(const problem& of, const pool<T>& in)
      : p(of),
        held(in),
        queries(of.sequences * std::int64_t{kv_heads} * of.draft * Group * head_dim),
        out(queries.size()),
        lse(of.sequences * std::int64_t{kv_heads} * of.draft * Group),
        partial(gather_workspace_bytes<T, head_dim, heads>(of.sequences * of.draft * kv_heads, of.splits) / 4),
        arrived(std::int64_t{of.sequences} * of.draft * kv_heads * 16) {
    std::vector<run> made;
    std::vector<index> sums;
    for (index first = 0, position = 0; first < p.tokens;) {
      const index length = p.scattered ? std::min(run_tokens, p.tokens - first) : p.tokens;
      const index at = p.scattered ? position + first / run_tokens * 7 % (stretch_tokens - run_tokens) : 0;
      made.push_back({at, at + length});
      sums.push_back(first);
      first += length, position += stretch_tokens;
    }
    runs = device_buffer<run>(made);
    before = device_buffer<index>(sums);
    const auto count = static_cast<index>(made.size());
    attending = device_buffer<unsigned>(std::vector<unsigned>(made.size(), ~0u));
    std::vector<attending_row<Tokens>> all;
    for (index s = 0; s < p.sequences; ++s) {
      for (index t = 0; t < p.draft; t += together ? p.draft : 1) {
        for (index kv_head = 0; kv_head < kv_heads; ++kv_head) {
          attending_row<Tokens> row;
          static_cast<tokens_of_runs&>(row.tokens) = {view<const run>(runs.data(), {count}),
                                                      view<const index>(before.data(), {count}), held.pages_of(s),
                                                      p.tokens, 4};
          if constexpr (together) {
            row.tokens.attending = {attending.data(), {count}};
            row.sharing = p.draft;
          }
          row.token = s * p.draft + t;
          row.kv_head = kv_head;
          row.first_head = kv_head * Group;
          row.heads = Group;
          all.push_back(row);
        }
      }
    }
    listed = device_buffer<attending_row<Tokens>>(all);
    fill_with_noise(queries.data(), queries.size(), 3);
    zero_on_device(arrived.data(), arrived.bytes(), the_stream());
  }

  void enqueue() const {
    const extents<3> wide{{p.sequences * p.draft, kv_heads * Group, head_dim}};
    const auto rows = static_cast<index>(listed.size());
    gather_task<T, bfloat16, listed_rows<Tokens>, scaled_logits> task;
    task.layer = held.layer();
    task.rows = {view<const attending_row<Tokens>>(listed.data(), {rows}), rows};
    task.logits = {1.0f / std::sqrt(static_cast<float>(head_dim))};
    task.queries = {queries.data(), wide};
    task.out = {out.data(), wide};
    task.lse = {lse.data(), {{p.sequences * p.draft, kv_heads * Group}}};
    task.partial = partial.data();
    task.arrived = arrived.data();
    gather_attend<T, head_dim, heads>(task, p.splits, the_stream());
  }
  /// Of what is attended, each token once.
  double bytes() const { return 2.0 * p.sequences * p.tokens * kv_heads * head_dim * static_cast<double>(sizeof(T)); }
};

template <class T>
std::shared_ptr<pool<T>> the_pool() {
  return kept<pool<T>>(std::string("pool ") + type_name<T>(), [] {
    return std::make_unique<pool<T>>(toy ? 2 : 32, toy ? 4 * stretch_tokens : 8192 / run_tokens * stretch_tokens + 256);
  });
}

template <class T, index Group>
void add_attend(const problem& p, l2 state, const std::string& suffix = "") {
  const std::string name = "attend/" + std::string(type_name<T>()) + "/group:" + std::to_string(Group) +
                           "/sequences:" + std::to_string(p.sequences) + "/tokens:" + std::to_string(p.tokens) +
                           (p.scattered ? "/runs_of_24/" : "/one_run/") + name_of(state) + suffix;
  add_row(name, 30, [=](int iterations) {
    problem now = p;
    if (now.splits == 0) now.splits = splits_for(p.sequences * kv_heads, p.tokens);
    const auto held = the_pool<T>();
    const scene<T, Group> made(now, *held);
    result of = reading(timed(state, iterations, [&] { made.enqueue(); }), made.bytes(), p.sequences);
    of.figures.push_back({"splits", now.splits});
    return of;
  });
}

/// A draft whose tokens read together, and one after the other.
template <class T, index Group>
void add_draft(index sequences, index tokens, index draft) {
  const auto add = [&](auto of, const std::string& how) {
    using tokens_type = decltype(of);
    const std::string name = "attend/" + std::string(type_name<T>()) + "/group:" + std::to_string(Group) +
                             "/sequences:" + std::to_string(sequences) + "/tokens:" + std::to_string(tokens) +
                             "/runs_of_24/draft:" + std::to_string(draft) + how;
    add_row(name, 30, [=](int iterations) {
      problem p{sequences, tokens, true, splits_for(sequences * kv_heads, tokens), draft};
      const auto held = the_pool<T>();
      const scene<T, Group, tokens_type> made(p, *held);
      result got = reading(timed(l2::cold, iterations, [&] { made.enqueue(); }), made.bytes(), sequences * draft);
      got.figures.push_back({"splits", p.splits});
      return got;
    });
  };
  add(shared_tokens_of_runs{}, "/together");
  add(tokens_of_runs{}, "/each_alone");
}

template <class T, index Group>
void add_grid() {
  for (const index sequences : toy ? std::vector<index>{2} : std::vector<index>{1, 8, 32}) {
    for (const index tokens : toy ? std::vector<index>{65} : std::vector<index>{512, 2048, 8192}) {
      for (const bool scattered : {true, false}) {
        for (const l2 state : {l2::cold, l2::warm}) add_attend<T, Group>({sequences, tokens, scattered, 0}, state);
      }
    }
  }
}

}  // namespace

void add_attend_rows() {
  add_grid<bfloat16, 4>();
  add_grid<bfloat16, 1>();
  add_grid<bfloat16, 8>();
  add_grid<bfloat16, 16>();
  for (const index sequences : toy ? std::vector<index>{1} : std::vector<index>{1, 8}) {
    for (const index splits : toy ? std::vector<index>{1, 3} : std::vector<index>{1, 2, 4, 8, 16, 32, 64}) {
      add_attend<bfloat16, 4>({sequences, toy ? 90 : 2048, true, splits}, l2::cold,
                              "/splits:" + std::to_string(splits));
    }
  }
  for (const index sequences : toy ? std::vector<index>{1} : std::vector<index>{1, 8}) {
    add_draft<bfloat16, 4>(sequences, toy ? 90 : 2048, 4);
    add_draft<bfloat16, 8>(sequences, toy ? 90 : 2048, 2);
    add_draft<float8, 4>(sequences, toy ? 90 : 2048, 4);
  }
  add_grid<float16, 4>();
  add_grid<float8, 4>();
  add_grid<float8, 1>();
  add_grid<float8, 8>();
  add_grid<float8, 16>();
}

}  // namespace zoomr_bench
