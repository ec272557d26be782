// SPDX-License-Identifier: Apache-2.0
// expect: kv_cache<Policy, T>: the policy comes first, as in kv_cache<policy_of<mine>, bfloat16>
#include <zoomr/zoomr.hpp>

namespace foreign {

using namespace zoomr;

using cache = kv_cache<bfloat16>;
constexpr auto size = sizeof(cache);

}  // namespace foreign
