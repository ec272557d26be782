// SPDX-License-Identifier: Apache-2.0
// Caches of policies that evict tokens.
#include <soak/subject.hpp>

namespace soak {

namespace small = zoomr_test::small;

void add_evicting(std::vector<sort>& all) {
  add<zoomr::float16, recent, at_once>(all, "snapkv", small::snapkv);
  add<zoomr::float8, farthest, at_once>(all, "h2o", small::h2o);
  add<zoomr::int8, recent, at_once>(all, "r_kv", small::r_kv);
  add<float, frequent, at_once>(all, "raas", small::raas);
  add<zoomr::bfloat16, recent, at_once>(all, "evicting", small::evicting);
}

}  // namespace soak
