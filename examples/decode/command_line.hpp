// SPDX-License-Identifier: Apache-2.0
// The command line of zoomr-decode: its options, and what is refused before anything is loaded.
#pragma once

#include <optional>  // std::optional
#include <vector>    // std::vector

#include "../studies/ledger/demo.hpp"
#include "options.hpp"
#include "policy_choice.hpp"

namespace decode {

struct command_line {
  options given;
  ledger::options of_demo;
  bool demo = false;
  bool list = false;
};

/// @return  the program's exit status, if there is nothing more to do: --help was printed
/// @throws  input_error
std::optional<int> read_command_line(int argc, const char* const* argv, command_line& said);

/// Each policy with each budget.
std::vector<policy_choice> choices(const options& given);

}  // namespace decode
