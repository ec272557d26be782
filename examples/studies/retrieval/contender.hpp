// SPDX-License-Identifier: Apache-2.0
// What is compared: a policy as a command line says it, with the heads that vote under it.
//
//   zoomr_voters+top_p.share=0.7        the weights of --voters FILE, or of voters.json beside the model
//   zoomr_voters+voters=notes           those of --voters notes=FILE
//   zoomr_voters+voter_keys=q8_0        the keys that these heads read rounded to 8 bits
//   exact@512+anchors=FILE              layers that read the choice of an earlier one (zoomr-eval anchors)
//   full+streaming=FILE                 KV heads that keep the first tokens and the last ones (zoomr-eval streaming)
#pragma once

#include <string>  // std::string
#include <vector>  // std::vector

#include "../../decode/config.hpp"
#include "../../decode/named_files.hpp"
#include "../../decode/policy_choice.hpp"

namespace decode::retrieval {

struct contender {
  std::string spec;           // as it was said
  policy_choice choice;       // without what is said of voters, anchors and streaming heads
  bool has_votes = false;     // heads vote under it
  bool adds_up = false;       // attention counts since the prompt's first token: it must see the queries of all
  std::vector<float> voters;  // [layers, heads]  their weights; empty: unknown
  voter_bounds bounds;        // of their posterior
  zoomr::voter_storage voter_keys = zoomr::voter_storage::as_cache;
  layer_tables anchors;
  streaming_heads streaming;

  /// What is measured depends on: "17 voters of weight 8.123, their keys in q8_0". Without votes it is empty.
  std::string voters_in_words() const;
};

/// Names the files of weights that contenders may have: those of --voters, and what stands beside the model.
void name_voters(named_files& files, const std::string& directory, const std::vector<std::string>& voters);

/// @param specs  policies and controls
/// @param files  of weights: FILE or NAME=FILE
/// @param c      of the model, with the weights that stand beside it
/// @throws input_error  what is no policy, an option it lacks, a file that is not for this model, a name of no file
std::vector<contender> read_contenders(const std::vector<std::string>& specs, const std::vector<std::string>& files,
                                       const model_config& c);

}  // namespace decode::retrieval
