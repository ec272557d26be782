#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles kernels.cu and compares registers, stack and spills of each kernel with registers.txt, and what the main
loops of some of them execute with instructions.txt (instructions.py).

registers.py --nvcc NVCC --include DIR             exit status 1 if a kernel is new, is missing, has changed, or spills,
                                                   or executes more than its limit
registers.py --nvcc NVCC --include DIR --update    writes the tables
    --cuobjdump FILE   the disassembler of the CUDA Toolkit; without one the test fails: nothing would be counted
    --only ARCH        of the two, sm_80 or sm_90, whose instructions are counted
Both depend on the compiler: with another release than the table's, only spills and limits are errors. A spill is more
than MAY_SPILL bytes: now and then ptxas keeps one word in memory rather than take a register that would cost a whole
block.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import instructions

HERE = os.path.dirname(os.path.abspath(__file__))
TABLE = os.path.join(HERE, "registers.txt")
INSTRUCTIONS = os.path.join(HERE, "instructions.txt")
ARCHITECTURES = ("sm_80", "sm_90")
MAY_SPILL = 16
MAY_SPILL_WIDE = 80  # of keys of 576 numbers: a third block on an SM is worth a few loads for each tile


def parts_that_differ(found):
    """Of a policy those of its components that decide which kernels it needs."""
    evictor, aggregator, selector, refresh = found.groups()
    parts = [aggregator, selector, refresh]
    return f"policy<{', '.join(parts if evictor == 'keep_all' else [evictor] + parts)}>"


def plain(name):
    """A kernel's name as a reader would write it."""
    name = re.sub(r"zoomr::v0::|detail::|zoomr_test::", "", name)
    name = re.sub(r"policy<\w+, (\w+), .*?(head_votes|head_mass|head_posterior|pooled_score|pooled_mass), (\w+), (\w+), "
                  r".*?placement>", parts_that_differ, name)
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"\((int|unsigned int|long)\)", "", name)
    name = re.sub(r"^(gather_attend_kernel<\w+, (\d+), .*), values_apart<\2> >", r"\1 >", name)
    return name.split(">(")[0] + ">" if ">(" in name else name.split("(")[0]


def compiled(nvcc, include, arch, folder):
    """What ptxas says of the kernels for one architecture, whose code is in FOLDER/ARCH.cubin then."""
    command = [nvcc, "-std=c++20", f"-arch={arch}", "-I", include, "-Xptxas", "-v", "-cubin",
               os.path.join(HERE, "kernels.cu"), "-o", os.path.join(folder, f"{arch}.cubin")]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return done.stderr


def measured(nvcc, include, folder, architectures):
    """{(architecture, kernel): (registers, stack, spill stores, spill loads, shared)}"""
    found = {}
    with ThreadPoolExecutor(len(architectures)) as both:
        all_said = list(both.map(lambda arch: compiled(nvcc, include, arch, folder), architectures))
    for arch, said in zip(architectures, all_said):
        names = re.findall(r"Compiling entry function '(\w+)'", said)
        demangled = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
        frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\s+"
                            r"ptxas info\s*: Used (\d+) registers(?:.*?, (\d+) bytes smem)?", said)
        assert len(names) == len(frames) > 0, "ptxas speaks another language"
        for name, (stack, stores, loads, registers, shared) in zip(demangled.stdout.split("\n"), frames):
            found[arch, plain(name)] = (int(registers), int(stack), int(stores), int(loads), int(shared or 0))
    return found


def release(nvcc):
    said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    return re.search(r"release ([\d.]+)", said).group(1)


def written(found, version):
    lines = [f"nvcc {version}: registers, bytes of stack, of spill stores, of spill loads"]
    lines += [f"{arch}  {n[0]:4} {n[1]:4} {n[2]:4} {n[3]:4}  {kernel}" for (arch, kernel), n in sorted(found.items())]
    return "\n".join(lines) + "\n"


def compared(path, table, version, left_out):
    """How a table differs from the one that is kept, if it is of the same compiler; but for lines that begin so."""
    with open(path, encoding="utf-8") as kept:
        before = kept.read()
    if not before.startswith(f"nvcc {version}:") or before == table:
        return []
    old, new = [line for line in before.splitlines() if not line.startswith(left_out)], table.splitlines()
    return [f"- {line}" for line in old if line not in new] + [f"+ {line}" for line in new if line not in old]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--include", required=True)
    parser.add_argument("--cuobjdump", help="default: the one beside NVCC, or on PATH")
    parser.add_argument("--only", choices=ARCHITECTURES)
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    if options.only and options.update:
        parser.error("the tables have both architectures")
    architectures = (options.only,) if options.only else ARCHITECTURES
    left_out = tuple(f"{arch} " for arch in ARCHITECTURES if arch not in architectures)
    version = release(options.nvcc)
    places = os.pathsep.join([os.path.dirname(shutil.which(options.nvcc) or options.nvcc), os.environ.get("PATH", "")])
    cuobjdump = options.cuobjdump or shutil.which("cuobjdump", path=places)
    with tempfile.TemporaryDirectory() as folder:
        found = measured(options.nvcc, options.include, folder, architectures)
        tables = {TABLE: written(found, version)}
        faults = [f"{arch}: {kernel} spills" for (arch, kernel), n in sorted(found.items())
                  if max(n[2:4]) > (MAY_SPILL_WIDE if " 576, " in kernel or "<576, " in kernel else MAY_SPILL)]
        if "sm_90" not in architectures:
            pass
        elif cuobjdump:
            kernels = instructions.disassembled(cuobjdump, os.path.join(folder, "sm_90.cubin"), plain)
            of_sm_90 = {kernel: (n[0], n[4]) for (arch, kernel), n in found.items() if arch == "sm_90"}
            rows, passed = instructions.measured(kernels, of_sm_90)
            tables[INSTRUCTIONS] = "\n".join([f"nvcc {version}: instructions of sm_90"] + rows) + "\n"
            faults += passed
            print("\n".join(rows))
        else:
            faults.append("instructions cannot be counted: there is no cuobjdump beside nvcc or on the PATH (it comes "
                          "with the CUDA Toolkit, or as the pip packages nvidia-cuda-cuobjdump and "
                          "nvidia-cuda-nvdisasm)")
    for path, table in tables.items():
        if options.update:
            with open(path, "w", encoding="utf-8") as out:
                out.write(table)
        faults += compared(path, table, version, left_out)
    as_kept = f"{len(found)} kernels are as in the tables, and none spills more than {MAY_SPILL} bytes, or {MAY_SPILL_WIDE}"
    print("\n".join(faults) or as_kept)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
