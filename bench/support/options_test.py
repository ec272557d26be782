# SPDX-License-Identifier: Apache-2.0
"""What the options of a benchmark program do, and what its JSON says of the build.

    python3 options_test.py PROGRAM SOURCE     PROGRAM: host_bench with the rows of no_host_rows.cpp
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, SOURCE = sys.argv[1:3]


def measured(*options):
    """The JSON, and of it the rows that are repetitions."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        done = subprocess.run([PROGRAM, f"--benchmark_out={path}", "--benchmark_out_format=json", *options],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        with open(path, encoding="utf-8") as file:
            said = json.load(file)
    return said, [row for row in said["benchmarks"] if row["run_type"] == "iteration"]


class Options(unittest.TestCase):
    def test_a_row_has_iterations_and_repetitions_of_its_own(self):
        rows = measured()[1]
        self.assertEqual([row["iterations"] for row in rows], [3] * 5)

    def test_repetitions_are_as_many_as_said(self):
        self.assertEqual(len(measured("--benchmark_repetitions=9")[1]), 9)

    def test_a_repetition_lasts_as_long_as_said(self):
        rows = measured("--benchmark_min_time=0.05", "--benchmark_repetitions=2")[1]
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertGreaterEqual(row["iterations"], 50)
            self.assertAlmostEqual(row["real_time"], 1000, delta=1)  # of one, in us
            self.assertAlmostEqual(row["two"], 2, places=6)
            self.assertAlmostEqual(row["bytes_per_second"], 8000, delta=8)

    def test_the_json_says_what_was_built(self):
        context = measured()[0]["context"]
        git = subprocess.run(["git", "-C", SOURCE, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        self.assertEqual(context["commit"].removesuffix("-dirty"), git.stdout.strip() or "unknown")
        self.assertRegex(context["flags"], "-O[0-3g]")
        self.assertIn(context["processor_path"], ("portable", "avx2", "avx512", "avx512_bf16", "neon"))
        self.assertRegex(context["compiler"], r"^[A-Za-z]+ [0-9]+[.]")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
