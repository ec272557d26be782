#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# measure.sh over programs that are none: what it says, and its exit status.
#   measure_test.sh FOLDER
set -u
here=$(cd "$(dirname "$0")" && pwd)
rm -rf "$1" && mkdir -p "$1/bin" && cd "$1" || exit 2
failed=0

# expect STATUS SENTENCE PROGRAM PARTS: with that program, a script, as each of those that are measured
expect() {
  printf '#!/bin/sh\n%s\n' "$3" > bin/device_bench
  chmod +x bin/device_bench && cp bin/device_bench bin/device_test && cp bin/device_bench bin/device_smoke
  local said status
  said=$(ZOOMR_PARTS=$4 PATH=$PWD/fake:$PATH bash "$here/measure.sh" "$PWD/out" "$PWD" 2>&1)
  status=$?
  [ $status -eq "$1" ] && [[ $said == *$2* ]] && return
  printf '%s: exit status %s, not %s with: %s\n%s\n' "$3" $status "$1" "$2" "$said"
  failed=1
}

json='for a; do case $a in --benchmark_out=*) echo "{\"context\": {}, \"benchmarks\": []}" > "${a#*=}" ;; esac; done'
expect 0 'step4k                 done' "$json" step4k
expect 1 'SKIPPED: no device' 'exit 77' 'test step4k'
expect 1 'smoke_times            SKIPPED: no device' 'exit 77' smoke
expect 1 'FAILED, exit status 1' 'exit 1' step4k
expect 1 'smoke_times            done' 'echo "$1: said"; [ "$1" = times ]' smoke
grep -q '^times: said' out/summary.txt || { echo 'the summary lacks the times' && failed=1; }
expect 1 'FAILED, exit status 137' 'kill -9 $$' step4k
mkdir fake && printf '#!/bin/sh\nexit 3\n' > fake/python3 && chmod +x fake/python3  # there will be no table
expect 1 'step4k                 done' "$json" step4k
rm fake/python3
printf '#!/bin/sh\nexec %s -k 1 1 "$4" "$5"\n' "$(command -v timeout)" > fake/timeout && chmod +x fake/timeout
expect 1 'CUT OFF after 45 s' 'sleep 9' step4k
grep -q 'the time limit of 45 s has ended this part' out/step4k.txt || { echo 'the part does not say it' && failed=1; }
exit $failed
