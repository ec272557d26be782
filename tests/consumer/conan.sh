#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the Conan package of SOURCE, in a store below FOLDER, and builds and runs a program with it. Exit status 77
# where there is no conan.
# conan.sh SOURCE FOLDER COMPILER
set -eu
source=$1 folder=$2 compiler=$3
command -v conan >/dev/null || { echo "skipped: there is no conan (pip install conan)"; exit 77; }
rm -rf "$folder" && mkdir -p "$folder"
export CONAN_HOME="$folder/home" CXX="$compiler" ZOOMR_CONSUMER="$source/tests/consumer/find_package"
conan profile detect >/dev/null 2>"$folder/log" || { cat "$folder/log"; exit 1; }
cp -r "$source/tests/consumer/conan" "$folder/consumer"  # it is built in place
conan create "$source" -s compiler.cppstd=20 --test-folder "$folder/consumer"
