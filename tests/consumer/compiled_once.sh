#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A source that uses a cache of zoomr_compiled holds nothing of it: neither members of the cache and its step, nor what
# they call for a cache of that storage type and placement.
# compiled_once.sh INCLUDE FOLDER COMPILER
set -eu
include=$1 folder=$2 compiler=$3
mkdir -p "$folder"
program=$(dirname "$0")/find_package/main.cpp
parts='cache_core<|any_kv_cache<.*>::(begin|load|save)|step<.*>::(append|attend|commit)[(]'
"$compiler" -std=c++20 -O2 -I"$include" -c -o "$folder/alone.o" "$program"
nm -C --defined-only "$folder/alone.o" | grep -Eq "$parts" || { echo "compiled alone it must hold the cache"; exit 1; }
"$compiler" -std=c++20 -O2 -I"$include" -DZOOMR_COMPILED -c -o "$folder/linked.o" "$program"
if nm -C --defined-only "$folder/linked.o" | grep -E "$parts"; then echo "compiled again"; exit 1; fi
