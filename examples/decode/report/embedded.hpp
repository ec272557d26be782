// SPDX-License-Identifier: Apache-2.0
// The files page.html, page.css and page.js as they stand in this folder: CMake writes embedded.cpp with them.
#pragma once

#include <string_view>  // std::string_view

namespace report::embedded {

extern const std::string_view html, css, script;

}  // namespace report::embedded
