// SPDX-License-Identifier: Apache-2.0
// A device for machines without one: runs kernels on the host as they are, one fiber for each thread, one block after
// the other. It is a test tool. It finds, with a fault:
//   - accesses of a shared array that no barrier orders, whoever comes first in this run; reads of what nobody, or only
//     an earlier block, has written, or of what an asynchronous copy has not brought yet; indices out of range
//   - threads that wait for each other, that are at different barriers, or that go on for ever
//   - collectives that not all named lanes reach, and values asked of lanes that take no part
//   - launches that no device would start
//   - copies to the device whose source changes, or goes, before they are made; mistakes with captured streams
// AddressSanitizer and UBSan find the rest of what host code can do wrong. Threads run until they must wait, in
// forward, reverse or random order, and blocks come so (simt::how; of blocks also the variable ZOOMR_SIMT_BLOCKS:
// `forward`, `reverse`, `random`, or `any:SEED`, another of these for each launch). A barrier can be left out to see
// who needs it (support/mutations.hpp). It proves nothing about global memory that threads share (fences do nothing,
// blocks never run at the same time), nor about a `__shared__` variable that is no shared_array, nor about speed.
// Streams do their work at once, as late as can be, or at any time between (simt::how.streams, or the variable
// ZOOMR_SIMT_STREAMS: `early`, `late`, `random:SEED`; support/simt/streams.hpp). It is stricter than a device where
// that forgives: equal values written by two threads are a fault, and so is the source of a pending copy that changes.
// Compile with -DZOOMR_SIMT='"support/simt.hpp"'.
#pragma once

#include <support/simt/intrinsics.hpp>
#include <support/simt/meeting.hpp>
#include <support/simt/shared.hpp>
#include <support/simt/streams.hpp>
#include <support/simt/warp.hpp>

#include <cmath>  // std::exp2

namespace simt {

inline float quick_exp2(float x) { return std::exp2(x); }
inline float quick_max(float a, float b) { return b > a || a != a ? b : a; }  // compiled where std::fmax is called

}  // namespace simt
