# SPDX-License-Identifier: Apache-2.0
"""A run of zoomr-decode that was recorded, replayed under its own policy, has the run's statistics to the last bit. And
what --advise says of such a trace.

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

MEMBERS = {"fixed_pages": "segment", "observation_window": "evict", "accumulated_attention": "evict",  # of a policy
           "redundancy_aware": "evict", "fill_budget": "select", "top_k": "select", "zones": "zone"}


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
                share = stats["agreeability_sum"] / stats["agreeability_count"] if stats["agreeability_count"] else None
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


def options(text):
    return dict(word.split("=") for word in text.split())


class Advice(unittest.TestCase):
    """Of all presets that can work on a trace, and of named ones."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        name = os.path.join(cls.folder.name, "run")
        run(DECODE, "--model", MODEL, "--delimiters", ";", "--prompt", PROMPT, "--max-tokens", "150", "--record", name)
        cls.files = sorted(glob.glob(name + "-*"))
        listed = run(DECODE, "--list-policies").stdout.split("\n\n")
        cls.presets = {block.split()[0]: options(block.split("--set ")[1]) for block in listed if block.strip()}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def advice(self, *more):
        """All runs by name; of the listed ones, in order, the cost and the C++."""
        path = os.path.join(self.folder.name, "numbers.json")
        said = run(REPLAY, *self.files, "--advise", "--json", path, *more).stdout
        with open(path, encoding="utf-8") as file:
            runs = {one["policy"]: one for one in json.load(file)["runs"]}
        table, *values = said[said.index("\nOf "):].split("\n// ")
        rows = [line.split()[0] for line in table.strip().splitlines()[2:]]
        values = dict(value.split("\n", 1) for value in values)
        self.assertEqual(list(values), rows)
        return runs, values

    def front(self, runs):
        """Written anew: names by rising error."""
        costs = {name: (one["error"], one["tiers"]["bytes_in"] - one["prompt_bytes_in"] if one["tiers"] else one["stats"]["device_peak"])
                 for name, one in runs.items() if one["conclusive"] or name == "full"}
        beaten = {a for a, x in costs.items() for y in costs.values() if x != y and y[0] <= x[0] and y[1] <= x[1]}
        return sorted(costs.keys() - beaten, key=lambda name: costs[name])

    def test_every_preset_that_can_work_is_tried_and_those_that_no_other_beats_are_listed(self):
        runs, values = self.advice()
        tried = {name.split("@")[0] for name in runs}
        # no weights of voters; three pages of 32 tokens are more than half of the text
        self.assertEqual(self.presets.keys() - tried, {"zoomr_voters", "sentence_voters", "arkvale"})
        self.assertGreater(len(runs), 20)
        self.assertEqual(sorted(values), sorted(self.front(runs)))
        self.assertGreater(len(values), 3)
        for name, value in values.items():
            changed = {}
            for line in value.splitlines():
                if line.startswith("  value."):
                    member, text = line.removeprefix("  value.").rstrip(";").split(" = ")
                    changed[member] = text.split("::")[-1]
            before, after = self.presets[name.split("@")[0]], options(runs[name]["options"])
            wanted = {}
            for option, text in after.items():
                component, field = option.split(".")
                if before[option] != text:
                    wanted[MEMBERS[component] + "." + field] = text
            self.assertEqual(changed, wanted, name)
            self.assertIn("zoomr::presets::" + name.split("@")[0], value)

    def test_with_a_device_transfers_are_the_cost(self):
        runs, values = self.advice("--policy", "full,window@48,quest@48,sentence_box@96", "--device-bytes", "384KiB")
        self.assertEqual(list(values), self.front(runs))
        self.assertGreater(runs["full"]["tiers"]["bytes_in"], runs["window@48"]["tiers"]["bytes_in"])
        self.assertGreater(len(values), 1)


unittest.main(argv=sys.argv[:1])
