// SPDX-License-Identifier: Apache-2.0
// A whole step for one token whose model lists itself what it reads, by index keys of its own.
//   host/step_listed/RULE/context:N   bfloat16, one layer of 32 heads, 8 KV heads, head_dim 128
//     dsa   64 index heads of 128, 2,048 tokens          msa   an index head for each KV head, 16 blocks of 128
//     qsa   4 index heads of 128, 512 blocks of 4
// An iteration is a token in the two caches, of keys and of index keys, and the same in a cache that attends
// everything, in turn; its time is that of the former. `times_full`: the median of the latter divided by its median;
// `times_index`: how much of its time is the index's. Checked: one head of each KV head against attention in double
// over what is listed.
#include <zoomr/index_lists.hpp>

#include "../support/host.hpp"
#include "../support/host_policies.hpp"
#include "../support/host_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

/// A cache of keys and values, and one of index keys, with a context.
class listed_scene {
  using cache_type = kv_cache<std::remove_const_t<decltype(host_full)>, bfloat16>;

 public:
  static constexpr index_t head_dim = toy ? 16 : 128, kv_heads = toy ? 2 : 8, heads = 4 * kv_heads;

  listed_scene(const index_rule& rule, index_t index_heads, bool each_alone, index_t context)
      : rule_(rule),
        lists_(each_alone ? index_heads : 1),
        index_model_{1, index_heads, 1, head_dim, 8, true},
        cache_(model_, host_full, limits(context)),
        index_(index_model_, host_full, limits(context)),
        seq_(cache_.open()),
        in_index_(index_.open()) {
    while (position_ < context) {
      const index_t count = std::min<index_t>(256, context - position_);
      const std::vector<token_id> ids(static_cast<std::size_t>(count));
      const bool ends = position_ + count == context;
      auto step = cache_.begin(seq_, view<const token_id>(ids), ends);
      auto index_step = index_.begin(in_index_, view<const token_id>(ids), ends);
      append(step, index_step, count);
      if (ends) {
        step.observe(0, rows(queries_, count, heads, 3)), index_step.observe(0, rows(of_index_, count, index_heads, 5));
      }
      step.commit(count), index_step.commit(count);
      position_ += count;
    }
  }

  /// A token, that stays uncommitted.
  /// @return  seconds of all, and of the index
  std::pair<double, double> advance() {
    const std::vector<token_id> ids(1);
    const auto queries = rows(queries_, 1, heads, 3), of_index = rows(of_index_, 1, index_model_.heads, 5);
    listed_.resize(static_cast<std::size_t>(lists_ * rule_.most_tokens()));
    out_.resize(static_cast<std::size_t>(heads * head_dim));
    const view<index_t, 3> listed(listed_.data(), {1, lists_, rule_.most_tokens()});
    const double from = now();
    auto index_step = index_.begin(in_index_, view<const token_id>(ids), false);
    auto step = cache_.begin(seq_, view<const token_id>(ids), false);
    append(step, index_step, 1);
    const double before = now();
    list_by_index(index_step, 0, rule_, of_index, {}, listed);
    const double after = now();
    attend_listed(step, 0, queries, listed, {out_.data(), {1, heads, head_dim}});
    return {now() - from, after - before};
  }

  /// @throws wrong
  void expect_right() {
    advance();
    for (index_t kv_head = 0; kv_head < kv_heads; ++kv_head) {
      const index_t* const list = listed_.data() + (lists_ == 1 ? 0 : kv_head) * rule_.most_tokens();
      const auto count = static_cast<index_t>(std::find(list, list + rule_.most_tokens(), -1) - list);
      const auto number = [&](index_t t, index_t d, std::uint32_t stream) {
        return to_float(stored_noise<bfloat16>((std::int64_t{list[t]} * kv_heads + kv_head) * head_dim + d, stream));
      };
      const auto query = queries_.begin() + 4 * kv_head * head_dim;
      const auto expected = attention(
          {query, query + head_dim}, count, [&](index_t t, index_t d) { return number(t, d, 1); },
          [&](index_t t, index_t d) { return number(t, d, 2); });
      const float* const given = out_.data() + 4 * kv_head * head_dim;
      expect_outputs(expected, [&](index_t d) { return given[d]; },
                     {.of_weights = tolerance::of_path<bfloat16>(head_dim)});
    }
  }

 private:
  static constexpr shape model_{1, heads, kv_heads, head_dim};

  static config limits(index_t context) {
    config made;
    made.max_tokens = context + 1;
    return made;
  }
  view<const float, 3> rows(std::vector<float>& numbers, index_t tokens, index_t of, std::uint32_t stream) const {
    const std::int64_t each = std::int64_t{of} * head_dim;
    numbers.resize(static_cast<std::size_t>(tokens * each));
    for (std::int64_t i = 0; i < tokens * each; ++i) {
      numbers[static_cast<std::size_t>(i)] = as_engine_has<bfloat16>(noise_at(position_ * each + i, stream));
    }
    return {numbers.data(), {tokens, of, head_dim}};
  }
  template <class Step>
  void append(Step& step, Step& index_step, index_t count) {
    step.append(0, rows(keys_, count, kv_heads, 1), rows(values_, count, kv_heads, 2));
    index_step.append(0, rows(index_keys_, count, 1, 4));
  }

  index_rule rule_;
  index_t lists_;
  shape index_model_;
  cache_type cache_, index_;
  sequence seq_, in_index_;
  std::vector<float> keys_, values_, queries_, index_keys_, of_index_, out_;
  std::vector<index_t> listed_;
  index_t position_ = 0;
};

void add_rule(const std::string& rule_name, const index_rule& rule, index_t index_heads, bool each_alone,
              index_t context) {
  using full_scene = host_scene<std::remove_const_t<decltype(host_full)>, bfloat16>;
  const std::string name = "host/step_listed/" + rule_name + "/context:" + std::to_string(context);
  add_row(name, 24, [=](int iterations) {
    const auto listed = kept<listed_scene>(
        name, [&] { return std::make_unique<listed_scene>(rule, index_heads, each_alone, context); });
    const auto full =
        kept<full_scene>(name + "/full", [&] { return std::make_unique<full_scene>(host_full, context, false); });
    check_once(name, [&] { listed->expect_right(); });
    std::vector<double> seconds, of_full;
    double index = 0, all = 0;
    for (int i = 0; i < iterations; ++i) {
      of_full.push_back(full->advance(1));
      const auto [step, of_index] = listed->advance();
      seconds.push_back(step), all += step, index += of_index;
    }
    const double ratio = quantile(of_full, 0.5) / std::max(quantile(seconds, 0.5), 1e-12);
    const double tokens = std::min(context, rule.most_tokens());
    const double bytes = 2.0 * tokens * listed_scene::kv_heads * listed_scene::head_dim * sizeof(bfloat16);
    const double index_bytes = 1.0 * context * listed_scene::head_dim * sizeof(bfloat16);
    result of = against_ceilings(std::move(seconds), bytes + index_bytes,
                                 4.0 * bytes + index_bytes * static_cast<double>(index_heads), false, 1);
    of.figures.push_back({"times_full", ratio});
    of.figures.push_back({"times_index", index / std::max(all, 1e-12)});
    return of;
  });
}

}  // namespace

void host::add_step_listed() {
  for (const index_t context : toy ? std::vector<index_t>{100} : std::vector<index_t>{8192, 32768}) {
    const index_t part = toy ? 32 : 1;  // of a rule's blocks
    const auto of = [&](index_rule rule) {
      rule.most = std::max(1, rule.most / part);
      return rule;
    };
    add_rule("dsa", of(dsa_rule), toy ? 4 : 64, false, context);
    add_rule("msa", of(msa_rule), listed_scene::kv_heads, true, context);
    add_rule("qsa", of(qsa_rule), 4, false, context);
  }
}

}  // namespace zoomr_bench
