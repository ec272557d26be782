// SPDX-License-Identifier: Apache-2.0
// Caches of policies that choose pages.
#include <soak/subject.hpp>

namespace soak {

namespace small = zoomr_test::small;

void add_pages(std::vector<sort>& all) {
  add<zoomr::float8, recent, at_once>(all, "quest", small::quest);
  add<zoomr::int8, farthest, at_once>(all, "arkvale", small::arkvale);
  add<float, frequent, beside>(all, "infllm", small::infllm);
  add<zoomr::bfloat16, recent, at_once>(all, "shadowkv", small::shadowkv);
}

}  // namespace soak
