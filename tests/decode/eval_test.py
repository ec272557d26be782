# SPDX-License-Identifier: Apache-2.0
"""The program zoomr-eval: what it measures must not get worse, what it prints, what it refuses, how it goes on.

    python3 eval_test.py PROGRAM STUDIES RESULTS
"""
import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, STUDIES, RESULTS = sys.argv[1:4]
INDEXED = os.path.join(STUDIES, "ledger", "checkpoints", "indexed")
BYTES = os.path.join(STUDIES, "bytes", "checkpoint")


def started(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=600)


def run(*arguments):
    return started("ledger", "--model", INDEXED, *arguments)


def runs_of(*arguments):
    done = run(*arguments, "--json")
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)["runs"]


class Accuracy(unittest.TestCase):
    def test_no_policy_is_less_accurate_than_the_interval_that_was_measured(self):
        with open(os.path.join(RESULTS, "evidence.json")) as f:
            measured = json.load(f)["studies"]["reduced"]
        names = {"zoomr_follow": "zoomr_focus+boundaries.at_most=1"}  # as it was measured: as it is written
        policies = [names.get(r["policy"], r["policy"]) for r in measured["runs"]]
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
        full, zoomed = runs_of("--problems", 2, "--policies", "full,zoomr_mass+top_k.segments=1")
        for r in (full, zoomed):
            for key in ("policy", "fine_accuracy", "fine_accuracy_free", "coarse_accuracy", "exact_match",
                        "attended_tokens_mean", "resident_bytes_peak", "fine_accuracy_interval"):
                self.assertIn(key, r)
            low, high = r["fine_accuracy_interval"]
            self.assertLessEqual(low, r["fine_accuracy"])
            self.assertLessEqual(r["fine_accuracy"], high)
        self.assertLess(zoomed["resident_bytes_peak"], full["resident_bytes_peak"])
        self.assertIn("top_k.segments=1 ", zoomed["options"])
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
            arguments = ("--policies", "full,zoomr_one_pass", "--resume", path)
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


class Perplexity(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        days = (f"On day {n * n} the prince spoke. Nobody answered him! " for n in range(60))
        self.text = self.write("text.txt", "".join(days))

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "wb") as f:
            f.write(content if isinstance(content, bytes) else content.encode())
        return path

    def command(self, *arguments, text=None):
        return ("perplexity", "--model", BYTES, "--text", text or self.text,
                "--contexts", "256,512", "--bytes", 64, "--passages", 2, *arguments)

    def measure(self, *arguments):
        done = started(*self.command(*arguments))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_json_has_each_policy_context_and_passage(self):
        document = json.loads(self.measure("--policies", "full,window@96,window@128,sentence_kv@96,sentence_kv@128", "--json"))
        groups = {(g["policy"], g["budget"], g["context"]): g for g in document["groups"]}
        columns = [("full", None)] + [(p, b) for p in ("window", "sentence_kv") for b in (96, 128)]
        self.assertEqual(set(groups), {(p, b, c) for c in (256, 512) for p, b in columns})
        self.assertEqual(len(document["rows"]), 2 * len(groups))
        for (policy, budget, context), g in groups.items():
            self.assertEqual(g["passages"], 2)
            self.assertGreater(g["bits_per_byte"], 0)
            self.assertLessEqual(g["attended_tokens_mean"], budget or context)
            self.assertAlmostEqual(g["bits_per_byte_beyond_full"],
                                   g["bits_per_byte"] - groups["full", None, context]["bits_per_byte"])
            self.assertGreater(g["device_bytes_peak"], 0)

    def test_controls_stand_beside_presets_and_blocks_add_up(self):
        document = json.loads(self.measure("--policies", "full,exact@96,window@96", "--json"))
        for row in document["rows"]:
            self.assertEqual(len(row["block_bits"]), 2)                                # 64 tokens
            self.assertAlmostEqual(sum(row["block_bits"]), row["bits"])
        groups = {(g["policy"], g["context"]): g for g in document["groups"]}
        self.assertLessEqual(groups["exact", 512]["attended_tokens_mean"], 96)
        self.assertLess(abs(groups["exact", 512]["bits_per_byte_beyond_full"]),
                        abs(groups["window", 512]["bits_per_byte_beyond_full"]))

    def test_layers_read_what_those_have_chosen_that_were_found(self):
        table = os.path.join(self.folder.name, "anchors.json")

        def learn(*arguments):
            return started("anchors", "--model", BYTES, "--text", self.text, "--context", 256, "--passages", 2,
                           "--budget", 96, "--out", table, *arguments)
        done = learn("--layers", 2, "--with", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("They are 0 2.", done.stdout)
        with open(table) as f:
            found = json.load(f)
        self.assertEqual(found["layers"], [0, 0, 2, 2])
        self.assertEqual([found["kv_heads"][0], found["kv_heads"][2]], [[0, 1], [0, 1]])
        document = json.loads(self.measure("--policies", f"full,exact@96,exact@96+anchors={table}", "--json"))
        own, read = ([row["bits"] for row in document["rows"] if row["settings"] == settings and row["budget"] == 96]
                     for settings in ("", f"anchors={table}"))
        self.assertEqual(len(own), len(read))
        self.assertNotEqual(own, read)
        for arguments, says in ((("--layers", 1, "--with", 2), "--layers: 1 are fewer than the 2 of --with and the first"),
                                (("--layers", 5), "5 layers cannot choose"), (("--layers", 2, "--with", 4), "layer 4 cannot choose"),
                                (("--layers", 2, "--budget", 2), "--budget")):
            done = learn(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(says, done.stderr)

    def test_heads_stream_that_do_not_look_far_back(self):
        file, voters = os.path.join(self.folder.name, "streaming.json"), self.write(
            "voters.json", json.dumps({"layers": 4, "heads": 4, "weights": [[1, 3, 2.0]]}))

        def find(*arguments):
            return started("streaming", "--model", BYTES, "--text", self.text, "--context", 300, "--passages", 2,
                           "--recent", 28, "--out", file, *arguments)

        def found():
            with open(file) as f:
                return json.load(f)
        done = find("--heads", 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("of the retrieval heads are those of the other passages, too.", done.stdout)
        plain = found()["retrieval"]
        self.assertEqual(len(plain), 2)
        find("--heads", 2, "--repeated", "--with", voters)
        self.assertIn([1, 1], found()["retrieval"])
        self.assertEqual([found()[name] for name in ("layers", "kv_heads", "sinks", "recent")], [4, 2, 4, 28])
        document = json.loads(self.measure("--policies", f"full,full+streaming={file}", "--json"))
        own, some = ([row for row in document["rows"] if row["settings"] == settings]
                     for settings in ("", f"streaming={file}"))
        self.assertEqual(len(own), len(some))
        self.assertNotEqual([row["bits"] for row in own], [row["bits"] for row in some])
        for all_heads, few in zip(own, some):
            self.assertLess(few["details"], all_heads["details"] / 2)
        for arguments, says in ((("--heads", 8), "8 leave none that streams"), ((), "--heads is required"),
                                (("--heads", 2, "--recent", 0), "--recent"),
                                (("--heads", 2, "--with", self.text), "not valid JSON")):
            done = find(*arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(says, done.stderr)
        self.write("voters.json", json.dumps({"layers": 4, "heads": 4, "weights": [[1, 3, 2.0], [2, 0, 1.0]]}))
        self.assertIn("--heads: 1 are fewer than the 2 that the heads of --with read",
                      find("--heads", 1, "--with", voters).stderr)

    def test_rows_on_file_are_not_measured_again(self):
        rows, table = os.path.join(self.folder.name, "rows"), os.path.join(self.folder.name, "table.csv")
        kept = ("--resume", rows, "--csv", table, "--json")
        whole = self.measure("--policies", "full,window@96", *kept)
        with open(rows, "rb") as f:
            lines = f.read()
        self.assertEqual(self.measure("--policies", "full,window@96", *kept), whole)      # seconds too: from the file
        more = json.loads(self.measure("--policies", "quest@96", *kept))
        self.assertEqual(len(more["groups"]), 6)                                       # what is on file is reported
        with open(rows, "rb") as f:
            self.assertTrue(f.read().startswith(lines))
        self.write("rows", lines[:-20])                                                # cut off in the last row
        again, first = json.loads(self.measure("--policies", "full,window@96", *kept)), json.loads(whole)
        for row in again["rows"] + first["rows"]:
            del row["seconds"]
        self.assertEqual(again["rows"], first["rows"])
        with open(table) as f:
            self.assertEqual(len(f.readlines()), 5)

    def test_a_table_without_json(self):
        variant = "sentence_box@96+zones.recent=48+sentences.longest=16"
        text = self.measure("--policies", "full,window@96," + variant, "--set", "zones.sinks=8")
        for word in ("bits/byte", "beyond full", "gap closed", "window zones.sinks=8",
                     "sentence_box zones.sinks=8 zones.recent=48 sentences.longest=16"):
            self.assertIn(word, text)

    def test_refusals(self):
        def refused(*arguments, says, text=None):
            done = started(*self.command(*arguments, text=text))
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertEqual(len(done.stderr.strip().split("\n")), 1, done.stderr)
            self.assertIn(says, done.stderr)
        refused(text="/nonexistent.txt", says="/nonexistent.txt: no such file")
        refused(text=self.write("short.txt", "Too short."), says="short.txt has 10 tokens, but 2 passages")
        refused(text=self.write("bad.txt", b"x" * 2000 + b"\xff"), says="bad.txt: the text is not UTF-8 at byte 2000")
        refused("--contexts", 64, says="must be larger")
        refused("--contexts", 10**6, says="longer than this model's")
        refused("--bytes", 0, says="--bytes")
        refused("--passages", 0, says="--passages")
        refused("--policies", "zoom", says="there is no policy")
        refused("--policies", "window@4", says="must be at least 5")
        refused("--policies", "exact@2", says="must be at least 3")
        refused("--policies", "exact+zones.recent=3", says="exact has no options")
        refused("--set", "zones.recent=8", "--policies", "window,exact", says="exact has no options")
        refused("--set", "zones.height=3", says="window has no such option, but")
        refused("--set", "observation_window.queries=200", "--policies", "sentence_kv", says="at most 128")
        refused("--policies", "window+zones.height=3", says='window has no option "zones.height=3"')
        refused("--policies", "full+zones.recent=3", says="takes no settings")
        refused("--policies", f"full+anchors={self.text}", says="takes no settings")
        refused("--policies", f"exact+anchors={self.text}", says="not valid JSON")
        refused("--policies", f"full+streaming={self.text}", says="not valid JSON")
        refused("--delimiters", "nonsense", says="nonsense")
        refused("--resume", self.text, says="is the same file, and would be lost")
        refused("--resume", self.write("prose.txt", "No JSON."), says="not valid JSON")
        refused("--resume", "/nonexistent/rows", says="cannot be written")
        refused("--csv", "/nonexistent/table", "--policies", "full", says="cannot be written")


class Speed(unittest.TestCase):
    SHAPE = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 48,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64,
             "tie_word_embeddings": True, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.shape = self.write("shape.json", json.dumps(self.SHAPE))

    def write(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as f:
            f.write(content)
        return path

    def rows(self, *arguments):
        done = started("speed", "--shape", self.shape, "--generate", 4, "--rounds", 1, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        self.assertIn("the model has not computed them", done.stdout)
        lines = done.stdout.split("\n\n")[-1].splitlines()
        names = ("policy", "context", "speed", "min", "max", "of_full", "attended", "device", "cache", "resident",
                 "beyond")
        return [dict(zip(names, line.split())) for line in lines[1:]]

    def test_each_policy_reads_what_it_says(self):
        small = "sentence_box@256"
        rows = self.rows("--tokens", "1000,3000", "--policy", "full,zoomr_focus,quest@256," + small, "--threads", 2)
        self.assertEqual([(r["policy"], r["context"]) for r in rows],
                         [(p, c) for c in ("1000", "3000") for p in ("full", "zoomr_focus", "quest@256", small)])
        of = {(r["policy"], r["context"]): float(r["attended"]) for r in rows}
        self.assertAlmostEqual(of["full", "3000"], 3000 + 24 + 2.5)
        self.assertEqual(of[small, "3000"], 256)
        self.assertTrue(700 < of["zoomr_focus", "3000"] < 1500, of)  # prompt, summaries, two thoughts
        for r in rows:
            self.assertGreater(float(r["speed"]), 0)
            self.assertGreater(float(r["device"]), 0)
        self.assertEqual(rows[0]["of_full"], "1.00")

    def test_tiers_do_not_change_what_is_read(self):
        arguments = ("--tokens", 2000, "--policy", "full,zoomr_focus,sentence_box@256")
        plain = self.rows(*arguments)
        tiered = self.rows(*arguments, "--tiers", "host=800KiB,file=/tmp:1GiB")
        self.assertEqual([r["attended"] for r in plain], [r["attended"] for r in tiered])
        self.assertEqual(plain[0]["device"], tiered[0]["device"])
        self.assertTrue(0.5 < float(tiered[2]["device"]) <= 0.8, tiered)

    def test_refusals(self):
        def refused(*arguments, says, shape=None):
            done = started("speed", "--shape", shape or self.shape, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertEqual(len(done.stderr.strip().split("\n")), 1, done.stderr)
            self.assertIn(says, done.stderr)
        refused(shape="/nonexistent.json", says="/nonexistent.json: no such file")
        refused(shape=self.write("list.json", "[1]"), says="must be an object")
        few = json.dumps({**self.SHAPE, "vocab_size": 6})
        refused(shape=self.write("few.json", few), says="must be at least 7 here")
        windows = {"architectures": ["Gemma3ForCausalLM"], "rope_theta": 1e6, "rope_local_base_freq": 1e4,
                   "query_pre_attn_scalar": 16, "sliding_window_pattern": 2, "sliding_window": 8}
        refused(shape=self.write("windows.json", json.dumps({**self.SHAPE, **windows})),
                says="zoomr-eval speed: layers of Gemma 3 differ")
        refused("--tokens", 0, says="--tokens")
        refused("--tokens", "x", says="--tokens")
        refused("--tokens", 8160, "--generate", 9, says="more than this shape's 8192")
        refused("--rounds", 0, says="--rounds")
        refused("--generate", 0, says="--generate")
        refused("--threads", 2000, says="--threads")
        refused("--policy", "zoom", says='there is no policy "zoom"')
        refused("--policy", "quest+zones.height=3", says='quest has no option "zones.height=3"')
        refused("--set", "zones.recent=9", "--policy", "full", says="no other policy is chosen")
        refused("--set", "thoughts.longest=9", "--policy", "quest", says="quest has no such option")
        refused("--tiers", "host=1MiB", says="host and file need a size")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
