#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A source that steps a kind of device cache which it declares compiles no kernel.
# declared_kind.sh SOURCES FOLDER COMPILER
set -eu
sources=$1 folder=$2 compiler=$3
mkdir -p "$folder"
compile() {
  "$compiler" -std=c++20 -O2 -DZOOMR_SIMT='"support/simt.hpp"' -I"$sources/include" -I"$sources/tests" "$@" \
    -Wno-unknown-pragmas -xc++ -c -o "$folder/declared_kind.o" "$sources/tests/simt/declared_kind.cu"
  nm -C --defined-only "$folder/declared_kind.o" | grep "_kernel<" || true
}
[ -n "$(compile)" ] || { echo "compiled alone it must hold kernels"; exit 1; }
kernels=$(compile -DDECLARED)
[ -z "$kernels" ] || { echo "compiled again: $kernels"; exit 1; }
