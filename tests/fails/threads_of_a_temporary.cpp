// SPDX-License-Identifier: Apache-2.0
// expect: executor: threads are not copied and must outlive the cache, so they cannot be a temporary: name them
#include <zoomr/cache/config.hpp>

namespace foreign {

struct pool {
  zoomr::index_t threads() const { return 2; }
  void operator()(zoomr::index_t, const zoomr::task_ref&) const {}
};

pool named;
const zoomr::config of_named{.threads = named};  // these compile
const zoomr::config cut_in_three{.threads = {named, 3}};

const zoomr::config gone{.threads = pool()};

}  // namespace foreign
