// SPDX-License-Identifier: Apache-2.0
// What a cache is made of, from the parameters of the engine.
#pragma once

#include <ggml.h>

#include <algorithm>  // std::min
#include <cmath>      // std::pow

#include "sequences.hpp"
#include "zoomr_ggml.h"

namespace adaptor {

/// Empty: there is no such table.
template <class T>
std::vector<T> copied(const T* from, std::int64_t count) {
  return from == nullptr ? std::vector<T>{} : std::vector<T>(from, from + count);
}

/// @param name  of the parameter, for the refusal
inline rope rope_of(const zoomr_ggml_rope& r, std::int32_t width, const std::string& name) {
  if (r.n_rot < 0 || r.n_rot % 2 != 0 || r.n_rot > width) {
    throw refusal(name + ".n_rot is " + std::to_string(r.n_rot) + ": it must be even, and at most n_embd_head_k, " +
                  std::to_string(width));
  }
  if (r.n_rot > 0 && !(r.freq_base > 0 && r.freq_scale > 0)) {
    throw refusal(name + ".freq_base and freq_scale must be positive");
  }
  rope turned;
  for (std::int32_t i = 0; i < r.n_rot / 2; ++i) {
    const double power = std::pow(static_cast<double>(r.freq_base), -2.0 * i / r.n_rot);
    const double factor = r.factors == nullptr ? 1.0 : static_cast<double>(r.factors[i]);
    turned.frequencies.push_back(static_cast<float>(static_cast<double>(r.freq_scale) * power / factor));
  }
  turned.pairs = r.neox ? zoomr::rotary_pairs::halves : zoomr::rotary_pairs::adjacent;
  return turned;
}

inline rope_table ropes_of(const zoomr_ggml_params& p) {
  rope_table ropes;
  for (std::int32_t layer = 0; layer < p.n_layer; ++layer) {
    ropes.add(p.layer_rope == nullptr
                  ? rope_of(p.rope, p.n_embd_head_k, "rope")
                  : rope_of(p.layer_rope[layer], p.n_embd_head_k, "layer_rope[" + std::to_string(layer) + "]"));
  }
  return ropes;
}

/// @param threads  outlives the cache
inline cache_settings settings_of(const zoomr_ggml_params& p, zoomr::executor threads) {
  cache_settings s;
  s.model = {p.n_layer, p.n_head, p.n_head_kv, p.n_embd_head_k, p.n_embd_head_v};
  if (const char* problem = s.model.problem()) throw refusal(problem);
  s.limits.max_sequences = p.n_seq_max;
  s.limits.max_tokens = p.n_ctx_seq;
  s.limits.pool_tokens = p.n_ctx;
  s.limits.max_batched_tokens = p.n_ubatch;
  s.limits.max_draft_tokens = (std::min)(p.n_draft, p.n_ubatch);
  s.limits.rollback_tokens = p.n_rollback;
  s.limits.logits.soft_cap = p.logit_softcap;
  s.limits.threads = threads;
  s.windows = copied(p.window, p.n_layer);
  s.policy = {p.policy == nullptr ? "full" : p.policy, p.budget, {}};
  for (std::int32_t i = 0; i < p.n_settings; ++i) s.policy.settings.emplace_back(p.settings[i]);
  for (const std::uint8_t flags : copied(p.classes, p.n_vocab)) {
    s.classes.push_back(static_cast<zoomr::token_class>(flags));
  }
  s.voters = copied(p.voters, std::int64_t{p.n_layer} * p.n_head);
  s.ropes = ropes_of(p);
  s.limits.voters_unsure = p.voters_unsure;
  s.limits.voters_none = p.voters_none;
  s.limits.voters_none_slope = p.voters_none_slope;
  return s;
}

inline std::unique_ptr<cache> opened(const cache_settings& settings, int type) {
  if (type == GGML_TYPE_F16) return open_cache(settings, storage::f16);
  if (type == GGML_TYPE_F32) return open_cache(settings, storage::f32);
  if (type == GGML_TYPE_Q8_0) return open_cache(settings, storage::q8_0);
  if (type == GGML_TYPE_Q4_0) return open_cache(settings, storage::q4_0);
  throw refusal("type_kv must be GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_Q8_0 or GGML_TYPE_Q4_0");
}

}  // namespace adaptor
