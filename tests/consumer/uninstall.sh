#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs BUILD below FOLDER and uninstalls it: what is of others is left, and nothing else.
# uninstall.sh CMAKE BUILD FOLDER CONFIG
set -eu
cmake=$1 build=$2 folder=$3 config=$4
fail() { echo "$1"; exit 1; }
rm -rf "$folder" && mkdir -p "$folder/there/include/other"
"$cmake" --install "$build" --prefix "$folder/there" --config "$config" >/dev/null
touch "$folder/there/include/other/mine.hpp" "$folder/there/include/zoomr/mine.hpp"
test -f "$folder/there/include/zoomr/zoomr.hpp" || fail "nothing was installed"
"$cmake" --build "$build" --target uninstall
left=$(cd "$folder/there" && find . -type f | sort | tr '\n' ' ')
test "$left" = "./include/other/mine.hpp ./include/zoomr/mine.hpp " || fail "left: $left"
test ! -e "$folder/there/share/zoomr" || fail "an empty folder of its own was left"
"$cmake" --build "$build" --target uninstall >"$folder/again" || fail "what is gone already was no success"
grep -q "0 files were removed" "$folder/again" || fail "it removed something twice"
mv "$build/install_manifest.txt" "$folder"
if "$cmake" -P "$build/uninstall.cmake" 2>"$folder/said"; then fail "nothing was installed, and it said nothing"; fi
mv "$folder/install_manifest.txt" "$build"
grep -q "nothing was installed from this build" "$folder/said"
