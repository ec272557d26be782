// SPDX-License-Identifier: Apache-2.0
// expect: view: it owns nothing, so it cannot be made of a list in braces: name a vector or an array
#include <zoomr/cache/sequence.hpp>

namespace foreign {

constexpr zoomr::token_id named[] = {10, 11, 12};
constexpr zoomr::step_item of_named{{}, {named, {3}}};  // this compiles

const zoomr::step_item gone{{}, {10, 11, 12}};

}  // namespace foreign
