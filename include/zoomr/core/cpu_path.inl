// SPDX-License-Identifier: Apache-2.0
// A path as a type, and work that is compiled for it.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

/// The first argument of the path's kernels.
struct this_path {
  static constexpr cpu_path value = cpu_path::ZOOMR_PATH;
};

/// Calls `work()`, compiled for the path.
template <class Work>
[[gnu::flatten]] void compiled(this_path, Work& work) {
  work();
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
