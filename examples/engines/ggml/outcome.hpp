// SPDX-License-Identifier: Apache-2.0
// How a call has ended: what is thrown inside becomes a status and a sentence.
#pragma once

#include <zoomr/core/error.hpp>

#include <new>     // std::bad_alloc
#include <string>  // std::string

#include "../../decode/input_error.hpp"
#include "sequences.hpp"
#include "zoomr_ggml.h"

namespace adaptor {

/// How a call has ended.
struct outcome {
  int status = ZOOMR_GGML_SUCCESS;
  std::string sentence;
};

inline int status_of(zoomr::errc code) {
  switch (code) {
    case zoomr::errc::capacity:
      return ZOOMR_GGML_NO_ROOM;
    case zoomr::errc::rollback_depth:
    case zoomr::errc::not_held:
      return ZOOMR_GGML_NOT_KEPT;
    default:
      return ZOOMR_GGML_FAILED;
  }
}

/// Does the work of a call; what it throws becomes a status and a sentence.
template <class Work>
outcome told(Work work) {
  try {
    work();
    return {};
  } catch (const zoomr::error& why) {
    return {status_of(why.code()), why.what()};
  } catch (const zoomr::precondition_error& why) {
    return {ZOOMR_GGML_REFUSED, why.what()};
  } catch (const decode::input_error& why) {
    return {ZOOMR_GGML_REFUSED, why.what()};
  } catch (const refusal& why) {
    return {ZOOMR_GGML_REFUSED, why.what()};
  } catch (const std::bad_alloc&) {
    return {ZOOMR_GGML_FAILED, "there is no memory left"};
  } catch (const std::exception& why) {
    return {ZOOMR_GGML_FAILED, why.what()};
  } catch (...) {
    return {ZOOMR_GGML_FAILED, "an unknown failure"};
  }
}
/// The same, where there may be no memory for a sentence.
template <class Work>
outcome done(Work work) noexcept {
  try {
    return told(work);
  } catch (...) {
    return {ZOOMR_GGML_FAILED, {}};
  }
}

}  // namespace adaptor
