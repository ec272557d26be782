# SPDX-License-Identifier: Apache-2.0
# A port for a clone of this repository, whose files it takes where they lie:
#   vcpkg install zoomr --overlay-ports=packaging/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # headers alone

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DZOOMR_TESTS=OFF -DZOOMR_EXAMPLES=OFF -DZOOMR_BENCH=OFF -DZOOMR_COMPILED=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH share/zoomr)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
