// SPDX-License-Identifier: Apache-2.0
// Caches of policies that choose sentences.
#include <soak/subject.hpp>

namespace soak {

namespace small = zoomr_test::small;

void add_sentences(std::vector<sort>& all) {
  add<float, recent, at_once>(all, "sentence_kv", small::sentence_kv);
  add<zoomr::int8, frequent, at_once>(all, "sentence_kv_published", small::sentence_kv_published);
  add<zoomr::bfloat16, farthest, at_once>(all, "sentence_box", small::sentence_box);
#if defined(ZOOMR_SOAK_ALL)  // beside the presets
  add<zoomr::float16, recent, at_once>(all, "drifting", small::drifting);
#endif
}

}  // namespace soak
