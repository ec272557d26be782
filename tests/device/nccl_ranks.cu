// SPDX-License-Identifier: Apache-2.0
// Caches whose ranks choose together over NCCL: that they compile and link, and what a communicator that is none says.
// It needs no device.
#include <zoomr/core/ranks/nccl_ranks.hpp>
#include <zoomr/zoomr.cuh>

#include <cstdio>   // std::puts
#include <cstring>  // std::strstr

namespace {

using namespace zoomr;

/// One token of a rank with all its layers, as an engine passes it.
template <const auto& policy>
void pass(const shape& own, ncclComm_t communicator, void* memory, const bfloat16* rows, bfloat16* out,
          stream_ref stream) {
  nccl_ranks ranks(communicator);
  config limits;
  limits.ranks.group = ranks;
  device_cache<policy_of<policy>, bfloat16, 64, 4, values_apart<64>, several_ranks> cache(own, policy, limits, memory,
                                                                                          stream);
  const token_id id = 1;
  auto step = cache.begin(cache.open(), view<const token_id>(&id, {1}));
  step.start(stream);
  const view<const bfloat16, 3> queries(rows, {1, own.heads, 64}), keys(rows, {1, own.kv_heads, 64});
  for (index_t layer = 0; layer < own.layers; ++layer) {
    step.attend(layer, queries, keys, keys, view<bfloat16, 3>(out, {1, own.heads, 64}), {}, stream);
  }
  step.commit(1, stream);
}

/// The communicator is asked first, and is none.
template <const auto& policy>
bool is_refused() {
  try {
    pass<policy>({2, 8, 2, 64}, nullptr, nullptr, nullptr, nullptr, nullptr);
  } catch (const error& why) {
    return why.code() == errc::ranks && std::strstr(why.what(), "the communicator does not say which rank") != nullptr;
  }
  return false;
}

}  // namespace

int main() {
  const bool refused = is_refused<presets::zoomr_focus>() && is_refused<presets::zoomr_one_pass>();
  std::puts(refused ? "ok" : "WRONG: a communicator that is none was taken");
  return refused ? 0 : 1;
}
