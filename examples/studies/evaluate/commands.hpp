// SPDX-License-Identifier: Apache-2.0
// The commands of zoomr-eval.
#pragma once

#include "../ledger/study.hpp"
#include "../perplexity/perplexity.hpp"
#include "../speed/speed.hpp"

namespace CLI {
class App;
}

namespace decode {

/// Adds a subcommand and its options.
CLI::App* add_command(CLI::App& app, ledger::study_options& given);
CLI::App* add_command(CLI::App& app, perplexity::options& given);
CLI::App* add_command(CLI::App& app, speed::options& given);

}  // namespace decode
