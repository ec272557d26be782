#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants faults in a copy of the project, one at a time, and checks that the test that is said to notice each does.

run.py SOURCE_DIR BUILD_DIR                 all faults of faults.json: up to half an hour
run.py SOURCE_DIR BUILD_DIR --quick         those whose tests compile in a few seconds; first that run.py finds what is
                                            wrong with a fault itself
run.py SOURCE_DIR BUILD_DIR --apply         whether each applies; nothing is compiled
run.py SOURCE_DIR BUILD_DIR --only WORD...  those with one of the words in what is said of them
  --jobs N          processes that compile
  --cmake ARGUMENT  another argument for the configuration of the copy, as --cmake=-DCMAKE_CXX_COMPILER=g++-13

A fault replaces `old` by `new` in a header. `old` must stand there once: where a header was changed, the fault says so
and is brought up to date. The program `test` is built with the preset `test`, and the first failure in the test cases
that begin with `case` ends it. Exit status 1 if a fault does not apply, does not compile, or is not noticed.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
NEEDED = ["CMakeLists.txt", "CMakePresets.json", "LICENSE", "README.md", "docs", "include", "tests"]
LONGEST = 900  # seconds of a test
PLAIN = {"fault": "none", "file": "core/version.hpp", "old": "#pragma once", "new": "#pragma once"}


class Wrong(Exception):
    pass


def header_for(root, fault):
    """Where the fault applies."""
    header = root / "include/zoomr" / fault["file"]
    if not header.exists():
        raise Wrong(f"does not apply: there is no {fault['file']}")
    found = header.read_text(encoding="utf-8").count(fault["old"])
    if found != 1:
        raise Wrong(f"does not apply: {fault['file']} has {found} times {fault['old']!r}")
    return header


class Tree:
    """A copy of the project, with a build folder that is kept from fault to fault."""

    def __init__(self, source, folder, jobs, arguments):
        self.root = folder / "tree"
        self.jobs = jobs
        self.copy(source)
        self.call(["cmake", "--preset", "test", "-DZOOMR_CACHES_ONCE=OFF", *arguments], "cannot be configured")
        presets = json.loads((self.root / "CMakePresets.json").read_text(encoding="utf-8"))["testPresets"]
        self.environment = next(preset["environment"] for preset in presets if preset["name"] == "test")

    def copy(self, source):
        """Files that are the same keep their times, so that little is compiled again."""
        fresh = self.root.with_name("fresh")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(parents=True)
        for name in NEEDED:
            (shutil.copytree if (source / name).is_dir() else shutil.copy)(source / name, fresh / name)
        for old in [path for path in self.root.rglob("*") if path.is_file()]:
            name = old.relative_to(self.root)
            if name.parts[0] != "build" and not (fresh / name).exists():
                old.unlink()
        for path in [path for path in fresh.rglob("*") if path.is_file()]:
            to = self.root / path.relative_to(fresh)
            if not to.exists() or to.read_bytes() != path.read_bytes():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, to)
        shutil.rmtree(fresh)

    def call(self, command, otherwise):
        done = subprocess.run(command, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise Wrong(f"{otherwise}:\n{done.stdout[-3000:]}")

    def notices(self, fault):
        """Whether its test fails."""
        self.call(["cmake", "--build", "--preset", "test", "--target", fault["test"], "--parallel", str(self.jobs)],
                  "does not compile")
        case = fault["case"].replace(",", "\\,")
        command = [self.root / "build/test/bin" / fault["test"], f"--test-case={case}*", "--abort-after=1"]
        try:
            done = subprocess.run(command, cwd=self.root, env={**os.environ, **self.environment}, timeout=LONGEST,
                                  capture_output=True)
        except subprocess.TimeoutExpired:
            return True
        if done.returncode != 0 and b"TEST CASE:" not in done.stdout:
            raise Wrong(f"ends {fault['test']} before a test case fails:\n{done.stderr[-1000:].decode()}")
        return done.returncode != 0

    def try_fault(self, fault):
        header = header_for(self.root, fault)
        right = header.read_text(encoding="utf-8")
        header.write_text(right.replace(fault["old"], fault["new"]), encoding="utf-8")
        try:
            if not self.notices(fault):
                raise Wrong(f"is not noticed by {fault['test']} ({fault['case']})")
        finally:
            header.write_text(right, encoding="utf-8")


def check_itself(tree, fault):
    """What is no fault, does not apply or does not compile is found; so a test fails for its fault alone."""
    for what, change in [("is not noticed", PLAIN), ("does not apply", {"old": "no header has this"}),
                         ("does not apply", {"file": "no_header.hpp"}), ("does not compile", {"new": "#error"})]:
        try:
            tree.try_fault({**fault, **change})
        except Wrong as wrong:
            if str(wrong).startswith(what):
                continue
        return f"faults: run.py does not find that a fault {what}"
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--apply", action="store_true")
    parser.add_argument("--only", nargs="+", default=[""])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--cmake", action="append", default=[])
    options = parser.parse_args()
    faults = [fault for fault in json.loads((HERE / "faults.json").read_text(encoding="utf-8"))
              if any(word in fault["fault"] for word in options.only) and (fault.get("quick") or not options.quick)]
    if options.apply:
        try:
            for fault in faults:
                header_for(options.source, fault)
        except Wrong as wrong:
            return f"\"{fault['fault']}\" {wrong}"
        return None if faults else "faults: there are none"
    tree = Tree(options.source.resolve(), options.build.resolve(), options.jobs, options.cmake)
    if options.quick:
        bad = check_itself(tree, faults[0])
        if bad:
            return bad
    missed = 0
    for fault in faults:
        began = time.monotonic()
        try:
            tree.try_fault(fault)
            said = f"is noticed by {fault['test']}"
        except Wrong as wrong:
            said = str(wrong)
            missed += 1
        print(f"{time.monotonic() - began:5.0f} s  \"{fault['fault']}\" {said}", flush=True)
    return f"faults: {missed} of {len(faults)} were missed" if missed or not faults else None


if __name__ == "__main__":
    sys.exit(main())
