#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that say nothing about what they name, and so are no names in headers: of, made, on, given, by, with, asked,
asks; nor those of members, with an underscore at the end. What is part of a longer name, in a comment, in a literal or in
the path of an include does not count.

words.py INCLUDE_DIR              prints where headers below INCLUDE_DIR/zoomr have such a name
words.py --self-test INCLUDE_DIR  plants some in a copy of them and checks that each is found, and nothing else
"""
import pathlib
import re
import shutil
import sys
import tempfile

WORDS = "of made on given by with asked asks".split()
NAME = re.compile(r"\b(" + "|".join(WORDS) + r")_?\b")  # a member's name ends in _
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'|^[ \t]*#[ \t]*include[^\n]*',
                      re.DOTALL | re.MULTILINE)


def faults(include_dir):
    root = pathlib.Path(include_dir) / "zoomr"
    headers = sorted(path for path in root.rglob("*") if path.suffix in (".hpp", ".cuh", ".inl"))
    if not headers:
        yield f"{root}: no headers"
    for path in headers:
        code = NOT_CODE.sub(lambda found: "\n" * found[0].count("\n") or " ", path.read_text(encoding="utf-8"))
        for number, line in enumerate(code.splitlines(), 1):
            for word in NAME.findall(line):
                yield f"{path.relative_to(root).as_posix()}:{number}: {word}: name it by a noun that says what it is"


PLANTED = [  # header, a line added at its end, and the words that must be found in it
    ("core/types.hpp", "inline int f(int of) { return of; }", ["of", "of"]),
    ("core/view.hpp", "inline int made = 1;", ["made"]),
    ("core/device/streams.cuh", "inline void f(stream on);", ["on"]),
    ("math/simd.inl", "using given = int;", ["given"]),
    ("policy/zones.hpp", "struct s { int by; };", ["by"]),
    ("policy/zones.hpp", "struct s { int given_ = 0; };", ["given"]),
    ("policy/compose.hpp", "inline void with();", ["with"]),
    ("paging/tiers/tier.hpp", "inline int f(const s& x) { return x.asked + x->asks(); }", ["asked", "asks"]),
    ("core/types.hpp", "inline int f() { return g('\"', on, '\"'); }", ["on"]),
    ("core/types.hpp", "inline int of_token = 1, made_by = 2, handmade = 3, with2 = 4;", []),
    ("core/types.hpp", "// of what is made on a device, /* by */ it is asked", []),
    ("core/types.hpp", "/* given\n   with */ inline int f() { return 1'000; }", []),
    ("core/types.hpp", 'inline const char* f() { return "as made by \\" and with"; }', []),
    ("core/types.hpp", "#include <zoomr/on/of.hpp>", []),
]


def self_test(include_dir):
    clean = list(faults(include_dir))
    missed = []
    for header, added, words in PLANTED:
        with tempfile.TemporaryDirectory() as copy:
            shutil.copytree(include_dir, copy, dirs_exist_ok=True)
            path = pathlib.Path(copy) / "zoomr" / header
            path.write_text(f"{path.read_text(encoding='utf-8')}{added}\n", encoding="utf-8")
            new = [fault for fault in faults(copy) if fault not in clean]
            found = [fault.split(": ")[1] for fault in new if fault.startswith(header + ":")]
            if found != words or len(new) != len(words):
                missed.append(f"planted in {header}: {added}: wanted {words}, found {new}")
    return missed


if __name__ == "__main__":
    found = self_test(sys.argv[2]) if sys.argv[1] == "--self-test" else list(faults(sys.argv[1]))
    print("\n".join(found))
    sys.exit(1 if found else 0)
