// SPDX-License-Identifier: Apache-2.0
// What an engine asks for once: a cache under the policy of a name, and what policies must know of words. All presets
// are compiled once, in open_cache.cpp, for all engines here.
#pragma once

#include <zoomr/zoomr.hpp>

#include <string>  // std::string
#include <vector>  // std::vector

/// @param policy  a name of the table of presets
/// @param budget  of the policy, in tokens; 0: its own
/// @throws std::runtime_error if there is no such policy, or its budget must be larger
zoomr::any_kv_cache<> open_cache(const std::string& policy, const zoomr::shape& model, const zoomr::config& limits,
                                 zoomr::index_t budget = 0);

/// Which words of LEDGER end sentences, and which mark thoughts and their summaries: [words].
std::vector<zoomr::token_class> classes_of(const std::vector<std::string>& words);
