// SPDX-License-Identifier: Apache-2.0
// ZOOMR_NIGHTLY(check(...)); is compiled, and so checked, in the preset `nightly` alone. It stands before checks that
// try on another policy, or another type of numbers, what the checks beside it try too: a device's cache costs the
// compiler three seconds for each policy.
#pragma once

#if defined(ZOOMR_ALL_CHECKS)
#define ZOOMR_NIGHTLY(...) __VA_ARGS__
#else
#define ZOOMR_NIGHTLY(...)
#endif
