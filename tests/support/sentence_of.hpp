// SPDX-License-Identifier: Apache-2.0
// What a call says where it must fail.
#pragma once

#include <zoomr/core/error.hpp>

#include <exception>  // std::exception
#include <string>     // std::string

namespace zoomr_test {

/// The sentence of the exception that a call throws; empty if it throws none. One of another kind goes on.
template <class Exception = std::exception, class Call>
std::string sentence_of(Call call) {
  try {
    call();
  } catch (const Exception& why) {
    return why.what();
  }
  return "";
}

/// That of the precondition that a call breaks.
template <class Call>
std::string mistake_of(Call call) {
  return sentence_of<zoomr::precondition_error>(call);
}

}  // namespace zoomr_test
