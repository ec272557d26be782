// SPDX-License-Identifier: Apache-2.0
// The page of `zoomr-decode ledger --report`: the first problem under each policy.
#pragma once

#include <optional>  // std::optional

#include "../../decode/output.hpp"
#include "../../decode/report/page.hpp"
#include "demo.hpp"

namespace decode::ledger {

class demo_page final : public observer {
 public:
  /// @throws input_error if the file cannot be written
  void begin(const options& given, std::size_t runs) override;
  /// Passes the text of the first problem, token by token, and adds what was read of it. Controls, which are told what
  /// is needed, are not shown.
  void add(subject& on, const problem_set& set, const run_choice& choice) override;
  void finish() override;

 private:
  std::optional<output_file> file_;
  std::optional<report::page> page_;
};

}  // namespace decode::ledger
