// SPDX-License-Identifier: Apache-2.0
// The names of zoomr beside those of the standard library. One is in both: errc.
#include "system_headers.hpp"

#include <future>
#include <ranges>

#include <zoomr/core/threads/thread_pool.hpp>
#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/presets/table.hpp>
#include <zoomr/zoomr.hpp>

using namespace std;
using namespace zoomr;

#include "drive.hpp"

/// A full cache refuses a second sequence.
bool refuses() {
  kv_cache<policy_of<presets::full>> cache{small_model, presets::full, config{.max_tokens = 16}};
  cache.open();
  try {
    cache.open();
  } catch (const error& fault) {
    return fault.code() == zoomr::errc::capacity;
  }
  return false;
}

int main() { return drive() && refuses() ? 0 : 1; }
