#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the vcpkg port of SOURCE below FOLDER, for find_package: by vcpkg, or where there is none by stand-ins for
# what the port calls of it.
# vcpkg.sh SOURCE FOLDER CMAKE
set -eu
source=$1 folder=$2 cmake=$3
rm -rf "$folder" && mkdir -p "$folder"
if command -v vcpkg >/dev/null; then
  vcpkg install zoomr --classic --overlay-ports="$source/packaging/vcpkg" --x-install-root="$folder/all"
  set -- "$folder"/all/*/share/zoomr
  mv "${1%/share/zoomr}" "$folder/installed"
else
  "$cmake" -D "FOLDER=$folder" -D "PORT=$source/packaging/vcpkg/zoomr" -P "$source/tests/consumer/vcpkg.cmake"
fi
test -f "$folder/installed/share/zoomr/copyright" || { echo "vcpkg wants the licence there"; exit 1; }
