// SPDX-License-Identifier: Apache-2.0
// The soft cap in vectors: number by number the operations of hyperbolic_tangent and soft_capped.
namespace zoomr::inline v0::detail::ZOOMR_PATH {

[[gnu::always_inline]] inline floats hyperbolic_tangent(floats x) {
  const auto sign = reinterpret_cast<words>(x) & 0x80000000u;
  const auto size = reinterpret_cast<floats>(reinterpret_cast<words>(x) ^ sign);
  const floats z = x * x;
  floats p = filled(-5.70498872745e-3f);
  p = fused(p, z, filled(2.06390887954e-2f));
  p = fused(p, z, filled(-5.37397155531e-2f));
  p = fused(p, z, filled(1.33314422036e-1f));
  p = fused(p, z, filled(-3.33332819422e-1f));
  const floats near_zero = fused(x * z, p, x);
  const floats e = exponential(size * -2.0f);
  const auto beyond = reinterpret_cast<floats>(reinterpret_cast<words>((1.0f - e) / (1.0f + e)) | sign);
  return size < 0.625f ? near_zero : beyond;
}

[[gnu::always_inline]] inline floats soft_capped(floats logit, float cap) {
  return fused(filled(cap), hyperbolic_tangent(logit / cap), filled(-0.0f));
}

}  // namespace zoomr::inline v0::detail::ZOOMR_PATH
