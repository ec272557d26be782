// SPDX-License-Identifier: Apache-2.0
// Names of zoomr, where system headers have defined others as macros.
#include "system_headers.hpp"
// clang-format off
#include "hostile.hpp"
// clang-format on

#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

using namespace zoomr;

#include "drive.hpp"

int main() { return drive() ? 0 : 1; }
