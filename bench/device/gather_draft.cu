// SPDX-License-Identifier: Apache-2.0
// gather_attend over drafts: several query tokens of a sequence that attend to the same tokens.
//   attend/TYPE/group:G/sequences:S/tokens:N/ranges_of_24/draft:Q/together     in one row for each KV head
//                                                              /each_alone   in rows of their own
// Shapes as in gather_attend.cu. bytes_per_second: what is attended by all counts once. Ceiling: of_copy.
// Checked: as gather_attend.cu, the first head of the first token and the last head of the last one.
#include "../support/gather_scene.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

template <class T, index_t Group, class Tokens>
void add_draft(const problem& p, const std::string& how) {
  const std::string name = "attend/" + std::string(type_name<T>()) + "/group:" + std::to_string(Group) +
                           "/sequences:" + std::to_string(p.sequences) + "/tokens:" + std::to_string(p.tokens) +
                           "/ranges_of_24/draft:" + std::to_string(p.draft) + how;
  add_row(name, 30, [=](int iterations) {
    problem split = p;
    split.splits = splits_for(p.sequences * shared_heads::kv_heads, p.tokens);
    const auto held = the_pages<T>();
    const gather_scene<T, Group, Tokens> made(split, *held);
    check_once(name, [&] { made.expect_right(); });
    result of = reading(timed(l2::cold, iterations, [&] { made.enqueue(); }), made.bytes(), p.sequences * p.draft);
    of.figures.push_back({"splits", split.splits});
    return of;
  });
}

template <class T, index_t Group>
void add_both(const problem& p) {
  add_draft<T, Group, zoomr::tile_of_ranges>(p, "/together");
  add_draft<T, Group, zoomr::tokens_of_ranges>(p, "/each_alone");
}

}  // namespace

void device::add_gather_draft() {
  for (const index_t sequences : toy ? std::vector<index_t>{1} : std::vector<index_t>{1, 8}) {
    const problem of{.sequences = sequences, .tokens = toy ? 90 : 2048, .scattered = true, .draft = 4};
    problem of_two = of;
    of_two.draft = 2;
    add_both<zoomr::bfloat16, 4>(of);
    add_both<zoomr::bfloat16, 8>(of_two);
    add_both<zoomr::float8, 4>(of);
  }
}

}  // namespace zoomr_bench
