// SPDX-License-Identifier: Apache-2.0
// Whether weights are finite numbers: as fast as memory is read, since all of them are looked at.
#pragma once

#include <cstdint>  // std::int64_t

#include <zoomr/core/storage.hpp>

namespace decode {

/// The first of `count` numbers that is a NaN or an infinity; `count` if there is none.
std::int64_t first_not_finite(const float* numbers, std::int64_t count);
std::int64_t first_not_finite(const zoomr::bfloat16* numbers, std::int64_t count);
std::int64_t first_not_finite(const zoomr::float16* numbers, std::int64_t count);

}  // namespace decode
