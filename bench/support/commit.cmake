# SPDX-License-Identifier: Apache-2.0
# Writes HEADER where the commit of SOURCE has changed: "dirty" behind it where files differ from it.
cmake_minimum_required(VERSION 3.25)
find_program(GIT git)
set(commit)
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=40 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT ${HEADER} CONTENT "#define ZOOMR_BENCH_COMMIT \"@commit@\"\n" @ONLY)
