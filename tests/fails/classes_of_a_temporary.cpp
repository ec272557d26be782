// SPDX-License-Identifier: Apache-2.0
// expect: config: classes are not copied and must outlive the cache, so they cannot be a temporary: name them
#include <zoomr/zoomr.hpp>

#include <array>
#include <vector>

namespace foreign {

const std::vector<zoomr::token_class> named(8);
const std::array<zoomr::token_class, 8> array{};

// These compile: what they name is there for as long as the caller likes.
const zoomr::config vector_that_stays{.classes = named};
const zoomr::config array_that_stays{.classes = array};
const zoomr::config view_of_one{.classes = zoomr::view<const zoomr::token_class>(named)};
const zoomr::config span_of_one{.classes = std::span(named)};

const zoomr::config gone{.classes = std::vector<zoomr::token_class>(8)};

}  // namespace foreign
