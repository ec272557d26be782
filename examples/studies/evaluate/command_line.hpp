// SPDX-License-Identifier: Apache-2.0
// The command line of zoomr-eval: which measurement is asked for, and its options.
#pragma once

#include <optional>  // std::optional

#include "../anchors/anchors.hpp"
#include "../ledger/study.hpp"
#include "../perplexity/perplexity.hpp"
#include "../retrieval/forms_study.hpp"
#include "../retrieval/heads.hpp"
#include "../retrieval/retrieval.hpp"
#include "../speed/speed.hpp"
#include "../streaming/streaming.hpp"
#include "../traces/traces.hpp"

namespace decode::evaluate {

enum class measurement { ledger, perplexity, heads, anchors, retrieval, forms, traces, speed, streaming };

struct command_line {
  measurement asked = measurement::ledger;
  ledger::study_options of_ledger;
  perplexity::options of_perplexity;
  retrieval::heads_options of_heads;
  anchors::options of_anchors;
  streaming::options of_streaming;
  retrieval::options of_retrieval;
  retrieval::forms_options of_forms;
  traces::options of_traces;
  speed::options of_speed;
};

/// @return  the program's exit status, if there is nothing more to do: --help was printed
/// @throws  input_error
std::optional<int> read_command_line(int argc, const char* const* argv, command_line& said);

}  // namespace decode::evaluate
