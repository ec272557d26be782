#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What headers need to compile without exceptions and beside macros of system headers, of which a build shows the
absence only where it has such flags and headers: nothing throws or catches but by the macros of core/error.hpp, no call
looks as one of a macro min(a, b) or max(a, b), no name is one that tests/consumer/flags/hostile.hpp defines, and
system_headers.hpp beside it includes every header of the standard library and the system that they include.

portable.py INCLUDE_DIR HOSTILE              prints each fault of the headers below INCLUDE_DIR/zoomr
portable.py --self-test INCLUDE_DIR HOSTILE  plants faults in a copy of them and checks that each is found
"""
import pathlib
import re
import shutil
import sys
import tempfile

MAY_THROW = "core/error.hpp"
INCLUDED = re.compile(r"^[ \t]*#[ \t]*include <(?!zoomr/|cub/|cuda|mpi\.h|nccl\.h)([\w./]+)>", re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'|^[ \t]*#[ \t]*include[^\n]*', re.DOTALL | re.MULTILINE)


def code_of(text):
    """The text without comments, literals and includes; lines stay where they are."""
    return NOT_CODE.sub(lambda found: "\n" * found[0].count("\n") or " ", text)


def faults(include_dir, hostile):
    defined = re.findall(r"^#define (\w+)(?!\w|\()", pathlib.Path(hostile).read_text(encoding="utf-8"), re.MULTILINE)
    defined = [name for name in defined if not name.startswith("ZOOMR_")]
    rules = [
        (r"\b(throw|try|catch)\b", "nothing throws or catches but by the macros of " + MAY_THROW),
        (r"\b(min|max)\s*\(", "a macro of this name would be expanded: (std::min)(a, b), or another name"),
        (r"\b(" + "|".join(defined) + r")\b", "system headers define this name as a macro"),
    ]
    root = pathlib.Path(include_dir) / "zoomr"
    headers = sorted(path for path in root.rglob("*") if path.suffix in (".hpp", ".cuh", ".inl"))
    if not headers or not defined:
        yield f"{root}: no headers" if not headers else f"{hostile}: no macros"
    before_macros = INCLUDED.findall(pathlib.Path(hostile).with_name("system_headers.hpp").read_text(encoding="utf-8"))
    for path in headers:
        header = path.relative_to(root).as_posix()
        text = path.read_text(encoding="utf-8")
        for name in sorted(set(INCLUDED.findall(text)) - set(before_macros)):
            yield f"{header}: <{name}>: not in system_headers.hpp, so macros would be defined before it"
        for number, line in enumerate(code_of(text).splitlines(), 1):
            for rule, why in rules[header == MAY_THROW:]:
                for found in re.findall(rule, line):
                    yield f"{header}:{number}: {found}: {why}"


PLANTED = [  # header, a line added at its end, and what must be said of it; or nothing
    ("core/view.hpp", "inline void f() { throw 1; }", "throw: nothing throws"),
    ("math/simd.inl", "inline void f() try {} catch (int) {}", "catch: nothing throws"),
    ("core/device/device.cuh", "inline void f() { try { g(); } catch (...) {} }", "try: nothing throws"),
    ("core/types.hpp", "inline int f(int a) { return std::min(a, 1); }", "min: a macro"),
    ("core/device/block.cuh", "inline int f(int a) { return std::max (a, 1); }", "max: a macro"),
    ("core/types.hpp", "inline int f() { return std::numeric_limits<int>::max(); }", "max: a macro"),
    ("paging/device_arena.cuh", "inline int far = 1;", "far: system headers"),
    ("policy/zones.hpp", "enum class kind { ERROR };", "ERROR: system headers"),
    ("core/error.hpp", "inline int f(int a) { return std::min(a, 1); }", "min: a macro"),
    ("core/view.hpp", "inline void f() { ZOOMR_TRY { g(); } ZOOMR_CATCH_ALL { detail::rethrow(); } }", None),
    ("core/view.hpp", "#include <deque>  // as one does", None),
    ("core/device/device.cuh", "#include <regex>", "<regex>: not in system_headers.hpp"),
    ("core/error.hpp", "inline void f() { throw 1; }", None),
    ("core/view.hpp", '// throw, "try", far /* near */', None),
    ("core/view.hpp", 'inline const char* f() { return "catch // far"; }', None),
    ("core/view.hpp", "inline int f(int a) { return (std::min)(a, std::max<int>(a, (std::numeric_limits<int>::max)())); }", None),
]


def self_test(include_dir, hostile):
    clean = set(faults(include_dir, hostile))
    missed = []
    for header, added, said in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(include_dir, copy, dirs_exist_ok=True)
            path = pathlib.Path(copy) / "zoomr" / header
            path.write_text(f"{path.read_text(encoding='utf-8')}{added}\n", encoding="utf-8")
            new = set(faults(copy, hostile)) - clean
            if not any(said in fault for fault in new) if said else new:
                missed.append(f"planted in {header}: {added}: wanted {said}, found {sorted(new)}")
    return missed


if __name__ == "__main__":
    testing = sys.argv[1] == "--self-test"
    found = self_test(*sys.argv[2:]) if testing else list(faults(*sys.argv[1:]))
    print("\n".join(found))
    sys.exit(1 if found else 0)
