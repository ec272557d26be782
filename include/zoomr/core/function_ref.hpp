// SPDX-License-Identifier: Apache-2.0
// L1. A callable of any type as an argument of code that is compiled once for all of them.
#pragma once

#include <memory>       // std::addressof
#include <type_traits>  // std::is_invocable_r_v, std::is_same_v, std::remove_cvref_t, std::remove_reference_t
#include <utility>      // std::forward

namespace zoomr::inline v0 {

template <class Signature>
class function_ref;

/// A reference to a callable, as std::function_ref of C++26: it owns nothing, and is valid as long as the callable is;
/// of a temporary, during the call that it is an argument of.
template <class Result, class... Arguments>
class function_ref<Result(Arguments...)> {
 public:
  template <class Function>
  requires(!std::is_same_v<std::remove_cvref_t<Function>, function_ref> &&
           std::is_invocable_r_v<Result, Function&, Arguments...>)
      function_ref(Function&& function)  // NOLINT: implicit, for arguments
      : function_(const_cast<void*>(static_cast<const void*>(std::addressof(function)))),
        call_([](void* called, Arguments... arguments) -> Result {
          return (*static_cast<std::remove_reference_t<Function>*>(called))(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(function_, std::forward<Arguments>(arguments)...); }

 private:
  void* function_;
  Result (*call_)(void*, Arguments...);
};

}  // namespace zoomr::inline v0
