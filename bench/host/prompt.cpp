// SPDX-License-Identifier: Apache-2.0
// Attention of a prompt in chunks of 512 under `full`, one thread.
//   host/prompt/PATH/TYPE/tokens:N   one layer of 32 heads, 8 KV heads, head_dim 128; PATH is that of the processor
// `of_fma` is a share of what fused multiply-adds reach. An iteration is a prompt.
// Checked: some queries of the last chunk against attention in double.
#include "../support/host.hpp"
#include "../support/host_prompt.hpp"
#include "../support/kernels.hpp"

namespace zoomr_bench {

namespace {

using namespace zoomr;

template <class T>
void add_prompt(index_t tokens) {
  const std::string name =
      std::string("host/prompt/") + statistics::cpu_path() + "/" + type_name<T>() + "/tokens:" + std::to_string(tokens);
  add_row(name, 3, [=](int iterations) {
    const auto made =
        kept<host_prompt<T>>(name, [&] { return std::make_unique<host_prompt<T>>(tokens, toy ? 25 : 512); });
    check_once(name, [&] { made->expect_right(); });
    result of;
    for (int i = 0; i < iterations; ++i) of.seconds.push_back(made->run());
    const double median = std::max(quantile(of.seconds, 0.5), 1e-9);
    of.figures = {{"of_fma", made->flops() / median / the_ceilings().flops}};
    of.tokens = tokens;
    return of;
  });
}

}  // namespace

void host::add_prompt() {
  constexpr index_t tokens = toy ? 100 : 4096;
  zoomr_bench::add_prompt<float>(tokens);
  zoomr_bench::add_prompt<bfloat16>(tokens);
  zoomr_bench::add_prompt<float16>(tokens);
  zoomr_bench::add_prompt<int8>(tokens);
}

}  // namespace zoomr_bench
