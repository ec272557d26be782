# SPDX-License-Identifier: Apache-2.0
"""A run of zoomr-decode that was recorded, replayed under its own policy, has the run's statistics to the last bit.

    python3 replay_recorded_test.py DECODE REPLAY STUDIES
"""
import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

DECODE, REPLAY, STUDIES = sys.argv[1:4]
MODEL = os.path.join(STUDIES, "ledger", "checkpoints", "indexed")
PROMPT = "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; e = #17 ; f = c [ last ] ; <go>"
# One pass each; two of them choose by thoughts and sentences, two evict, one has windows alone, one keeps pages.
POLICIES = ["full", "window+zones.recent=40", "zoomr_focus", "sentence_box@48+zones.sinks=4+zones.recent=12",
            "quest@64+zones.dense_layers=1", "snapkv@32",
            "h2o+accumulated_attention.tokens=64+accumulated_attention.recent=32"]


def words(policy):
    """NAME@BUDGET+SETTING... as zoomr-decode takes it."""
    name, *settings = policy.split("+")
    name, _, budget = name.partition("@")
    return ["--policy", name, *(["--budget", budget] if budget else []), *(w for s in settings for w in ("--set", s))]


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done


class Recorded(unittest.TestCase):
    def both(self, policy, *more):
        with tempfile.TemporaryDirectory() as folder:
            name, path = os.path.join(folder, "run"), os.path.join(folder, "replay.json")
            done = run(DECODE, "--model", MODEL, "--delimiters", ";", "--prompt", PROMPT, "--max-tokens", "300",
                       "--json", "--record", name, *words(policy))
            files = sorted(glob.glob(name + "-*"))
            run(REPLAY, *files, "--policy", policy, "--json", path, *more)
            with open(path, encoding="utf-8") as file:
                replayed = json.load(file)
        return json.loads(done.stdout)["runs"][0], replayed, len(files)

    def test_its_statistics_are_those_of_the_run(self):
        active = 0
        for policy in POLICIES:
            with self.subTest(policy=policy):
                ran, replayed, files = self.both(policy)
                again, stats = replayed["runs"][0], replayed["runs"][0]["stats"]
                self.assertGreater(files, 1)
                self.assertGreater(ran["stats"]["tokens"], 200)
                for name in ("prompt_tokens", "tokens", "refreshes", "zooms", "chosen"):
                    self.assertEqual(stats[name], ran["stats"][name], name)
                share = stats["agreeability_sum"] / stats["agreeability_count"] if stats["agreeability_count"] else 0
                self.assertEqual(share, ran["stats"]["agreeability"])
                self.assertEqual(stats["passes"], ran["passes"])
                self.assertEqual(stats["attended_tokens_mean"], ran["attended_tokens_mean"])
                self.assertEqual(stats["device_peak"], ran["device_bytes_peak"])
                for name, size in ran["bytes"].items():
                    self.assertEqual(again["bytes"][name], size, name)
                self.assertEqual(again["options"], ran["stats"]["options"])
                self.assertEqual(replayed["trace"]["model"], "indexed")
                active += again["active"] > 0
        self.assertEqual(active, len(POLICIES) - 1)


unittest.main(argv=sys.argv[:1])
