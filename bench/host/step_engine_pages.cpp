// SPDX-License-Identifier: Apache-2.0
// A whole step for one token of one sequence in the pages of an engine, beside the same step in the cache's own pages.
//   host/step_engine_pages/POLICY/LAYOUT/context:N   as host/step, bfloat16
//     LAYOUT   NHD or HND, and the tokens of a page; they lie in the order of the block table, or shuffled
// An iteration is a token in either cache, in turn; its time is that of the engine's pages. `times_own`: the median of
// these divided by the median of the others, in this repetition.
// Checked: as host/step, in the engine's pages.
#include "../support/host.hpp"
#include "../support/host_policies.hpp"
#include "../support/host_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

template <class Policy>
void add_layout(const std::string& policy_name, const Policy& policy, const engine_layout& lies, index_t context) {
  const auto moved = with_placement(policy, engine_pages{});
  using own_scene = host_scene<Policy, bfloat16>;
  using engine_scene = host_scene<std::remove_const_t<decltype(moved)>, bfloat16>;
  const std::string name =
      "host/step_engine_pages/" + policy_name + "/" + lies.name + "/context:" + std::to_string(context);
  add_row(name, 24, [=](int iterations) {
    const auto engine = kept<engine_scene>(
        name, [&] { return std::make_unique<engine_scene>(moved, context, false, executor{}, lies); });
    const auto own =
        kept<own_scene>(name + "/own", [&] { return std::make_unique<own_scene>(policy, context, false); });
    check_once(name, [&] { engine->expect_right(policy_name == "full"); });
    const std::int64_t before = engine->stats().attended;
    std::vector<double> seconds, of_own;
    for (int i = 0; i < iterations; ++i) {
      of_own.push_back(own->advance(1));
      seconds.push_back(engine->advance(1));
    }
    const double ratio = quantile(seconds, 0.5) / std::max(quantile(of_own, 0.5), 1e-12);
    const double attended = static_cast<double>(engine->stats().attended - before) / iterations / engine_scene::heads;
    const double bytes = 2.0 * attended * engine_scene::kv_heads * engine_scene::head_dim * sizeof(bfloat16);
    result of = against_ceilings(std::move(seconds), bytes, 2.0 * bytes / sizeof(bfloat16) * engine_scene::group,
                                 bytes < (16 << 20), 1);
    of.figures.push_back({"attended", attended});
    of.figures.push_back({"times_own", ratio});
    return of;
  });
}

}  // namespace

void host::add_step_engine_pages() {
  constexpr engine_layout layouts[] = {{"HND:16", true, 16},
                                       {"NHD:16", false, 16},
                                       {"NHD:64", false, 64},
                                       {"NHD:1", false, 1},
                                       {"NHD:1:shuffled", false, 1, true}};
  for (const index_t context : toy ? std::vector<index_t>{100} : std::vector<index_t>{4096, 32768}) {
    for (const engine_layout& lies : layouts) {
      add_layout("full", host_full, lies, context);
      add_layout("sentence_kv", host_sentence_kv, lies, context);
    }
  }
}

}  // namespace zoomr_bench
