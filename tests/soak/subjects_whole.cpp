// SPDX-License-Identifier: Apache-2.0
// Caches of policies that choose nothing, and one of each way to stay small.
#include <soak/subject.hpp>

namespace soak {

namespace small = zoomr_test::small;

void add_whole(std::vector<sort>& all) {
  add<float, recent, at_once>(all, "full", small::full);
  add<zoomr::bfloat16, farthest, at_once>(all, "window", small::window);
  add<zoomr::float16, frequent, at_once>(all, "lightthinker", small::lightthinker);
  add<zoomr::float8, recent, at_once>(all, "summary_only", small::summary_only);
}

}  // namespace soak
