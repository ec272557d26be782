// SPDX-License-Identifier: Apache-2.0
// zoomr-eval: what policies keep, measured. Bad input ends with exit code 2 and one sentence.
#include "../../decode/output.hpp"
#include "command_line.hpp"

namespace decode::evaluate {
namespace {

int run(int argc, char** argv) {
  command_line said;
  if (const auto status = read_command_line(argc, argv, said)) return *status;
  if (said.asked == measurement::ledger) ledger::run(said.of_ledger);
  if (said.asked == measurement::perplexity) perplexity::run(said.of_perplexity);
  if (said.asked == measurement::heads) retrieval::run(said.of_heads);
  if (said.asked == measurement::anchors) anchors::run(said.of_anchors);
  if (said.asked == measurement::retrieval) retrieval::run(said.of_retrieval);
  if (said.asked == measurement::forms) retrieval::run(said.of_forms);
  if (said.asked == measurement::traces) traces::run(said.of_traces);
  if (said.asked == measurement::speed) speed::run(said.of_speed);
  if (said.asked == measurement::streaming) streaming::run(said.of_streaming);
  return 0;
}

}  // namespace
}  // namespace decode::evaluate

int main(int argc, char** argv) {
  return decode::run_program("zoomr-eval", [&] { return decode::evaluate::run(argc, argv); });
}
