// SPDX-License-Identifier: Apache-2.0
// A whole step of a host cache for one token of one sequence, one thread.
//   host/step/POLICY/TYPE/context:N   begin, append, attend, commit; one layer of 32 heads, 8 KV heads, head_dim 128
//     full             everything
//     sentence_kv      sentences of 24, a choice at each token, a budget of 1,024 tokens
//     quest            the 64 best pages of 16 at each token, by boxes, in no dense layer
//     sentence_voters  sentences that one head finds by its keys, a choice at each token
//     zoomr_focus      thoughts of 400 with summaries of 30 after a prompt, a choice at each sentence's end
// bytes_per_second: keys and values of the tokens attended. Ceilings: of_read, of_fma, which count nothing else: they
// say how much of the step is attention. `attended`: tokens that a query attends; `times_full`: how many times as fast
// as `full` with the same context in this run. An iteration is one token, a repetition a sentence.
// Checked: one head of each KV head against attention in double over what the step says it has attended.
#include <map>  // std::map

#include "../support/host.hpp"
#include "../support/host_policies.hpp"
#include "../support/host_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

/// Seconds of full attention's steps by type and context, one for each repetition.
std::map<std::string, std::vector<double>>& full_times() {
  static std::map<std::string, std::vector<double>> all;
  return all;
}

template <class T, class Policy>
void add_policy(const std::string& policy_name, const Policy& policy, index_t context, bool thoughts) {
  using scene = host_scene<Policy, T>;
  const std::string place = std::string("/") + type_name<T>() + "/context:" + std::to_string(context);
  const std::string name = "host/step/" + policy_name + place;
  const bool full = policy_name == "full";
  add_row(name, 24, [=](int iterations) {
    const auto made = kept<scene>(name, [&] { return std::make_unique<scene>(policy, context, thoughts); });
    check_once(name, [&] { made->expect_right(full); });
    const std::int64_t before = made->stats().attended;
    std::vector<double> seconds;
    double sum = 0;
    for (int i = 0; i < iterations; ++i) {
      seconds.push_back(made->advance(1));
      sum += seconds.back();
    }
    const double attended = static_cast<double>(made->stats().attended - before) / iterations / scene::heads;
    const double bytes = 2.0 * attended * scene::kv_heads * scene::head_dim * sizeof(T);
    result of =
        against_ceilings(std::move(seconds), bytes, 2.0 * bytes / sizeof(T) * scene::group, bytes < (16 << 20), 1);
    of.figures.push_back({"attended", attended});
    std::vector<double>& of_full = full_times()[place];
    if (full) of_full.push_back(sum);
    if (!of_full.empty()) of.figures.push_back({"times_full", quantile(of_full, 0.5) / std::max(sum, 1e-12)});
    return of;
  });
}

template <class T>
void add_context(index_t context) {
  add_policy<T>("full", host_full, context, false);
  add_policy<T>("sentence_kv", host_sentence_kv, context, false);
  add_policy<T>("quest", host_quest, context, false);
  add_policy<T>("sentence_voters", host_sentence_voters, context, false);
  add_policy<T>("zoomr_focus", host_zoomr_focus, context, true);
}

}  // namespace

void host::add_step() {
  for (const index_t context : toy ? std::vector<index_t>{100} : std::vector<index_t>{1024, 4096, 8192, 32768}) {
    add_context<float>(context);
    add_context<bfloat16>(context);
    add_context<float16>(context);
  }
}

}  // namespace zoomr_bench
