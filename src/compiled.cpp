// SPDX-License-Identifier: Apache-2.0
// What zoomr_compiled holds beside its caches.
#include <zoomr/core/compiled_flags.hpp>
#include <zoomr/math/products.hpp>

namespace zoomr::inline v0::detail {

template <bool Exceptions, bool Bfloat16Products>
const char compiled_with<Exceptions, Bfloat16Products>::library = 0;
template struct compiled_with<ZOOMR_EXCEPTIONS != 0, ZOOMR_BFLOAT16_PRODUCTS != 0>;

template void products(cpu_path, view<const float, 2>, const float*, std::int64_t, view<float, 2>);

}  // namespace zoomr::inline v0::detail
