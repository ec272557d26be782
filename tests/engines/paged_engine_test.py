# SPDX-License-Identifier: Apache-2.0
"""The engine with pages of its own: it writes what engine_after.cpp writes, whose cache has the pages, and the cache
holds no key or value.

    python3 paged_engine_test.py PAGED AFTER
"""
import re
import subprocess
import sys
import unittest

PAGED, AFTER = sys.argv[1:3]
PROBLEM = "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = c [ @9 ] ; <go>"
PAGE = 32  # tokens


def printed(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, cwd="/", timeout=300)
    return done.returncode, done.stdout.splitlines(), done.stderr


class Paged(unittest.TestCase):
    def pages(self, line):
        used, of, held = map(int, re.findall(r"\d+", line))
        self.assertEqual(held, 0)
        self.assertEqual(of, 64)
        return used

    def test_the_text_is_that_of_a_cache_with_pages(self):
        for policy in ("full", "zoomr_focus", "zoomr_second_pass"):
            code, (first, second, pages), complaint = printed(PAGED, policy)
            self.assertEqual((code, complaint), (0, ""))
            self.assertEqual(first.split(), printed(AFTER, PROBLEM, policy)[1][0].split())
            self.assertNotEqual(second.split()[1], first.split()[0])
            prompt, written = len(PROBLEM.split()), len(first.split()) - 1  # the last word was never passed
            alone = -(-(prompt + written) // PAGE) + -(-(prompt + 16) // PAGE)
            # Only the page in which the prompt ends was copied: the full ones before it are in both tables.
            self.assertEqual(self.pages(pages), alone - prompt // PAGE)

    def test_an_eviction_in_shared_pages_copies_them_and_gives_pages_back(self):
        code, (first, _, pages), complaint = printed(PAGED, "h2o")
        self.assertEqual((code, complaint), (0, ""))
        self.assertGreater(len(first.split()), 200)
        self.assertLess(self.pages(pages), 10)  # 128 tokens and what has come since, of each text

    def test_an_unknown_policy_is_refused(self):
        code, lines, complaint = printed(PAGED, "zoom")
        self.assertEqual((code, lines), (2, []))
        self.assertIn("not zoom", complaint)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
