// SPDX-License-Identifier: Apache-2.0
// A policy as a command line says it.
#pragma once

#include <zoomr/core/types.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

namespace decode {

using zoomr::index_t;

/// A preset, and what is changed of it.
struct policy_choice {
  std::string name;
  index_t budget = 0;                 // 0: the preset's own
  std::vector<std::string> settings;  // component.field=value
};

}  // namespace decode
