#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Debian package, unpacks it below FOLDER, and builds and runs a program, without run-time type information,
# with what pkg-config says there.
# package.sh CPACK_CONFIG FOLDER COMPILER
set -eu
config=$1 folder=$2 compiler=$3
rm -rf "$folder" && mkdir -p "$folder"
cpack --config "$config" -B "$folder/made" >"$folder/log" || { cat "$folder/log"; exit 1; }
dpkg-deb -x "$folder"/made/libzoomr-dev_*.deb "$folder"
program=$(dirname "$0")/find_package/main.cpp
export PKG_CONFIG_PATH="$folder/usr/share/pkgconfig"
pkg-config --modversion zoomr
# What it says is quoted for a shell: a path may have a blank.
eval "set -- $(pkg-config --cflags --libs zoomr)"
"$compiler" -std=c++20 -fno-rtti -o "$folder/program" "$program" "$@"
"$folder/program"
