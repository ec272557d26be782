// SPDX-License-Identifier: Apache-2.0
// Stands in for CUB's reductions and scans of a warp (zoomr/core/device/warp.cuh): joined in the order of the shuffles
// that CUB would use, in one meeting of the lanes, since a meeting is what takes time here.
#pragma once

#include <support/simt/intrinsics.hpp>

namespace simt {

/// What a lane brings to a reduction or a scan, and takes away.
template <class T, class Join>
struct brought {
  T value;
  const Join* join;
};

/// The first lane's answer is everybody's work: Work{}(all values, join).
template <class Work, class T, class Join>
void answer_for_all(const shown_values& shown, meeting& at) {
  at.undefined = shown.lanes != 0xffffffffu;
  if (at.undefined || at.source != 0) return;
  const auto of = [&](std::size_t lane) { return reinterpret_cast<brought<T, Join>*>(shown.of[lane]); };
  Work{}([&](std::size_t lane) -> T& { return of(lane)->value; }, *of(0)->join);
}

template <class Work, class T, class Join>
T meet_for_all(const char* name, T value, const Join& join, site at) {
  brought<T, Join> mine{value, &join};
  meet_warp({.name = name,
             .at = at,
             .lanes = 0xffffffffu,
             .value = reinterpret_cast<std::uintptr_t>(&mine),
             .source = lane(),
             .answer = &answer_for_all<Work, T, Join>});
  return mine.value;
}

struct reduce_lanes {
  template <class Values, class Join>
  void operator()(Values of, const Join& join) const {
    for (std::size_t apart = warp / 2; apart > 0; apart /= 2) {
      for (std::size_t l = 0; l < apart; ++l) of(l) = join(of(l), of(l + apart));
    }
    for (std::size_t l = 1; l < warp; ++l) of(l) = of(0);
  }
};
struct scan_lanes {
  template <class Values, class Join>
  void operator()(Values of, const Join& join) const {
    for (std::size_t apart = 1; apart < warp; apart *= 2) {
      for (std::size_t l = warp; l-- > apart;) of(l) = join(of(l - apart), of(l));
    }
  }
};

template <class T, class Join>
T warp_reduce(T value, Join join, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return meet_for_all<reduce_lanes>("warp_reduce", value, join, {file, line});
}

template <class T, class Join>
T warp_scan(T value, Join join, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return meet_for_all<scan_lanes>("warp_scan", value, join, {file, line});
}

}  // namespace simt
