// SPDX-License-Identifier: Apache-2.0
// Runs the device tests, or says that there is no device to run them on (exit status 77), or why it does not work (1).
// What only asks for names needs none. A signal ends the program at once: a time limit is no crash of a test.
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_NO_POSIX_SIGNALS
#include <doctest/doctest.h>

#include <support/device_presence.hpp>

int main(int argc, char** argv) {
  constexpr std::string_view queries[] = {"-h",
                                          "-?",
                                          "--help",
                                          "-ltc",
                                          "--list-test-cases",
                                          "-lts",
                                          "--list-test-suites",
                                          "-lr",
                                          "--list-reporters",
                                          "-c",
                                          "--count",
                                          "-v",
                                          "--version"};
  if (!zoomr_test::has_option(argc, argv, queries)) {
    if (const int status = zoomr_test::status_without_device(); status != 0) return status;
  }
  return doctest::Context(argc, argv).run();
}
