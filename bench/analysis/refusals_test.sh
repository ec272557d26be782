#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# refusals_test.sh PROGRAM TRACE: tier_hits and tier_ahead on a full disk, with a closed standard output, with numbers
# that are none and without a trace: exit status 2 and nothing printed.
refused() {
  said=$("$@" 2> /dev/null)
  status=$?
  [ $status -eq 2 ] && [ -z "$said" ] && return
  echo "exit status $status, not 2 and silent: $*"
  exit 1
}
"$1" "$2" 8 > /dev/null || { echo "it cannot read $2"; exit 1; }
"$1" "$2" 8 > /dev/full 2> /dev/null
[ $? -eq 2 ] || { echo "a full disk is not noticed"; exit 1; }
"$1" "$2" 8 >&- 2> /dev/null
[ $? -eq 2 ] || { echo "a closed standard output is not noticed"; exit 1; }
for slots in -1 0 4294967302 8x; do refused "$1" "$2" $slots; done
refused "$1" /nowhere/trace
