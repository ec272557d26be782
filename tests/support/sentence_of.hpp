// SPDX-License-Identifier: Apache-2.0
// What a call says where it must fail.
#pragma once

#include <exception>  // std::exception
#include <string>     // std::string

namespace zoomr_test {

/// The sentence of the exception that a call throws; empty if it throws none.
template <class Call>
std::string sentence_of(Call call) {
  try {
    call();
  } catch (const std::exception& why) {
    return why.what();
  }
  return "";
}

}  // namespace zoomr_test
