// SPDX-License-Identifier: Apache-2.0
// parts POLICY: the calls of 24 tokens behind a context of 640, and of the prompt's last chunk before them, each in a
// function of its own, so that callgrind tells them apart; and prints which instructions they used. One layer of 8
// heads, 2 KV heads, 64 dimensions, bfloat16.
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

#include <array>        // std::array
#include <cstdio>       // std::fputs, std::puts
#include <optional>     // std::optional
#include <string_view>  // std::string_view
#include <vector>       // std::vector

// What is counted. None of them may be inlined, or made into one.
#define ZOOMR_PART(name)                                 \
  template <class Work>                                  \
  [[gnu::noinline, gnu::noclone]] void name(Work work) { \
    work();                                              \
    asm volatile("# " #name ::: "memory");               \
  }
ZOOMR_PART(part_prompt_attend)
ZOOMR_PART(part_prompt_commit)
ZOOMR_PART(part_begin)
ZOOMR_PART(part_append)
ZOOMR_PART(part_attend)
ZOOMR_PART(part_second_pass)
ZOOMR_PART(part_commit)

namespace {

using namespace zoomr;

constexpr shape model{1, 8, 2, 64};
constexpr index_t chunk = 128, prompt = 512, context = 640, counted = 24, sentence = 24, thought = 28, summary = 6;
constexpr std::array<token_class, 4> classes{token_class::plain, token_class::delimiter, token_class::summary_begin,
                                             token_class::summary_end};

// Sentences; behind the prompt thoughts too, each with a summary.
token_id id_at(index_t position) {
  const index_t of_pair = (position - prompt) % (thought + summary);
  if (position >= prompt && of_pair == thought) return 2;
  if (position >= prompt && of_pair == thought + summary - 1) return 3;
  return (position + 1) % sentence == 0 ? 1 : 0;
}

template <class Policy>
void run(const Policy& policy) {
  config limits;
  limits.max_tokens = context + counted, limits.max_batched_tokens = chunk, limits.classes = classes;
  kv_cache<Policy, bfloat16> cache(model, policy, limits);
  const sequence seq = cache.open();
  std::vector<float> numbers(std::size_t{chunk} * (8 + 1) * 64), out(std::size_t{chunk} * 8 * 64);
  std::uint32_t state = 1;
  for (float& number : numbers) {
    state = state * 1664525u + 1013904223u;
    number = static_cast<float>(static_cast<std::int32_t>(state) >> 8) / float{1 << 23};
  }
  for (index_t at = 0; at < context + counted;) {
    const bool in_prompt = at < prompt;
    const bool last = at + chunk == prompt;
    const bool counts = at >= context;
    const index_t tokens = in_prompt ? chunk : 1;
    std::vector<token_id> ids;
    for (index_t t = 0; t < tokens; ++t) ids.push_back(id_at(at + t));
    const float* const from = numbers.data() + at % 64;
    const view<const float, 3> keys(from, {{tokens, model.kv_heads, model.head_dim}});
    const view<const float, 3> queries(from, {{tokens, model.heads, model.head_dim}});
    const view<float, 3> outputs(out.data(), {{tokens, model.heads, model.head_dim}});
    std::optional<typename kv_cache<Policy, bfloat16>::step_type> step;
    const auto begin = [&] { step.emplace(cache.begin(seq, view<const token_id>(ids), last)); };
    const auto append = [&] { step->append(0, keys, keys); };
    const auto attend = [&] { step->attend(0, queries, outputs); };
    const auto commit = [&] { step->commit(tokens); };
    bool again = false;
    if (in_prompt) {
      begin(), append();
      last ? part_prompt_attend(attend) : step->observe(0, queries);
      last ? part_prompt_commit(commit) : commit();
    } else if (counts) {
      part_begin(begin), part_append(append), part_attend(attend);
      part_second_pass([&] { again = step->needs_second_pass(1); });
      if (again) part_append(append), part_attend(attend);
      part_commit(commit);
    } else {
      begin(), append(), attend();
      if (step->needs_second_pass(1)) append(), attend();
      commit();
    }
    at += tokens;
  }
}

}  // namespace

int main(int count, char** given) {
  bool found = false;
  const std::string_view name = count == 2 ? given[1] : "";
  const auto try_one = [&](std::string_view known, const auto& policy) {
    if (name == known) found = true, run(policy);
  };
  try_one("full", presets::full);
  try_one("sentence_kv", presets::sentence_kv_with(256));
  try_one("zoomr_focus", presets::zoomr_focus);
  try_one("snapkv", presets::snapkv_with(256));
  if (!found) std::fputs("parts full|sentence_kv|zoomr_focus|snapkv\n", stderr);
  std::puts(statistics::cpu_path());
  return found ? 0 : 2;
}
