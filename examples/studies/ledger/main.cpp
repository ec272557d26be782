// SPDX-License-Identifier: Apache-2.0
// zoomr-ledger: the demo alone, as `zoomr-decode ledger` runs it without options, built without what these need.
#include "../../decode/input_error.hpp"
#include "../../decode/output.hpp"
#include "demo.hpp"

int main(int argc, char**) {
  return decode::run_program("zoomr-ledger", [&] {
    if (argc > 1) decode::fail("it takes no options; those of the demo are of zoomr-decode ledger");
    decode::ledger::run({});
    return 0;
  });
}
