// SPDX-License-Identifier: Apache-2.0
// A tokenizer at work, for tokenizer_oracle.py: a line of standard input is a text as JSON, or an array of ids; the
// line for it on standard output has the ids and their text, or the complaint.
//
//     tokenize FOLDER
#include <iostream>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "input_error.hpp"
#include "json_file.hpp"
#include "output.hpp"
#include "tokenizer.hpp"

namespace decode {
namespace {

json answer(const tokenizer& words, const json& asked) {
  try {
    const auto ids = asked.is_string() ? words.encode(asked.get<std::string>()) : asked.get<std::vector<token_id>>();
    return {{"ids", ids}, {"text", words.decode(ids, false)}};
  } catch (const input_error& wrong) {
    return {{"error", wrong.what()}};
  }
}

}  // namespace
}  // namespace decode

int main(int argc, char** argv) {
  return decode::run_program("tokenize", [&] {
    if (argc != 2) decode::fail("one argument, a folder with a tokenizer.json");
    const decode::tokenizer words(argv[1]);
    for (std::string line; std::getline(std::cin, line);) {
      const decode::json made = decode::answer(words, decode::parse_json(line, "a line"));
      std::cout << made.dump(-1, ' ', false, decode::json::error_handler_t::replace) << '\n';
    }
    return 0;
  });
}
