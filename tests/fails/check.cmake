# SPDX-License-Identifier: Apache-2.0
# Compiles SOURCE with COMPILER and FLAGS (a ;-list), and what a line "// flags: <flags>" adds. If it has a line
# "// expect: <sentence>" the compiler must refuse it with that sentence in an error of its own; without one it must
# accept it. With a line "// says: <sentence>" it must also say that sentence, with "// silent" nothing at all.
file(READ ${SOURCE} source)
set(expected "")
if(source MATCHES "// expect: ([^\n]+)")
  set(expected "${CMAKE_MATCH_1}")
endif()
if(source MATCHES "// flags: ([^\n]+)")
  separate_arguments(more UNIX_COMMAND "${CMAKE_MATCH_1}")
  list(APPEND FLAGS ${more})
endif()

execute_process(
  COMMAND ${COMPILER} ${FLAGS} -fsyntax-only -fmessage-length=0 ${SOURCE}
  RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)

if(expected STREQUAL "")
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "${SOURCE} must compile, but does not:\n${output}")
  endif()
  if(source MATCHES "// says: ([^\n]+)")
    string(FIND "${output}" "${CMAKE_MATCH_1}" at)
    if(at LESS 0)
      message(FATAL_ERROR "the compiler must say '${CMAKE_MATCH_1}' of ${SOURCE}, but says:\n${output}")
    endif()
  endif()
  if(source MATCHES "// silent" AND NOT output STREQUAL "")
    message(FATAL_ERROR "the compiler must say nothing of ${SOURCE}, but says:\n${output}")
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
