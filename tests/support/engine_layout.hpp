// SPDX-License-Identifier: Apache-2.0
// Where an engine of the tests keeps its pages.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string

namespace zoomr_test {

/// How an engine's pool lies in memory.
struct engine_layout {
  zoomr::index_t page_tokens = 16;
  bool heads_first = false;    // HND; else NHD
  bool together = false;       // keys and values of a layer are one array, page by page; else two arrays
  zoomr::index_t padding = 0;  // numbers behind each page that belong to nobody

  std::string name() const {
    return std::string(heads_first ? "HND" : "NHD") + (together ? ", together" : "") + ", pages of " +
           std::to_string(page_tokens);
  }
};

}  // namespace zoomr_test
