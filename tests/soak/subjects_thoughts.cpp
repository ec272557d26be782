// SPDX-License-Identifier: Apache-2.0
// Caches of ZoomR and what is built like it.
#include <soak/subject.hpp>

namespace soak {

namespace small = zoomr_test::small;

void add_thoughts(std::vector<sort>& all) {
  add<float, farthest, at_once>(all, "zoomr_one_pass", small::zoomr_one_pass);
  add<float, farthest, at_once>(all, "zoomr_second_pass", small::zoomr_second_pass);
  add<zoomr::int8, recent, at_once>(all, "zoomr_mass", small::zoomr_mass);
  add<zoomr::bfloat16, frequent, at_once>(all, "zoomr_focus", small::zoomr_focus);
  add<zoomr::float16, recent, beside>(all, "zoomr_follow", small::zoomr_follow);
#if defined(ZOOMR_SOAK_ALL)  // beside the presets
  add<zoomr::float8, farthest, at_once>(all, "by_layer", small::by_layer);
#endif
}

}  // namespace soak
