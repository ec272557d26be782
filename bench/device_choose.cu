// SPDX-License-Identifier: Apache-2.0
// What choosing costs, kernel by kernel: the launches of a step with a real context, and top-k alone.
#include <zoomr/math/top_k.cuh>

#include <device_scene.hpp>

namespace zoomr_bench {

namespace {

/// A scene in the middle of a step that chooses: keys are appended, the index is up to date.
template <class Policy, head_count Heads>
struct choosing {
  using scene_type = scene<Policy, Heads>;
  using arrays_type = zoomr::device_arrays<Policy, bfloat16>;
  static constexpr index batch = Heads.batch, kv_heads = Heads.kv_heads;

  scene_type held;
  Policy policy;
  std::unique_ptr<typename scene_type::step_type> step;

  choosing(const Policy& with, const text& says) : held(with, says, 1), policy(with) {
    while (!Policy::selects || !chooses_next()) {
      auto before = held.begin(false);
      held.enqueue(before, 0);
      if (before.again(held.accepted(1))) held.enqueue(before, 1);
      wait();
      held.commit(before);
    }
    step = std::make_unique<typename scene_type::step_type>(held.begin(false));
    held.enqueue(*step, 0);
    wait();
  }

  bool chooses_next() const {
    return decltype(Policy::refresh)::each_token || held.says().ends_sentence(held.position());
  }

  view<const bfloat16, 3> queries() const { return held.queries(); }
  const arrays_type& arrays() const { return held.cache().arrays(); }
  index segments() const { return held.cache().segments({0}).size(); }

  void remember() const {
    zoomr::launch({dim3(static_cast<unsigned>(batch)), dim3(zoomr::plain_threads)}, the_stream(),
                  zoomr::remember_kernel<bfloat16, bfloat16>, arrays(), 0, queries());
  }
  void score() const {
    using summary = typename arrays_type::number;
    const zoomr::rows_to_score<bfloat16, bfloat16, summary> rows{arrays(), arrays().summaries, 0, queries(),
                                                                 batch * kv_heads};
    const index blocks = std::min<index>(64, arrays().sizes.segments / 128 + 1);  // as the cache does
    zoomr::score_segments<Heads.group>(policy.ask, policy.score, head_dim, rows, blocks, the_stream());
  }
  void select() const {
    const dim3 grid(static_cast<unsigned>(batch), static_cast<unsigned>(arrays().sizes.layer_rows));
    zoomr::launch({grid, dim3(zoomr::choose_threads)}, the_stream(), zoomr::select_kernel<Policy, bfloat16>, policy,
                  arrays(), 0, true);
  }
  double summary_bytes() const {
    constexpr auto each = static_cast<double>(sizeof(typename arrays_type::number));
    return each * batch * kv_heads * segments() * static_cast<double>(arrays().sizes.summary_numbers);
  }
};

template <head_count Heads, class Policy>
void add_part(const std::string& name, const Policy& policy, const text& says, const std::string& part, l2 state) {
  const std::string place = name + "/context:" + std::to_string(says.timed_from) + "/";
  add_row("choose/" + place + part + "/" + name_of(state), 50, [=](int iterations) {
    using choosing_type = choosing<Policy, Heads>;
    const auto made =
        kept<choosing_type>("choosing " + place, [&] { return std::make_unique<choosing_type>(policy, says); });
    const bool sums = decltype(Policy::ask)::sums;
    const bool all = part == "all";
    const auto enqueue = [&] {
      if (sums && (all || part == "remember")) made->remember();
      if (all || part == "score") made->score();
      if (all || part == "select") made->select();
    };
    const bool reads = all || part == "score";
    result of = reading(timed(state, iterations, enqueue), reads ? made->summary_bytes() : 0);
    of.figures.push_back({"segments", made->segments()});
    return of;
  });
}

template <head_count Heads = head_count{}, class Policy>
void add_parts(const std::string& name, const Policy& policy, const text& says) {
  for (const std::string part : {"remember", "score", "select", "all"}) {
    if (part == "remember" && !decltype(Policy::ask)::sums) continue;
    for (const l2 state : {l2::cold, l2::warm}) add_part<Heads>(name, policy, says, part, state);
  }
}

void add_top_k(index lists, index n, index k, l2 state) {
  const std::string name = "top_k/rows:" + std::to_string(lists) + "/n:" + std::to_string(n) +
                           "/k:" + std::to_string(k) + "/" + name_of(state);
  add_row(name, 50, [=](int iterations) {
    const device_buffer<float> scores(std::int64_t{lists} * n);
    const device_buffer<index> ids(std::int64_t{lists} * k), counts(lists);
    fill_with_noise(scores.data(), scores.size(), 11);
    const auto enqueue = [&] {
      zoomr::launch_top_k(view<const float, 2>(scores.data(), {lists, n}), view<index, 2>(ids.data(), {lists, k}),
                          view<index>(counts.data(), {lists}), the_stream());
    };
    return reading(timed(state, iterations, enqueue), 4.0 * lists * n);
  });
}

}  // namespace

void add_choose_rows() {
  for (const index context : toy ? std::vector<index>{120} : std::vector<index>{4096, 32768, 131072}) {
    add_parts("sentence_kv", sentence_kv, long_prompt(context));
    add_parts("sentence_kv_f32", sentence_kv_f32, long_prompt(context));
    add_parts("quest", quest, long_prompt(context));
    add_parts("zoomr_focus", zoomr_focus, thoughts_after_prompt(context));
  }
  for (const index context : toy ? std::vector<index>{120} : std::vector<index>{2048, 8192, 32768, 131072}) {
    add_parts<quest_heads>("quest_published", quest_published, long_prompt(context));
  }
  for (const index lists : toy ? std::vector<index>{2} : std::vector<index>{8, 64}) {
    for (const index n : toy ? std::vector<index>{64} : std::vector<index>{64, 256, 1024, 4096, 16384, 65536}) {
      for (const index k : toy ? std::vector<index>{16} : std::vector<index>{16, 64, 256}) {
        if (k > n) continue;
        for (const l2 state : {l2::cold, l2::warm}) add_top_k(lists, n, k, state);
      }
    }
  }
}

}  // namespace zoomr_bench
