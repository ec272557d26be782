// SPDX-License-Identifier: Apache-2.0
// L7. Everything of the host half but the placement `tiered` (policy/placement/tiered.hpp), which would make each source
// that includes this a third of a second slower to compile.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/refresh/on_drift.hpp>
#include <zoomr/policy/select/top_p.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>
#include <zoomr/presets/table.hpp>
