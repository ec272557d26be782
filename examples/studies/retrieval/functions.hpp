// SPDX-License-Identifier: Apache-2.0
// Functions of a Python source: where they begin and end, and the names of their parameters.
#pragma once

#include <cstddef>      // std::size_t
#include <string>       // std::string
#include <string_view>  // std::string_view
#include <vector>       // std::vector

namespace decode::retrieval {

/// A parameter that can be given by its name.
struct parameter {
  std::string name;
  std::size_t end = 0;  // of the name in the function's text, in bytes
};

struct function {
  std::string name;
  std::string text;                   // from the first decorator to the last line, without the indentation of `def`
  std::vector<parameter> parameters;  // but self, cls, *args, **kwargs and those in front of a /
};

/// Those of modules and classes, in order, without those within functions. What is no function is passed over, and a
/// function whose signature does not end too.
std::vector<function> functions_in(std::string_view source);

}  // namespace decode::retrieval
