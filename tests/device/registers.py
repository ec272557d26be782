#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels.cu and compares registers, stack and spills of each kernel with registers.txt.

registers.py --nvcc NVCC --include DIR             exit status 1 if a kernel is new, is missing, has changed, or spills
registers.py --nvcc NVCC --include DIR --update    writes the table
Registers depend on the compiler: with another release than the table's, only spills are an error. A spill is more than
MAY_SPILL bytes: now and then ptxas keeps one word in memory rather than take a register that would cost a whole block.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "registers.txt")
ARCHITECTURES = ("sm_80", "sm_90")
MAY_SPILL = 16


def parts_that_differ(found):
    """Of a policy those of its components that decide which kernels it needs."""
    evictor, aggregator, selector, refresh = found.groups()
    parts = [aggregator, selector, refresh]
    return f"policy<{', '.join(parts if evictor == 'keep_all' else [evictor] + parts)}>"


def plain(name):
    """A kernel's name as a reader would write it."""
    name = re.sub(r"zoomr::v0::|detail::|zoomr_test::", "", name)
    name = re.sub(r"policy<\w+, (\w+), .*?(head_votes|head_mass|pooled_score|pooled_mass), (\w+), (\w+), "
                  r".*?placement>", parts_that_differ, name)
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"\((int|unsigned int|long)\)", "", name)
    return name.split(">(")[0] + ">" if ">(" in name else name.split("(")[0]


def compiled(nvcc, include, arch):
    """What ptxas says of the kernels for one architecture."""
    with tempfile.TemporaryDirectory() as folder:
        command = [nvcc, "-std=c++20", f"-arch={arch}", "-I", include, "-Xptxas", "-v", "-cubin",
                   os.path.join(HERE, "kernels.cu"), "-o", os.path.join(folder, "kernels.cubin")]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stderr


def measured(nvcc, include):
    """{(architecture, kernel): (registers, stack, spill stores, spill loads)}"""
    found = {}
    with ThreadPoolExecutor(len(ARCHITECTURES)) as both:
        all_said = list(both.map(lambda arch: compiled(nvcc, include, arch), ARCHITECTURES))
    for arch, said in zip(ARCHITECTURES, all_said):
        names = re.findall(r"Compiling entry function '(\w+)'", said)
        demangled = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
        frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s+"
                            r"ptxas info\s*: Used (\d+) registers", said)
        assert len(names) == len(frames) > 0, "ptxas speaks another language"
        for name, (stack, stores, loads, registers) in zip(demangled.stdout.split("\n"), frames):
            found[arch, plain(name)] = (int(registers), int(stack), int(stores), int(loads))
    return found


def release(nvcc):
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+)", said).group(1)


def written(found, version):
    lines = [f"nvcc {version}: registers, bytes of stack, of spill stores, of spill loads"]
    lines += [f"{arch}  {n[0]:4} {n[1]:4} {n[2]:4} {n[3]:4}  {kernel}" for (arch, kernel), n in sorted(found.items())]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    version = release(options.nvcc)
    found = measured(options.nvcc, options.include)
    table = written(found, version)
    if options.update:
        with open(TABLE, "w", encoding="utf-8") as out:
            out.write(table)
    faults = [f"{arch}: {kernel} spills" for (arch, kernel), n in sorted(found.items()) if max(n[2:]) > MAY_SPILL]
    with open(TABLE, encoding="utf-8") as kept:
        before = kept.read()
    if before.startswith(f"nvcc {version}:") and before != table:
        old, new = before.splitlines(), table.splitlines()
        faults += [f"- {line}" for line in old if line not in new] + [f"+ {line}" for line in new if line not in old]
    print("\n".join(faults) or f"{len(found)} kernels are as in the table, and none spills more than {MAY_SPILL} bytes")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
