# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE with COMPILER and FLAGS (a ;-list). If it has a line "// expect: <sentence>" the compiler must
# refuse it with that sentence in an error of its own; without one it must accept it.
file(READ ${SOURCE} source)
set(expected "")
if(source MATCHES "// expect: ([^\n]+)")
  set(expected "${CMAKE_MATCH_1}")
endif()

execute_process(
  COMMAND ${COMPILER} ${FLAGS} -fsyntax-only -fmessage-length=0 ${SOURCE}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(expected STREQUAL "")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${SOURCE} must compile, but does not:\n${output}")
  endif()
  return()
endif()
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} must not compile, but does")
endif()
# a line such as "...: error: static assertion failed: <sentence>", not the quoted source of another message
string(REGEX REPLACE "[][;]" "_" output "${output}")
string(REGEX REPLACE "[][;]" "_" wanted "${expected}")
string(REPLACE "\n" ";" lines "${output}")
foreach(line IN LISTS lines)
  string(FIND "${line}" "error:" is_error)
  string(FIND "${line}" "${wanted}" has_sentence)
  if(is_error GREATER -1 AND has_sentence GREATER is_error)
    return()
  endif()
endforeach()
message(FATAL_ERROR "the compiler refuses ${SOURCE}, but does not say\n  ${expected}\n${output}")
