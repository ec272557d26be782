#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the headers cost the compiler: including them, and each policy that a program uses.

compile_time.py [--cxx g++] [--flags "-O2"] [--repeat 3]     on a processor that does nothing else

A source with the first 0, 1, 3 or 8 of POLICIES opens a cache of each and passes a prompt and tokens through it, as an
engine does. Printed: user and system seconds of the compiler (the least of the repetitions, which come in turn), and
the bytes of code and constants in the object. `each more` is the slope between 1 policy and 8.
"""
import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
POLICIES = ["sentence_kv", "zoomr_one_pass", "quest", "full", "zoomr_mass", "arkvale", "snapkv", "sentence_box"]
COUNTS = (0, 1, 3, 8)

ENGINE = """
#include <zoomr/zoomr.hpp>

template <class Cache>
void pass(Cache& cache, zoomr::sequence of, zoomr::view<const zoomr::token_id> ids, bool prompt_ends, float* numbers) {
  auto step = cache.begin(of, ids, prompt_ends);
  const zoomr::shape model = cache.model();
  do {
    const zoomr::extents<3> heads{{step.tokens(), model.heads, model.head_dim}};
    const zoomr::extents<3> kv_heads{{step.tokens(), model.kv_heads, model.head_dim}};
    for (int layer = 0; layer < model.layers; ++layer) {
      const zoomr::view<const float, 3> keys(numbers, kv_heads);
      step.append(layer, keys, keys);
      step.attend(layer, zoomr::view<const float, 3>(numbers, heads), zoomr::view<float, 3>(numbers, heads));
    }
  } while (step.needs_second_pass(step.taken(0)));
  step.commit();
}

template <class Policy>
void run(const Policy& policy, const zoomr::shape& model, const zoomr::config& limits, float* numbers,
         zoomr::view<const zoomr::token_id> ids) {
  zoomr::kv_cache cache(model, policy, limits);
  const zoomr::sequence of = cache.open();
  pass(cache, of, ids, true, numbers);
  pass(cache, of, ids.slice(0, 1), false, numbers);
  cache.rollback(of, cache.tokens(of) - 1);
  cache.close(of);
}
"""


def source(policies):
    if not policies:
        return "#include <zoomr/zoomr.hpp>\n"
    calls = "".join(f"  run(zoomr::presets::{name}, model, limits, numbers, ids);\n" for name in policies)
    return ENGINE + ("void run_all(const zoomr::shape& model, const zoomr::config& limits, float* numbers,\n"
                     "             zoomr::view<const zoomr::token_id> ids) {\n" + calls + "}\n")


def compiled(command, text, folder):
    """Seconds of the compiler, and bytes of code and constants in the object."""
    given, made = os.path.join(folder, "given.cpp"), os.path.join(folder, "made.o")
    with open(given, "w") as file:
        file.write(text)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*command, "-I", os.path.join(ROOT, "include"), "-c", given, "-o", made],
                          capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(done.stderr)
    sizes = subprocess.run(["size", made], capture_output=True, text=True, check=True).stdout.splitlines()[1].split()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, int(sizes[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cxx", default="g++")
    parser.add_argument("--flags", default="-O2")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    if given.repeat < 1:
        parser.error("--repeat must be at least 1")
    command = [given.cxx, "-std=c++20", *shlex.split(given.flags)]
    seconds, sizes = {count: [] for count in COUNTS}, {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(given.repeat):
            for count in COUNTS:
                took, sizes[count] = compiled(command, source(POLICIES[:count]), folder)
                seconds[count].append(took)
                if sys.stderr.isatty():
                    print(f"\r{turn + 1} of {given.repeat}, {count} policies ", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print(file=sys.stderr)
    least = {count: min(of) for count, of in seconds.items()}
    print(" ".join(command))
    print(f"{'policies':>10} {'s':>7} {'KiB':>7}")
    for count in COUNTS:
        print(f"{count:>10} {least[count]:7.2f} {sizes[count] / 1024:7.1f}")
    few, many = COUNTS[1], COUNTS[-1]
    slope = (least[many] - least[few]) / (many - few)
    print(f"{'each more':>10} {slope:7.2f} {(sizes[many] - sizes[few]) / (many - few) / 1024:7.1f}")


if __name__ == "__main__":
    main()
