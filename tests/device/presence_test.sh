#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a program says without a device (one sentence, exit status 77), and with one that is broken (CUDA's words, 1).
#   presence_test.sh DRIVER_DIR LIST_OPTION PROGRAM
# DRIVER_DIR has the libcuda.so.1 of driver_stub.cpp. Where there is a device, the first is not tried.
driver=$1 lists=$2 program=$3
failed=0

# expect STATUS SENTENCE COMMAND...
expect() {
  wanted=$1 sentence=$2
  shift 2
  said=$("$@" 2>&1)
  status=$?
  [ $status -eq "$wanted" ] && case $said in *"$sentence"*) true ;; *) false ;; esac && return
  echo "$*: exit status $status, not $wanted with: $sentence"
  echo "$said"
  failed=1
}

nvidia-smi -L 2> /dev/null | grep -q GPU || expect 77 'skipped: there is no CUDA device' "$program"
# A driver that is there and finds no device: cudaErrorNoDevice.
expect 77 'skipped: there is no CUDA device' env LD_LIBRARY_PATH="$driver" ZOOMR_STUB_ERROR=100 "$program"
# cudaErrorInvalidDevice, cudaErrorSystemDriverMismatch, cudaErrorDevicesUnavailable, cudaErrorUnknown
for error in 101 803 46 999; do
  expect 1 "(error $error); driver for CUDA 13.0, runtime" \
    env LD_LIBRARY_PATH="$driver" ZOOMR_STUB_ERROR=$error "$program"
done
expect 1 'the CUDA device cannot be used: invalid device ordinal' \
  env LD_LIBRARY_PATH="$driver" ZOOMR_STUB_ERROR=101 "$program"
expect 0 '' env LD_LIBRARY_PATH="$driver" ZOOMR_STUB_ERROR=101 "$program" --help
expect 0 '' env LD_LIBRARY_PATH="$driver" ZOOMR_STUB_ERROR=101 "$program" "$lists"
exit $failed
