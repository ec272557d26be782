// SPDX-License-Identifier: Apache-2.0
// The groups of layers that a cache is made of.
#pragma once

#include "cache.hpp"

namespace adaptor {

/// A group under the policy of a name. It is compiled in groups.cpp, for all policies and storage types there are: what
/// is of a policy is compiled once for all types, and what is of a type once for all policies, in a source of its own.
/// @throws as `open_cache`
template <class T>
zoomr::any_kv_cache<T> open_group(const cache_settings& settings);

/// The policy frees what no query reaches, so that it has no later prompts.
bool frees_unreachable(const decode::policy_choice& choice);
/// zones.question of the policy.
index_t question_tokens(const decode::policy_choice& choice);

}  // namespace adaptor
