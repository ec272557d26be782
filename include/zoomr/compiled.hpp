// SPDX-License-Identifier: Apache-2.0
// L7. zoomr.hpp and grouped caches, for a program that links the library zoomr_compiled: the caches that it holds are
// declared. CMake's target zoomr::compiled defines ZOOMR_COMPILED, by which each header declares them itself.
#pragma once

#ifndef ZOOMR_COMPILED
#define ZOOMR_COMPILED
#endif
#include <zoomr/grouped_kv_cache.hpp>
#include <zoomr/zoomr.hpp>

#include <zoomr/compiled.inl>
