// SPDX-License-Identifier: Apache-2.0
// What a call of a step takes before it does anything, one thread.
//   host/checks/layers:L   the checks of `append` and `attend` of L layers and of the commit behind them, divided by
//                          the calls; a thousand passes an iteration
// No bytes are counted and no ceiling applies.
// Checked: a right pass is accepted; keys that come after their layer's queries, queries without keys, keys of another
// shape and a layer that is left out are refused.
#include <zoomr/cache/planning/step_layers.hpp>
#include <zoomr/core/view.hpp>

#include "../support/check.hpp"
#include "../support/kernels.hpp"
#include "../support/rows.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

constexpr index_t head_dim = 128;
constexpr extents<3> of_queries{{1, 16, head_dim}}, of_keys{{1, 4, head_dim}};

void check_append(detail::step_layers& pass, index_t layer, const view<const float, 3>& keys) {
  pass.expect_layer("append", layer);
  expect_extents("append: keys are", keys, of_keys), expect_extents("append: values are", keys, of_keys);
  pass.expect_append(layer);
  pass.append(layer);
}

void check_attend(detail::step_layers& pass, index_t layer, const view<const float, 3>& queries) {
  pass.expect_layer("attend", layer);
  expect_extents("attend: queries are", queries, of_queries), expect_extents("attend: out is", queries, of_queries);
  pass.expect_queries("attend", layer);
  pass.see(layer);
}

void check_pass(detail::step_layers& pass, index_t layers) {
  const view<const float, 3> queries(nullptr, of_queries), keys(nullptr, of_keys);
  pass.clear();
  for (index_t layer = 0; layer < layers; ++layer) check_append(pass, layer, keys), check_attend(pass, layer, queries);
  pass.expect_complete("commit", 0, true);
}

template <class Call>
bool refused(Call call) {
  try {
    call();
    return false;
  } catch (const precondition_error&) {
    return true;
  }
}

void expect_right(index_t layers) {
  const view<const float, 3> queries(nullptr, of_queries), keys(nullptr, of_keys);
  detail::step_layers pass(layers, {});
  comparison compared("what is refused");
  compared.same(refused([&] { check_pass(pass, layers); }), false);
  compared.same(refused([&] { check_append(pass, layers - 1, keys); }), true);
  pass.clear();
  compared.same(refused([&] { check_attend(pass, 0, queries); }), true);
  compared.same(refused([&] { check_append(pass, 0, queries); }), true);
  compared.same(refused([&] { check_append(pass, layers, keys); }), true);
  check_append(pass, 0, keys), check_attend(pass, 0, queries);
  compared.same(refused([&] { pass.expect_complete("commit", 0, true); }), true);
}

}  // namespace

void host::add_checks() {
  for (const index_t layers : {32, 96}) {
    const std::string name = "host/checks/layers:" + std::to_string(layers);
    add_row(name, 24, [=](int iterations) {
      check_once(name, [&] { expect_right(layers); });
      detail::step_layers pass(layers, {});
      const int passes = toy ? 1 : 1000;
      result of;
      for (int i = 0; i < iterations; ++i) {
        const double from = now();
        for (int p = 0; p < passes; ++p) check_pass(pass, layers);
        of.seconds.push_back((now() - from) / (2.0 * passes * layers));
      }
      return of;
    });
  }
}

}  // namespace zoomr_bench
