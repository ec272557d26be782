# SPDX-License-Identifier: Apache-2.0
"""What commits.py says of results whose differences are known."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "commits.py")


class Commits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def results(self, name, rows, **context):
        path = os.path.join(self.folder.name, name)
        known = {"host_name": "h", "num_cpus": 2, "compiler": "GNU 12", "flags": "-O3", "processor_path": "avx2",
                 "commit": name}
        benchmarks = [{"run_name": f"{row}/iterations:24/manual_time", "run_type": "iteration", "time_unit": "us",
                       "real_time": time} for row, times in rows.items() for time in times]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"context": known | context, "benchmarks": benchmarks}, file)
        return path

    def say(self, before, after):
        done = subprocess.run([sys.executable, PROGRAM, "--before", *before, "--after", *after], capture_output=True,
                              text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    def test_what_is_more_than_chance_is_said(self):
        old = self.results("one", {"a": [9, 10, 11], "b": [9, 10, 11], "c": [9, 10, 11], "gone": [1]})
        new = self.results("two", {"a": [19, 20, 21], "b": [8, 10.5, 12], "c": [4, 5, 6]})
        status, said = self.say([old], [new])
        self.assertEqual(status, 0, said)
        self.assertRegex(said, r"(?m)^a +10[.]00 +20[.]00 +2[.]000  slower$")
        self.assertRegex(said, r"(?m)^b .* 1[.]050  within noise$")
        self.assertRegex(said, r"(?m)^c .* 0[.]500  faster$")
        self.assertIn("alone, or failed: gone", said)

    def test_runs_of_one_side_are_joined(self):
        runs = [self.results("one", {"a": [10, 10]}), self.results("again", {"a": [30, 30, 30]}, commit="one")]
        self.assertRegex(self.say(runs, [self.results("two", {"a": [30]})])[1], r"(?m)^a +30[.]00 +30[.]00 +1[.]000 ")

    def test_what_cannot_be_compared_is_refused(self):
        old = self.results("one", {"a": [1]})
        for context in ({"flags": "-O2"}, {"processor_path": "avx512"}, {"compiler": "Clang 14"}, {"host_name": "g"}):
            status, said = self.say([old], [self.results("two", {"a": [1]}, **context)])
            self.assertEqual(status, 2, said)
            self.assertIn(f"{next(iter(context))} is", said)
        self.assertIn("no row is in both", self.say([old], [self.results("two", {"b": [1]})])[1])
        self.assertIn("its commit is", self.say([old, self.results("two", {"a": [1]})], [old])[1])
        self.assertIn("no results of a benchmark", self.say([__file__], [old])[1])


if __name__ == "__main__":
    unittest.main()
