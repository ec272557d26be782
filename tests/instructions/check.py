#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts the instructions of each part of a step, and compares them with those written down.

check.py PROGRAM COUNTS "COMPILER VERSION" [--write]

Fails if a part takes over 5 % more than COUNTS says; prints what has become less by so much, so that it can be written
down (--write). Valgrind has no AVX-512: what is counted is the path of AVX2. Exit status 77, skipped: there is no
valgrind, COUNTS is of another compiler, or the processor has no AVX2.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

# Copies by loops, whatever the processor thinks of its string instructions.
ENVIRONMENT = os.environ | {"GLIBC_TUNABLES": "glibc.cpu.x86_rep_movsb_threshold=4611686018427387904:"
                                              "glibc.cpu.x86_rep_stosb_threshold=4611686018427387904"}
POLICIES = ("full", "sentence_kv", "zoomr_focus", "snapkv")
MOST = 1.05


def counted(program, policy):
    """{part: instructions} of one policy, those of what it calls included."""
    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "out")
        path = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, program, policy],
                              check=True, capture_output=True, text=True, env=ENVIRONMENT).stdout.strip()
        if path != "avx2":
            print(f"the path of this processor is {path}, the counts are those of avx2")
            sys.exit(77)
        lines = subprocess.run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", out], check=True,
                               capture_output=True, text=True).stdout
    parts = {}
    for number, part in re.findall(r"^\s*([\d,]+) .*\bpart_(\w+)<", lines, re.MULTILINE):
        # A function has a line for each file that lines of it are from; the largest is of all that it calls.
        parts[part] = max(parts.get(part, 0), int(number.replace(",", "")))
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("counts")
    parser.add_argument("compiler")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    if not shutil.which("valgrind") or not shutil.which("callgrind_annotate"):
        print("there is no valgrind")
        return 77
    known = {}
    if not given.write:
        with open(given.counts, encoding="utf-8") as file:
            compiler, *rows = [line.strip() for line in file if not line.startswith("#")]
        if compiler != given.compiler:
            print(f"the counts are those of {compiler}, this is {given.compiler}")
            return 77
        known = {name: int(number) for name, number in (row.split() for row in rows)}
    found = {f"{policy}/{part}": number for policy in POLICIES
             for part, number in sorted(counted(given.program, policy).items())}
    if given.write:
        with open(given.counts, "w", encoding="utf-8") as file:
            file.write("# Instructions of the parts of a step (check.py says how they are counted).\n"
                       f"{given.compiler}\n" + "".join(f"{name} {number}\n" for name, number in found.items()))
        return 0
    faults = [f"{name} is not counted any more" for name in known if name not in found]
    for name, number in found.items():
        if name not in known:
            faults.append(f"{name}: {number} instructions, not written down")
        elif number > MOST * known[name]:
            faults.append(f"{name}: {number} instructions, {number / known[name] - 1:.1%} more than {known[name]}")
        elif number * MOST < known[name]:
            print(f"{name}: {number} instructions, fewer than {known[name]}: write it down")
    print("\n".join(faults) or f"{len(found)} parts take no more instructions than before")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
