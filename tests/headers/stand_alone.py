#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header under include/ compiles alone and twice, without a warning, and against hostile macros; those for a device
under the SIMT shim. Nothing but the syntax is compiled.

stand_alone.py COMPILER INCLUDE_DIR TESTS_DIR    exit status 1 if a header does not
stand_alone.py --self-test COMPILER              that it notices

A header's own code is compiled as if alone where exactly those headers have come before that it includes, itself or by
others. So what most of them include, a few bases with all that they include, may come precompiled; and a header that
another one includes first, before anything else but the same base, needs no source of its own.
"""
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

FLAGS = ["-std=c++20", "-Werror", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow"]
SHIM = ['-DZOOMR_SIMT="support/simt.hpp"', "-Wno-unknown-pragmas"]
LOADS_SHIM = "zoomr/core/device/device.cuh"
SHIM_IS_AS_MANY = 50  # headers, in time
# Names that well-known system headers define as macros (<complex.h>, <termios.h>, <windows.h>) are free. The standard
# library of g++ takes min and max back itself: of these consumer/flags/macros.cpp says more.
HOSTILE = "".join(f"#define {name} not_a_name(\n" for name in
                  ("I", "B0", "small", "near", "far", "interface", "min(a, b)", "max(a, b)"))


def includes(path):
    """The headers of the project's that a header includes, in their order; and whether one is before all else."""
    with open(path, encoding="utf-8") as header:
        lines = [line for line in header if line.strip() and not line.startswith(("//", "#pragma once"))]
    found = [re.match(r"#include <(zoomr/[^>]+)>", line) for line in lines]
    return [each.group(1) for each in found if each], bool(found) and found[0] is not None


def needs_more(path):
    """What needs MPI, or NCCL, is compiled by its own test, where that is."""
    with open(path, encoding="utf-8") as header:
        return re.search("#include <(mpi|nccl).h>", header.read()) is not None


def closures(direct):
    """{header: all that it includes, itself or by others, and itself}"""
    made = {}

    def closure(header):
        if header not in made:
            made[header] = {header}.union(*(closure(other) for other in direct[header]))
        return made[header]
    for header in direct:
        closure(header)
    return made


class Kind:
    """The headers of host or device, their compiler, and the bases of their sources."""
    BASES = 2  # one takes as long as some ten sources

    def __init__(self, command, headers, closure, first, folder):
        self.command, self.folder = command, folder
        self.bases = []
        for _ in range(self.BASES):  # what saves most of reading, given those that are there
            def saved(base, bases=tuple(self.bases)):
                found = [self.base_of(header, bases + (base,), closure) for header in headers]
                return sum(len(closure[each]) + SHIM_IS_AS_MANY * (LOADS_SHIM in closure[each]) for each in found if each)
            self.bases.append(max(sorted(set().union(*(closure[header] for header in headers))), key=saved))
        bases = {header: self.base_of(header, self.bases, closure) for header in headers}
        covered = {first[header] for header in headers
                   if first[header] in bases and bases[first[header]] == bases[header]}
        self.sources = [(bases[header], self.chain(header, first, bases)) for header in headers if header not in covered]

    @staticmethod
    def base_of(header, bases, closure):
        """The largest of the bases that a header includes, or None."""
        possible = [base for base in bases if base != header and base in closure[header]]
        return max(possible, key=lambda base: len(closure[base]), default=None)

    @staticmethod
    def chain(header, first, bases):
        """The headers that a source for one compiles as if alone: it, what it includes first, and so on."""
        made = [header]
        while first[made[-1]] in bases and bases[first[made[-1]]] == bases[header]:
            made.append(first[made[-1]])
        return made

    def compiled(self, options, source=""):
        done = subprocess.run(self.command + options, input=source, capture_output=True, text=True)
        return done.stderr if done.returncode != 0 else ""

    def path_of(self, base):
        return os.path.join(self.folder, base.replace("/", "."))

    def prepare(self, base):
        """Precompiles a base; gives what is wrong with it."""
        with open(self.path_of(base), "w", encoding="utf-8") as header:
            header.write(HOSTILE + f"#include <{base}>\n")
        return self.compiled(["-xc++-header", self.path_of(base), "-o", self.path_of(base) + ".gch"])

    def fault(self, base, chain):
        """What the compiler says of a source that includes the headers of a chain, the first of them in front."""
        source = "".join(f"#include <{header}>\n" for header in chain[:1] + chain)
        options = ["-include", self.path_of(base)] if base else []
        said = self.compiled(options + ["-fsyntax-only", "-xc++", "-"], source if base else HOSTILE + source)
        return said and f"one of these does not stand alone: {', '.join(chain)}\n{said}"


def faults(compiler, include, tests):
    """The number of headers, that of sources, and a text for each that is wrong."""
    paths = sorted(os.path.relpath(os.path.join(folder, name), include)
                   for folder, _, names in os.walk(include) for name in names if name.endswith((".hpp", ".cuh")))
    paths = [path for path in paths if not needs_more(os.path.join(include, path))]
    read = {path: includes(os.path.join(include, path)) for path in paths}
    closure = closures({path: [other for other in others if other in read] for path, (others, _) in read.items()})
    first = {path: others[0] if leads else None for path, (others, leads) in read.items()}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        kinds = []
        for kind, shim in ((".hpp", []), (".cuh", ["-I", tests] + SHIM)):
            of_kind = [path for path in paths if path.endswith(kind)]
            if of_kind:
                os.mkdir(os.path.join(folder, kind))
                kinds.append(Kind([compiler, "-I", include] + shim + FLAGS, of_kind, closure, first,
                                  os.path.join(folder, kind)))
        bases = {(kind, base) for kind in kinds for base, _ in kind.sources if base}
        found = [said for said in pool.map(lambda each: each[0].prepare(each[1]), bases) if said]
        sources = [(kind, base, chain) for kind in kinds for base, chain in kind.sources]
        if not found:
            found = [said for said in pool.map(lambda each: each[0].fault(each[1], each[2]), sources) if said]
    return len(paths), len(sources), found


def self_test(compiler):
    right = {"zoomr/a.hpp": "#pragma once\ninline int a() { return 1; }\n",
             "zoomr/b.hpp": "#pragma once\n#include <zoomr/a.hpp>\n#include <zoomr/c.hpp>\ninline int b() { return a(); }\n",
             "zoomr/c.hpp": "#pragma once\ninline int c() { return 1; }\n"}
    wrong = {"a needs what nobody includes": {"zoomr/a.hpp": "#pragma once\ninline int a() { return c(); }\n"},
             "b needs what stands before it": {"zoomr/b.hpp": "#pragma once\ninline int b() { return a(); }\n"},
             "c comes twice": {"zoomr/c.hpp": "inline int c() { return 1; }\n"},
             "c warns": {"zoomr/c.hpp": "#pragma once\ninline int c(int x) { return 1; }\n"},
             "c uses a name that is a macro": {"zoomr/c.hpp": "#pragma once\ninline int c() { int I = 1; return I; }\n"}}
    for name, change in {"": {}, **wrong}.items():
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "zoomr"))
            for path, text in {**right, **change}.items():
                with open(os.path.join(folder, path), "w", encoding="utf-8") as header:
                    header.write(text)
            if bool(faults(compiler, folder, folder)[2]) != bool(name):
                sys.exit(f"not noticed: {name}" if name else "right headers are refused")
    print("what does not stand alone is noticed")


def main():
    if sys.argv[1] == "--self-test":
        return self_test(sys.argv[2])
    began = time.monotonic()
    headers, sources, found = faults(*sys.argv[1:4])
    print("\n".join(found) or f"{headers} headers stand alone: {sources} sources, {time.monotonic() - began:.0f} s")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
