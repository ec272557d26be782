// SPDX-License-Identifier: Apache-2.0
// L7. All of zoomr, host and device.
#pragma once

#include <zoomr/device_cache.cuh>
#include <zoomr/zoomr.hpp>
