// SPDX-License-Identifier: Apache-2.0
// L7. Everything of the host half.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/policy/refresh/on_drift.hpp>
#include <zoomr/policy/select/top_p.hpp>
#include <zoomr/policy/summarize/stored_as.hpp>
#include <zoomr/presets/arkvale.hpp>
#include <zoomr/presets/full.hpp>
#include <zoomr/presets/h2o.hpp>
#include <zoomr/presets/infllm.hpp>
#include <zoomr/presets/lightthinker.hpp>
#include <zoomr/presets/quest.hpp>
#include <zoomr/presets/r_kv.hpp>
#include <zoomr/presets/raas.hpp>
#include <zoomr/presets/sentence_box.hpp>
#include <zoomr/presets/sentence_kv.hpp>
#include <zoomr/presets/shadowkv.hpp>
#include <zoomr/presets/snapkv.hpp>
#include <zoomr/presets/window.hpp>
#include <zoomr/presets/zoomr_thoughts.hpp>
