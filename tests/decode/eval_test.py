# SPDX-License-Identifier: Apache-2.0
"""The program zoomr-eval: what it measures must not get worse, what it prints, what it refuses, how it goes on.

    python3 eval_test.py PROGRAM LEDGER RESULTS
"""
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, LEDGER, RESULTS = sys.argv[1:4]
INDEXED = os.path.join(LEDGER, "checkpoints", "indexed")


def run(*arguments):
    return subprocess.run([PROGRAM, "ledger", "--model", INDEXED, *map(str, arguments)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=600)


def runs_of(*arguments):
    done = run(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["runs"]


class Accuracy(unittest.TestCase):
    def test_no_policy_is_less_accurate_than_the_interval_that_was_measured(self):
        with open(os.path.join(RESULTS, "evidence.json")) as f:
            measured = json.load(f)["studies"]["reduced"]
        policies = [r["policy"] for r in measured["runs"]]
        self.assertIn("zoomr_focus", policies)
        found = runs_of("--problems", measured["problems"], "--free-problems", 0, "--policies", ",".join(policies), "--jobs", 2)
        for now, then in zip(found, measured["runs"]):
            for key in ("fine_accuracy", "coarse_accuracy"):
                with self.subTest(policy=now["policy"], key=key):
                    self.assertGreaterEqual(now[key], then[key + "_interval"][0])
            with self.subTest(policy=now["policy"], key="attended"):
                self.assertLessEqual(now["attended_tokens_mean"], 1.01 * then["attended_tokens_mean"])
                self.assertLessEqual(now["resident_bytes_peak"], 1.01 * then["resident_bytes_peak"])

    def test_permuted_values_make_a_policy_that_reads_them_fail(self):
        for r in runs_of("--problems", 4, "--free-problems", 0, "--task", "permuted", "--policies", "full,zoomr_focus"):
            self.assertLess(r["fine_accuracy"], 0.2)

    def test_summaries_alone_are_not_enough_even_less_if_they_never_saw_their_thoughts(self):
        for r in runs_of("--problems", 4, "--free-problems", 0, "--policies", "summary_only,summaries_apart"):
            self.assertLess(r["fine_accuracy"], 0.2)


class Output(unittest.TestCase):
    def test_the_documented_keys(self):
        full, zoomed = runs_of("--problems", 2, "--policies", "full,zoomr_mass+best_segments.segments=1")
        for r in (full, zoomed):
            for key in ("policy", "fine_accuracy", "fine_accuracy_free", "coarse_accuracy", "exact_match",
                        "attended_tokens_mean", "resident_bytes_peak", "fine_accuracy_interval"):
                self.assertIn(key, r)
            low, high = r["fine_accuracy_interval"]
            self.assertLessEqual(low, r["fine_accuracy"])
            self.assertLessEqual(r["fine_accuracy"], high)
        self.assertLess(zoomed["resident_bytes_peak"], full["resident_bytes_peak"])
        self.assertIn("best_segments.segments=1 ", zoomed["options"])
        self.assertNotIn("found", full)
        self.assertIn("agreeability_right", zoomed)

    def test_each_task_runs_and_full_attention_answers(self):
        for task in ("continued", "turns", "single", "multi_query", "multi_value"):
            with self.subTest(task=task):
                self.assertEqual(runs_of("--problems", 1, "--task", task, "--policies", "full")[0]["task"], task)

    def test_csv_has_a_line_for_each_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "runs.csv")
            runs_of("--problems", 1, "--policies", "full,oracle", "--csv", path)
            with open(path, newline="") as f:
                rows = list(csv.DictReader(f))
            self.assertEqual([r["policy"] for r in rows], ["full", "oracle"])
            self.assertEqual(rows[0]["found"], "")

    def test_it_goes_on_where_it_was_stopped(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "units.jsonl")
            arguments = ("--policies", "full,zoomr", "--resume", path)
            whole = runs_of("--problems", 2, *arguments)
            with open(path) as f:
                lines = f.readlines()
            self.assertEqual(len(lines), 4)
            with open(path, "w") as f:                 # stopped while the third was being written
                f.writelines(lines[:2] + [lines[2][:40]])
            again = runs_of("--problems", 2, *arguments)
            for r in whole + again:
                del r["tokens_per_second"]
            self.assertEqual(again, whole)
            with open(path) as f:
                self.assertEqual(len(f.readlines()), 4)
            with open(path, "a") as f:
                f.write('{"something": "else"}\n')
            self.assertRegex(run("--problems", 2, *arguments).stderr, "line 5 is not a unit of a study")


class Refusals(unittest.TestCase):
    def refused(self, sentence, *arguments):
        done = run("--problems", 1, *arguments)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertIn(sentence, done.stderr)

    def test_with_one_sentence(self):
        self.refused('there is no policy "zoom"', "--policies", "zoom")
        self.refused('there is no task "nap"', "--task", "nap")
        self.refused("after @ there must be a budget", "--policies", "quest@many")
        self.refused("after @ there must be a budget", "--policies", "quest@0")
        self.refused("it has no option zones.colour=1", "--policies", "full+zones.colour=1")
        self.refused("must be component.field=value", "--policies", "full+wide")
        self.refused("this checkpoint has 32 names", "--registers", 64, "--policies", "full")
        self.refused("the model's context is 2048", "--registers", 32, "--lines", 64, "--policies", "full")
        self.refused("cannot be written", "--policies", "full", "--resume", "/nowhere/units")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
