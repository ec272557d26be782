# SPDX-License-Identifier: Apache-2.0
"""The decoder without and with zoomr: how far the two files differ, and what both programs write.

    python3 engine_hook_test.py BEFORE AFTER REPOSITORY
"""
import os
import re
import subprocess
import sys
import unittest

BEFORE, AFTER, REPOSITORY = sys.argv[1:4]
PROBLEMS = [
    "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>",
    "<bos> k = #03 ; h = #88 ; b = k [ @21 ] ; n = h [ @3 ] ; c = k [ last ] ; a = b [ @14 ] ; <go>",
]
# They need not write the right text: by thoughts, sentences and pages, with and without eviction.
POLICIES = ("window", "zoomr_one_pass", "sentence_box", "quest", "h2o", "summary_only")


def run(program, *arguments):
    done = subprocess.run([os.path.abspath(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, cwd="/", timeout=300)
    return done.returncode, done.stdout, done.stderr


def written(program, *arguments):
    """The text, and the numbers that are printed after it."""
    code, printed, complaint = run(program, *arguments)
    if (code, complaint) != (0, ""):
        raise AssertionError(f"{program} {arguments}: exit code {code}, {complaint}")
    text, *rest = printed.split("\n", 1)
    return text.split(), [float(number) for number in re.findall(r": ([\d.]+)", rest[0])]


class Difference(unittest.TestCase):
    def test_at_most_40_lines_are_added_or_removed(self):
        folder = os.path.join(REPOSITORY, "examples", "engines")
        shown = subprocess.run(["diff", "-u", "engine_before.cpp", "engine_after.cpp"], stdout=subprocess.PIPE,
                               text=True, cwd=folder).stdout.splitlines()[2:]
        changed = [line for line in shown if line[0] in "+-"]
        self.assertIn("+      step.append(", "\n".join(changed))
        self.assertLessEqual(len(changed), 40)

    def test_the_plain_decoder_knows_nothing_of_zoomr(self):
        for name in ("engine_before.cpp", "checkpoint.hpp"):
            with open(os.path.join(REPOSITORY, "examples", "engines", name), encoding="utf-8") as f:
                self.assertNotIn("zoomr/", f.read())


class Text(unittest.TestCase):
    def test_under_full_it_is_that_of_the_plain_decoder(self):
        for problem in PROBLEMS:
            text, numbers = written(BEFORE, problem)
            self.assertEqual(text[-1], "<ans>")
            self.assertGreater(len(text), 300)
            same, numbers_after = written(AFTER, problem, "full")
            self.assertEqual(same, text)
            self.assertAlmostEqual(numbers_after[0], numbers[0], 5)
            # Each token after the prompt attends to all tokens up to it; the last one was never passed.
            prompt, end = len(problem.split()), len(problem.split()) + len(text) - 1
            self.assertAlmostEqual(numbers_after[1], (prompt + 1 + end) / 2, 1)

    def test_a_policy_finds_the_same_by_reading_less(self):
        for problem in PROBLEMS:
            text, _ = written(BEFORE, problem)
            for policy in ((), ("zoomr_focus",), ("zoomr_second_pass",)):
                found, numbers = written(AFTER, problem, *policy)
                self.assertEqual(found, text)
                self.assertLess(numbers[1], 0.9 * (len(problem.split()) + len(text) / 2))

    def test_a_policy_that_forgets_writes_something_else(self):
        text, _ = written(BEFORE, PROBLEMS[0])
        other, numbers = written(AFTER, PROBLEMS[0], "summary_only")
        self.assertNotEqual(other, text)
        self.assertLess(numbers[1], 150)

    def test_any_policy_runs(self):
        for policy in POLICIES:
            text, numbers = written(AFTER, PROBLEMS[0], policy)
            self.assertEqual(text[:2], ["<thought>", "a"])
            self.assertGreater(numbers[1], 16)

    def test_what_is_refused(self):
        for program, arguments, complaint in ((BEFORE, ["<bos> zoom"], "the word zoom"),
                                              (AFTER, ["<bos> zoom"], "the word zoom"),
                                              (BEFORE, [""], "no words"), (AFTER, [""], "no words"),
                                              (AFTER, [PROBLEMS[0], "zoom"], "there is no policy zoom")):
            code, printed, said = run(program, *arguments)
            self.assertEqual((code, printed), (2, ""))
            self.assertTrue(said.startswith(f"{os.path.abspath(program)}: "), said)
            self.assertIn(complaint, said)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
