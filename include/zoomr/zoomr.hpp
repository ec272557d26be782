// SPDX-License-Identifier: Apache-2.0
// L7. Everything of the host half but the placement `tiered` (policy/placement/tiered.hpp), which takes a third of a
// second more to compile, and what only some engines call: grouped_kv_cache.hpp, vocabulary.hpp.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/aggregate/pooled_mass.hpp>
#include <zoomr/policy/aggregate/weighted.hpp>
#include <zoomr/policy/segment/code_segments.hpp>
#include <zoomr/policy/select/top_p.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>
#include <zoomr/presets/table.hpp>
