// SPDX-License-Identifier: Apache-2.0
// For what only the compiler's flags make different.
#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

#include <vector>  // std::vector

using namespace zoomr;

#include "drive.hpp"

int main() { return drive() ? 0 : 1; }
