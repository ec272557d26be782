#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where there is no Ninja the presets say what to do.
# no_ninja.sh SOURCE FOLDER CMAKE
set -eu
source=$1 folder=$2 cmake=$3
rm -rf "$folder" && mkdir -p "$folder/nothing"
if PATH="$folder/nothing" "$cmake" -G Ninja -S "$source" -B "$folder/built" >"$folder/said" 2>&1; then
  echo "there was a Ninja"
  exit 1
fi
tr -s ' \n' ' ' <"$folder/said" >"$folder/line"
grep -q 'cmake --preset NAME -G "Unix Makefiles" && cmake --build --preset NAME' "$folder/line" ||
  { cat "$folder/said"; exit 1; }
