// SPDX-License-Identifier: Apache-2.0
// L7. Everything of the host half.
#pragma once

#include <zoomr/kv_cache.hpp>
#include <zoomr/policies/arkvale.hpp>
#include <zoomr/policies/full.hpp>
#include <zoomr/policies/h2o.hpp>
#include <zoomr/policies/infllm.hpp>
#include <zoomr/policies/lightthinker.hpp>
#include <zoomr/policies/quest.hpp>
#include <zoomr/policies/r_kv.hpp>
#include <zoomr/policies/raas.hpp>
#include <zoomr/policies/sentence_box.hpp>
#include <zoomr/policies/sentence_kv.hpp>
#include <zoomr/policies/shadowkv.hpp>
#include <zoomr/policies/snapkv.hpp>
#include <zoomr/policies/window.hpp>
#include <zoomr/policies/zoomr.hpp>
#include <zoomr/refresh/on_drift.hpp>
#include <zoomr/select/cover_mass.hpp>
#include <zoomr/summarize/stored_as.hpp>
