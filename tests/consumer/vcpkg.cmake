# SPDX-License-Identifier: Apache-2.0
# Runs the portfile of PORT as vcpkg does, and leaves FOLDER/installed. What it calls of vcpkg does here what vcpkg's
# documents say of it, as far as the port needs that.
cmake_minimum_required(VERSION 3.25)
set(CURRENT_PACKAGES_DIR "${FOLDER}/installed")
set(PORT_NAME zoomr)

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ERROR_IS_FATAL ANY OUTPUT_QUIET)
endfunction()
function(vcpkg_cmake_configure)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "vcpkg_cmake_configure: ${arg_UNPARSED_ARGUMENTS}")
  endif()
  run("${CMAKE_COMMAND}" -S "${arg_SOURCE_PATH}" -B "${FOLDER}/built" -D CMAKE_BUILD_TYPE=Release
      -D "CMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR}" ${arg_OPTIONS})
endfunction()
function(vcpkg_cmake_install)
  run("${CMAKE_COMMAND}" --build "${FOLDER}/built" --target install)
endfunction()
# It moves a configuration to share/PORT, and corrects paths in it.
function(vcpkg_cmake_config_fixup)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH;PACKAGE_NAME" "")
  file(GLOB config "${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH}/*.cmake")
  if(NOT config OR NOT arg_CONFIG_PATH STREQUAL "share/${PORT_NAME}")
    message(FATAL_ERROR "vcpkg_cmake_config_fixup: no configuration in ${arg_CONFIG_PATH}")
  endif()
endfunction()
# It corrects prefixes of .pc files, which here are relative.
function(vcpkg_fixup_pkgconfig)
  file(GLOB found "${CURRENT_PACKAGES_DIR}/share/pkgconfig/*.pc")
  if(NOT found)
    message(FATAL_ERROR "vcpkg_fixup_pkgconfig: no .pc file")
  endif()
endfunction()
function(vcpkg_install_copyright)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
  configure_file("${arg_FILE_LIST}" "${CURRENT_PACKAGES_DIR}/share/${PORT_NAME}/copyright" COPYONLY)
endfunction()

include("${PORT}/portfile.cmake")
