// SPDX-License-Identifier: Apache-2.0
// A rotary embedding that rounds nothing: each pair of dimensions is turned by quarters.
#pragma once

#include <zoomr/core/view.hpp>

#include <utility>  // std::exchange

namespace zoomr_test {

/// Pair i by i + 1 quarters for each position. Of keys in float, bfloat16 or float16 each bit is as if they had been
/// turned to their last position at once.
class quarter_turn {
 public:
  explicit quarter_turn(zoomr::index_t distance) : distance_(distance) {}

  zoomr::index_t distance() const { return distance_; }
  void operator()(zoomr::index_t, zoomr::view<float> row) const {
    const zoomr::index_t pairs = row.size() / 2;
    for (zoomr::index_t i = 0; i < pairs; ++i) {
      for (zoomr::index_t quarters = ((distance_ % 4 + 4) * (i + 1)) % 4; quarters > 0; --quarters) {
        row[i + pairs] = std::exchange(row[i], -row[i + pairs]);
      }
    }
  }

 private:
  zoomr::index_t distance_;
};

}  // namespace zoomr_test
