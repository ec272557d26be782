// SPDX-License-Identifier: Apache-2.0
// L3. The roles of a policy: one question each. A component is a small regular value that answers one of
// them; `using role = ...` names it, so that compose() takes components in any order.
#pragma once

#include <concepts>     // std::regular
#include <type_traits>  // std::is_const_v, std::is_trivially_copyable_v, std::remove_const_t, ...

namespace zoomr::inline v0 {

namespace role {
struct segmenter {};     ///< where does a segment end?
struct evictor {};       ///< which tokens does a KV lane keep?
struct summarizer {};    ///< what stands for it?
struct query_source {};  ///< by which query are segments scored?
struct scorer {};        ///< how well does it match?
struct aggregator {};    ///< who must agree?
struct selector {};      ///< what is taken?
struct refresh {};       ///< when is that redone?
struct zones {};         ///< what else is attended?
struct placement {};     ///< where does it live?
}  // namespace role

/// A value: copied to a kernel, compared, printed. State lives in the cache, never here.
///
/// Optional members, and what holds without them:
///   static constexpr const char* name            "component"; what a report calls it
///   constexpr const char* problem() const        nullptr, or a sentence: which option cannot work
///   static constexpr void each_field(auto& self, auto visit)
///                                                no options, or visit("option", self.option) for each
///   static constexpr bool reads_classes          false; true if it reads the classes of tokens: a cache of such a
///                                                policy needs config.classes
///
/// The concepts of the roles (policy/concepts.hpp) take `Value`, the type of the object whose members they check:
/// `const T`, so that members must be const.
template <class T>
concept component = std::regular<T> && std::is_trivially_copyable_v<T> && requires {
  typename T::role;
};

template <class T>
concept class_reader = T::reads_classes;

/// A component's name, or "component".
template <class T>
constexpr const char* name_of() {
  if constexpr (requires { T::name; }) return T::name;
  return "component";
}

/// nullptr, or a sentence: which option of a component cannot work.
template <class T>
constexpr const char* problem_of(const T& part) {
  if constexpr (requires { part.problem(); }) return part.problem();
  return nullptr;
}

/// visit(name, option) for each option of a component.
template <class T, class Visit>
constexpr void each_field_of(T& part, Visit visit) {
  using component_type = std::remove_const_t<T>;
  if constexpr (requires { component_type::each_field(part, visit); }) component_type::each_field(part, visit);
}

}  // namespace zoomr::inline v0
