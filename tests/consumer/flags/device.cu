// SPDX-License-Identifier: Apache-2.0
// Compiles only if the device half does without exceptions, and beside macros of system headers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime_api.h>

#include <cub/warp/warp_reduce.cuh>
#include <cub/warp/warp_scan.cuh>

#include "system_headers.hpp"
// clang-format off
#include "hostile.hpp"
// clang-format on

#include <zoomr/policy/placement/tiered.hpp>
#include <zoomr/zoomr.cuh>

#if ZOOMR_EXCEPTIONS
#error "compile this with -fno-exceptions"
#endif

constexpr auto zooming = zoomr::presets::zoomr_focus;
template class zoomr::device_cache<zoomr::policy_of<zooming>, zoomr::bfloat16, 64, 4>;
