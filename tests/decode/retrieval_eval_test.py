# SPDX-License-Identifier: Apache-2.0
"""zoomr-eval heads, retrieval, forms and traces: what they learn, measure, print and refuse, and how they go on.

    python3 retrieval_eval_test.py PROGRAM STUDIES FIXTURES
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM, STUDIES, FIXTURES = sys.argv[1:4]
BYTES = os.path.join(STUDIES, "bytes", "checkpoint")
MARKS = "<m1>,<m2>,<m3>,<m4>"


def coined(number):
    return "zz" + "".join(chr(ord("a") + number // 16**place % 16) for place in range(4))


def marked(folder):
    """The byte-level checkpoint, with marks in place of four bytes that no text here has."""
    shutil.copytree(BYTES, folder)
    path = os.path.join(folder, "tokenizer.json")
    with open(path) as f:
        tokenizer = json.load(f)
    vocab = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {text: id for text, id in vocab.items() if id not in (1, 2, 3, 4)}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"] += [{"id": i, "content": f"<m{i}>", "special": True, **flags} for i in range(1, 5)]
    with open(path, "w") as f:
        json.dump(tokenizer, f)


def windowed(folder):
    """A small Gemma 3 with random weights, one layer of seven without a window, that reads bytes."""
    os.makedirs(folder)
    shutil.copy(os.path.join(BYTES, "tokenizer.json"), folder)
    source, vocab = os.path.join(FIXTURES, "gemma3"), 257
    with open(os.path.join(source, "config.json")) as f:
        config = json.load(f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({**config, "vocab_size": vocab, "max_position_embeddings": 4096}, f)
    with open(os.path.join(source, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    parts, at = [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        part = data[begin:end]
        if name == "model.embed_tokens.weight":
            rows, width = entry["shape"]
            part = (part * (vocab // rows + 1))[:vocab * len(part) // rows]
            entry["shape"] = [vocab, width]
        entry["data_offsets"] = [at, at + len(part)]
        at += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(parts))


class Retrieval(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.prose = folder.name, os.path.join(folder.name, "prose.txt")
        with open(self.prose, "w") as f:
            for i in range(500):
                f.write(f"The prince of the {coined(i)} number {i} looked at the garden and went to bed. ")

    def path(self, name):
        return os.path.join(self.folder, name)

    def asked(self, what, *arguments, model=BYTES, tokens=1200, problems=3):
        return subprocess.run([PROGRAM, what, "--model", model, "--text", self.prose, "--tokens", str(tokens),
                               "--problems", str(problems), *map(str, arguments)],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)

    def rows(self, *arguments, **options):
        done = self.asked("retrieval", "--json", *arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {(r["policy"], r["group"]): r for r in json.loads(done.stdout)["rows"]}

    def test_weights_are_learnt_written_and_used_and_what_is_done_is_not_done_again(self):
        voters, done = self.path("voters.json"), self.path("done")
        first = self.asked("heads", "--out", voters, "--resume", done)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("keys 1200", first.stdout)
        with open(voters) as f:
            table = json.load(f)
        self.assertEqual((table["layers"], table["heads"]), (4, 4))
        self.assertTrue(table["weights"])
        self.assertEqual([(row["group"], row["problems"]) for row in table["not_learnt_on"]],
                         [("needle 1200", 3), ("keys 1200", 3)])
        for layer, head, weight in table["weights"]:
            self.assertTrue(0 <= layer < 4 and 0 <= head < 4 and weight > 0)
        with open(done) as f:
            lines = f.readlines()
        self.assertEqual(len(lines), 6)
        self.assertIn("6 problems, 0 of them passed before\n", first.stderr)
        self.assertIn("the others take about", first.stderr)
        again = self.asked("heads", "--resume", done)
        with open(done) as f:
            self.assertEqual(f.readlines(), lines)
        self.assertEqual(again.stderr, "6 problems, 6 of them passed before\n")
        self.assertEqual(again.stdout.split()[:20], first.stdout.split()[:20])
        other = self.asked("heads", "--resume", done, "--seed", 2)  # would mix what is not alike
        self.assertEqual(other.returncode, 2)
        self.assertIn('measured with "checkpoint, prose.txt, seed 1", but', other.stderr)

        results = self.path("results.csv")
        policies = "full,oracle,random,sentence_voters,window@128,exact@128,random_eviction@128"
        options = ("--voters", voters, "--policies", policies, "--resume", self.path("r"))
        found = self.asked("retrieval", "--csv", results, *options)
        self.assertEqual(found.returncode, 0, found.stderr)
        with open(results, newline="") as f:
            rows = {(r["policy"], r["group"]): r for r in csv.DictReader(f)}
        self.assertEqual(len(rows), 14)
        oracle, voted = rows["oracle", "keys 1200"], rows["sentence_voters", "keys 1200"]
        self.assertEqual(oracle["hit"], oracle["choices"])  # it always reads what is needed
        self.assertGreater(int(oracle["choices"]), 0)
        self.assertEqual(voted["choices"], oracle["choices"])
        self.assertLess(float(voted["attended"]), 0.5 * float(rows["full", "keys 1200"]["attended"]))
        for policy, most in (("window@128", 128), ("exact@128", 128), ("random_eviction@128", 128 + 10)):
            self.assertLessEqual(float(rows[policy, "keys 1200"]["attended"]), most)
            self.assertEqual(rows[policy, "keys 1200"]["active"], "1")
        self.assertEqual(rows["full", "keys 1200"]["active"], "0")
        self.assertGreater(float(voted["entropy_bits"]), 0)
        self.assertEqual(rows["full", "keys 1200"]["entropy_bits"], "")  # no heads vote
        for row in rows.values():
            self.assertLessEqual(float(row["right_low"]), int(row["right"]) / 3)
            self.assertLessEqual(int(row["right"]) / 3, float(row["right_high"]))
        again = self.asked("retrieval", *options)
        self.assertEqual(again.stdout, found.stdout)
        with open(voters, "w") as f:
            json.dump({"layers": 4, "heads": 4, "weights": [[1, 2, 1.5]]}, f)
        other = self.asked("retrieval", *options)
        self.assertEqual(other.returncode, 2)
        self.assertIn('"1 voters of weight 1.500" is asked for', other.stderr)
        self.assertIn(f"{self.path('r')}: sentence_voters was measured with", other.stderr)

    def test_policies_write_together_what_each_writes_alone(self):
        model = self.path("marked")
        marked(model)
        tables = []
        for name, weights in (("early", [[0, 1, 1.5], [1, 3, 0.5]]), ("late", [[3, 0, 2.0]])):
            tables.append(f"{name}={self.path(name)}")
            with open(self.path(name), "w") as f:
                json.dump({"layers": 4, "heads": 4, "weights": weights}, f)
        policies = ["full", "zoomr_voters+voters=early", "window@100", "zoomr_voters+voters=late", "zoomr_mass",
                    "zoomr_voters+top_p.share=0.5+voters=late"]
        options = ("--marks", MARKS, "--tasks", "chain", "--notes", 5, "--voters", ",".join(tables))
        together = self.rows(*options, "--policies", ",".join(policies), model=model, problems=2)
        self.assertEqual([policy for policy, _ in together], policies)
        for policy in policies:
            alone = self.rows(*options, "--policies", policy, model=model, problems=2)
            self.assertEqual(alone[policy, "chain x5"], together[policy, "chain x5"])
        early, late = (together[f"zoomr_voters+voters={name}", "chain x5"] for name in ("early", "late"))
        self.assertNotEqual(early["entropy_bits"], late["entropy_bits"])

    def test_each_task_runs_and_the_oracle_reads_what_is_needed_next(self):
        model = self.path("marked")
        marked(model)
        tasks = ("needle", "keys", "values", "queries", "tracking", "notes", "paraphrase", "chain",
                 "repeated")
        groups = [task + (" x4" if task in ("notes", "paraphrase", "chain") else " 1600") for task in tasks]
        rows = self.rows("--marks", MARKS, "--tasks", ",".join(tasks), "--notes", 4, "--policies", "full,oracle,random",
                         model=model, tokens=1600, problems=1)
        self.assertEqual({group for _, group in rows}, set(groups))
        written = {"values": 56, "queries": 56, "tracking": 60, "chain": 32, "repeated": 24}
        for task, group in zip(tasks, groups):
            with self.subTest(task=task):
                oracle, random, full = rows["oracle", group], rows["random", group], rows["full", group]
                self.assertEqual(oracle["found"], 1)
                self.assertEqual(oracle["choices"], written.get(task, 10) - 1)
                self.assertLess(random["found"], 1)
                self.assertNotIn("found", full)
                self.assertLess(oracle["attended_tokens_mean"], 0.8 * full["attended_tokens_mean"])
                self.assertEqual((oracle["active"], full["active"]), (1, 0))
        words = self.rows("--tasks", "words", "--policies", "full,window@128", tokens=3000, problems=1)
        self.assertEqual(words["full", "words 3000"]["active"], 0)
        self.assertEqual(words["window@128", "words 3000"]["active"], 1)

    def test_a_policy_whose_attention_adds_up_sees_the_queries_of_the_whole_prompt(self):
        policies = ("full", "h2o@128")
        both = self.rows("--tasks", "needle", "--policies", ",".join(policies), problems=1)
        self.assertLess(both["h2o@128", "needle 1200"]["attended_tokens_mean"], 160)
        for policy in policies:  # full: whose queries are kept changes nothing
            self.assertEqual(self.rows("--tasks", "needle", "--policies", policy, problems=1)[policy, "needle 1200"],
                             both[policy, "needle 1200"])

    def test_questions_one_after_the_other_go_on_in_the_same_conversation(self):
        done = self.path("done")
        policies = "full,oracle,window@128,snapkv@128"
        options = ("--tasks", "keys", "--questions", 3, "--policies", policies, "--resume", done)
        rows = self.rows(*options, problems=3)
        groups = ["keys 1200", "keys 1200, question 2", "keys 1200, question 3"]
        self.assertEqual([group for policy, group in rows if policy == "full"], groups)
        read = [rows["full", group]["attended_tokens_mean"] for group in groups]
        self.assertLess(read[0] + 100, read[1])  # the question, and the answer before it, are in the text
        self.assertLess(read[1] + 100, read[2])
        for group in groups:
            self.assertEqual(rows["oracle", group]["found"], 1)  # from the first choice on
            self.assertLessEqual(rows["window@128", group]["attended_tokens_mean"], 128)
            self.assertEqual(rows["oracle", group]["problems"], 3)
        with open(done) as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual(len(lines), 3 * 3 * 4)
        places = {(line["group"], line["number"]): line["place"] for line in lines if line["policy"] == "full"}
        for number in range(3):  # each begins with another question about the same text
            self.assertAlmostEqual(places[groups[1], number], places[groups[0], (number + 1) % 3], delta=0.01)
        with open(done, "w") as f:  # what was cut off is done again, and nothing else
            f.writelines(json.dumps(line) + "\n" for line in lines if line["group"] != groups[2] or line["number"] < 2)
        self.assertEqual(self.rows(*options, problems=3), rows)
        with open(done) as f:
            again = [json.loads(line) for line in f]
        named = [{(line["group"], line["number"], line["policy"]): line for line in some} for some in (lines, again)]
        self.assertEqual(len(again), len(lines))
        self.assertEqual(*named)
        self.assertIn("needle 1200 has 1 to ask for, but 2 questions are asked for",
                      self.asked("retrieval", "--tasks", "needle", "--questions", 2).stderr)

    def test_calls_are_measured_by_the_segments_of_each_policy(self):
        source, voters = self.path("code.py"), self.path("voters.json")
        with open(source, "w") as f:
            for i in range(80):
                name = coined(i)
                f.write(f"def do_{name}(left_{name}, wide=(1, 2), third=None):\n    return wide\n\n\n")
        with open(voters, "w") as f:
            json.dump({"layers": 4, "heads": 4, "weights": [[1, 2, 1.5]]}, f)
        self.prose = source
        rows = self.rows("--tasks", "calls", "--voters", voters, "--write", 12, "--policies",
                         "full,oracle,sentence_kv@400,code_kv@400,sentence_voters,code_voters", problems=2)
        self.assertEqual({group for _, group in rows}, {"calls 1200"})
        self.assertEqual(rows["oracle", "calls 1200"]["found"], 1)
        for policy in ("sentence_voters", "code_voters"):
            self.assertGreater(rows[policy, "calls 1200"]["choices"], 0)
        attended = {policy: row["attended_tokens_mean"] for (policy, _), row in rows.items()}
        self.assertNotEqual(attended["sentence_voters"], attended["code_voters"])
        self.assertLessEqual(attended["code_kv@400"], 400)
        learnt = self.asked("heads", "--tasks", "calls", problems=4)
        self.assertEqual(learnt.returncode, 0, learnt.stderr)

    def test_a_task_may_name_the_tokens_of_its_problems(self):
        rows = self.rows("--tasks", "keys@1300,needle,keys@2400", "--policies", "window@128", problems=1)
        sizes = {group: row["prompt_tokens_mean"] for (_, group), row in rows.items()}
        self.assertEqual(list(sizes), ["keys 1300", "needle 1200", "keys 2400"])
        self.assertAlmostEqual(sizes["keys 2400"] - sizes["keys 1300"], 1100, delta=200)
        plain = self.rows("--tasks", "keys", "--policies", "window@128", tokens=1300, problems=1)
        self.assertEqual(plain["window@128", "keys 1300"], rows["window@128", "keys 1300"])

    def test_weights_are_learnt_at_each_moment_of_an_answer(self):
        model, done = self.path("marked"), self.path("done")
        marked(model)
        learnt = self.asked("heads", "--marks", MARKS, "--tasks", "keys,queries,chain,repeated,values", "--notes", 5,
                            "--resume", done, model=model, tokens=1600, problems=2)
        self.assertEqual(learnt.returncode, 0, learnt.stderr)
        with open(done) as f:
            for line in map(json.loads, f):
                needed = [example["needed"] for example in line["examples"]]
                with self.subTest(group=line["group"], number=line["number"]):
                    # At the prompt's end, before each further answer, and in the middle of each.
                    moments = {"keys 1600": (1,), "queries 1600": (2, 3, 4), "chain x5": (2,),
                               "repeated 1600": (1,), "values 1600": (4,)}[line["group"]]
                    self.assertIn(len(needed) / 2, moments)
                    if line["group"] == "values 1600":  # in any order: all that are not written
                        self.assertEqual([len(some) for some in needed], [4, 1, 3, 1, 2, 1, 1, 1])
                        self.assertEqual(needed[0], sorted(sum(needed[1::2], [])))
                    else:
                        self.assertEqual(needed[::2], needed[1::2])
                        self.assertEqual(len(set(map(tuple, needed))), len(needed) / 2)
                    for example in line["examples"]:
                        self.assertEqual(len(example["shares"]), 16 * example["segments"])

    def test_weights_are_learnt_of_forms_by_the_queries_that_serve_best(self):
        voters, done = self.path("voters.json"), self.path("done")
        options = ("--forms", "primed,nothing@1500", "--resume", done)
        learnt = self.asked("heads", *options, "--queries", "16,question", "--out", voters, tokens=2000, problems=2)
        self.assertEqual(learnt.returncode, 0, learnt.stderr)
        with open(done) as f:
            lines = [json.loads(line) for line in f]
        self.assertEqual([(line["group"], line["number"], line["queries"]) for line in lines],
                         [(form, number, queries) for form in ("primed form 2000", "nothing form 1500")
                          for number in (0, 1) for queries in ("16", "question")])
        for line in lines:
            for example in line["examples"]:
                self.assertEqual(len(example["needed"]), 1 if line["group"] == "primed form 2000" else 0)
        with open(voters) as f:
            table = json.load(f)
        self.assertIsInstance(table["none"], float)
        self.assertIn(table["learnt"]["queries"], ("16", "question"))
        self.assertEqual((table["learnt"]["forms"], table["learnt"]["tasks"]), (["primed", "nothing@1500"], []))
        tried = [line.split() for line in learnt.stdout.splitlines()[1:5]]
        self.assertEqual(sorted(row[:3] for row in tried),
                         [[queries, "each", first] for queries in ("16", "question") for first in ("no", "yes")])
        bits = {row[0]: float(row[6]) for row in reversed(tried)}
        self.assertEqual(table["learnt"]["queries"], min(sorted(bits), key=bits.get))
        # Other queries: what was passed with these is not passed again with the first.
        more = self.asked("heads", *options, "--queries", "16,8", tokens=2000, problems=2)
        self.assertEqual(more.returncode, 0, more.stderr)
        with open(done) as f:
            self.assertEqual([json.loads(line)["queries"] for line in f][8:], ["8"] * 4)

    def test_policies_and_voters_are_for_the_layers_without_a_window(self):
        model, voters = self.path("windowed"), self.path("voters.json")
        windowed(model)
        learnt = self.asked("heads", "--out", voters, "--penalty", 0, model=model)
        self.assertEqual(learnt.returncode, 0, learnt.stderr)
        with open(voters) as f:
            table = json.load(f)
        self.assertEqual((table["layers"], table["heads"]), (7, 2))
        self.assertTrue(table["weights"])
        self.assertEqual({layer for layer, _, _ in table["weights"]}, {5})
        rows = self.rows("--tasks", "keys", "--voters", voters, "--policies", "full,oracle,sentence_voters,window@100",
                         model=model)
        full = rows["full", "keys 1200"]
        self.assertAlmostEqual(full["attended_tokens_mean"], full["prompt_tokens_mean"] + 5)
        self.assertEqual(full["active"], 0)
        self.assertEqual(rows["oracle", "keys 1200"]["found"], 1)
        self.assertEqual(rows["window@100", "keys 1200"]["attended_tokens_mean"], 100)
        self.assertEqual(rows["window@100", "keys 1200"]["active"], 1)
        self.assertEqual(rows["sentence_voters", "keys 1200"]["choices"], 3 * 9)

    def test_forms_are_asked_in_and_what_is_done_is_not_done_again(self):
        voters, done = self.path("voters.json"), self.path("done")
        with open(voters, "w") as f:
            json.dump({"layers": 4, "heads": 4, "weights": [[1, 2, 1.5]]}, f)
        forms = ("plain", "behind40", "before", "two", "table", "later")
        options = ("--forms", ",".join(forms), "--policies", "full,oracle,sentence_voters,window@128",
                   "--voters", voters, "--write", 6, "--resume", done)
        first = self.asked("forms", *options, "--json", tokens=2400, problems=2)
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("12 problems in 6 forms, each under 4 policies: at most", first.stderr)
        self.assertIn("one is done; the others take at most", first.stderr)
        document = json.loads(first.stdout)
        rows = {(r["policy"], r["form"]): r for r in document["rows"]}
        self.assertEqual(len(rows), 24)
        for form in forms:
            with self.subTest(form=form):
                full, oracle, voted = (rows[name, form] for name in ("full", "oracle", "sentence_voters"))
                self.assertEqual(oracle["found_first"], 1)
                self.assertNotIn("found_first", full)
                self.assertGreater(voted["entropy_bits_first"], 0)
                self.assertGreaterEqual(full["attended_tokens_mean"], full["prompt_tokens_mean"])
                self.assertLess(oracle["attended_tokens_mean"], 0.5 * full["attended_tokens_mean"])
                self.assertLessEqual(rows["window@128", form]["attended_tokens_mean"], 128)
        entropies = document["entropies"]
        self.assertEqual([row["policy"] for row in entropies], ["sentence_voters"])
        self.assertEqual(entropies[0]["found"] + entropies[0]["missed"], 12)
        with open(done) as f:
            lines = f.readlines()
        self.assertEqual(len(lines), 48)
        again = self.asked("forms", *options, "--json", tokens=2400, problems=2)
        self.assertEqual((again.stdout, again.stderr), (first.stdout, ""))
        table = self.asked("forms", *options, tokens=2400, problems=2)
        self.assertIn("first choices of", table.stdout)
        with open(done) as f:
            self.assertEqual(f.readlines(), lines)
        for arguments, tokens, part in (
                (("--set", "top_p.width=3"), 2400, "has no option"),
                (("--name-question",), 2400, 'but "checkpoint, prose.txt, seed 1, 2400 tokens, 6 written, question'),
                ((), 2500, "is asked for")):
            with self.subTest(arguments=arguments, tokens=tokens):
                self.refused(part, *options, *arguments, tokens=tokens)
        for forms, tokens, part in (("riddles", 2400, 'there is no form "riddles"'),
                                    ("two+json", 2400, "two and json exclude each other"),
                                    ("nothing", 2400, "nothing is for learning"),
                                    ("plain", 300, "holds too few sentences"),
                                    ("plain", 20000, "longer than this model's context")):
            with self.subTest(forms=forms, tokens=tokens):
                self.refused(part, "--forms", forms, "--policies", "full", tokens=tokens)

    def refused(self, part, *arguments, tokens):
        done = self.asked("forms", *arguments, tokens=tokens, problems=2)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def traces(self, *arguments, model="marked"):
        return subprocess.run([PROGRAM, "traces", "--model", self.path(model), "--problems", "1", "--steps", "8",
                               *map(str, arguments)],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=600)

    def test_texts_are_written_in_lock_step_and_judged_and_what_is_done_is_not_done_again(self):
        marked(self.path("marked"))
        voters, done = self.path("voters.json"), self.path("done")
        with open(voters, "w") as f:
            json.dump({"layers": 4, "heads": 4, "weights": [[1, 2, 1.5]]}, f)
        policies = ("full", "oracle", "random", "zoomr_one_pass", "zoomr_second_pass", "zoomr_focus", "summary_only",
                    "zoomr_voters", "sentence_kv@512", "snapkv@512", "h2o@512", "window@512")
        options = ("--marks", MARKS, "--policies", ",".join(policies), "--voters", voters, "--resume", done)
        first = self.traces(*options, "--json")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertIn("2 problems, each under 12 policies: at most", first.stderr)
        rows = {(r["policy"], r["group"]): r for r in json.loads(first.stdout)["rows"]}
        self.assertEqual(len(rows), 24)
        with open(done) as f:
            lines = f.readlines()
        texts = {(line["policy"], line["group"]): line["text"] for line in map(json.loads, lines)}
        for (policy, group), row in rows.items():
            with self.subTest(policy=policy, group=group):
                text = texts[policy, group]
                self.assertEqual([text.count(f"<m{i}>") for i in (1, 2, 3, 4)], [3] * 4)
                name = "Line" if group == "program 8" else "Note"
                for step in range(1, 9):
                    self.assertEqual(text.count(f"{name} {step}: "), 1)
                self.assertIn(f"<m2><m3>{name}s 4 to 6", text)
                self.assertGreater(row["questions"], 0)
                self.assertEqual("found" in row, policy in ("oracle", "random", "zoomr_one_pass", "zoomr_second_pass",
                                                            "zoomr_voters"))
                self.assertEqual("entropy_bits" in row, policy == "zoomr_voters")
                if policy == "oracle":
                    self.assertEqual(row["found"], 1)
                if policy.endswith("@512"):
                    self.assertLess(row["device_bytes_beyond_prompt_mean"],
                                    rows["full", group]["device_bytes_beyond_prompt_mean"])
                if policy == "window@512":
                    self.assertLessEqual(row["attended_tokens_mean"], 512)
                if policy == "full":
                    self.assertEqual(row["beyond_prompt_of_full"], 1)
        again = self.traces(*options, "--json")
        self.assertEqual((again.stdout, again.stderr), (first.stdout, ""))
        self.assertIn("as written %", self.traces(*options).stdout)
        with open(done) as f:
            self.assertEqual(f.readlines(), lines)
        for notes in ("prompt", "text"):  # true steps are given: one text for all policies but for the answers
            given = self.traces("--marks", MARKS, "--policies", "full,oracle,window@512", "--notes", notes, "--tasks",
                                "ledger", "--resume", self.path(notes), "--json")
            self.assertEqual(given.returncode, 0, given.stderr)
            with open(self.path(notes)) as f:
                given_texts = {json.loads(line)["text"].split("<m4>\nHow many")[0] for line in f}
            self.assertEqual(len(given_texts), 1)
            written = [row["written_tokens_mean"] for row in json.loads(given.stdout)["rows"]]
            self.assertEqual(max(written) < 300, notes == "prompt")
            for row in json.loads(given.stdout)["rows"]:
                self.assertNotIn("steps_right", row)
        for arguments, part in ((("--notes", "prompt"), 'but "marked, seed 1, 3 steps a thought, notes in the prompt"'),
                                (("--seed", 2), "is asked for"),
                                (("--per-thought", 2), "is asked for")):
            with self.subTest(arguments=arguments):
                self.no_traces(part, *options, *arguments)
        for arguments, part in ((("--marks", "<m1>,<m2>"), "four tokens that begin and end thoughts"),
                                (("--marks", "<m1>,<m2>,<m3>,<m9>"), '"<m9>" is no token of this model'),
                                (("--marks", MARKS, "--tasks", "riddles"), "known are program, ledger"),
                                (("--marks", MARKS, "--policies", "oracle@9"), "oracle has no budget"),
                                (("--marks", MARKS, "--notes", "some"), "--notes"),
                                ((), "--marks is required")):
            with self.subTest(arguments=arguments):
                self.no_traces(part, *arguments)
        shutil.copytree(self.path("marked"), self.path("small"))
        with open(os.path.join(self.path("small"), "config.json")) as f:
            config = json.load(f)
        with open(os.path.join(self.path("small"), "config.json"), "w") as f:
            json.dump({**config, "max_position_embeddings": 2000}, f)
        self.no_traces("longer than this model's context of 2000", "--marks", MARKS, model="small")

    def no_traces(self, part, *arguments, model="marked"):
        done = self.traces(*arguments, model=model)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_what_cannot_be_is_refused_with_a_sentence(self):
        other = self.path("other.json")
        with open(other, "w") as f:
            json.dump({"layers": 30, "heads": 9, "weights": [[7, 7, 2.4]]}, f)
        for arguments, part in ((("retrieval", "--voters", other), "but the model has 4 of 4"),
                                (("retrieval", "--policies", "sentence_voters"), "name their weights, --voters FILE"),
                                (("retrieval", "--policies", "sentence_voters+voters=some"), 'have the name "some"'),
                                (("retrieval", "--policies", "quest+voter_keys=q8_0"), "no heads vote under quest"),
                                (("retrieval", "--policies", "sentence_voters+voter_keys=q4_0"), "is q8_0, or not said"),
                                (("retrieval", "--voters", "a=x", "--voters", "a=y"),
                                 "a=y: x has this name, or none, already"),
                                (("retrieval", "--policies", "nothing"), "there is no policy"),
                                (("retrieval", "--policies", "oracle@100"), "oracle has no budget"),
                                (("retrieval", "--policies", "exact@2"), "must be at least 3"),
                                (("retrieval", "--policies", "random+zones.sinks=1"), "random has no options"),
                                (("retrieval", "--policies", "oracle", "--tasks", "words"), "there is no oracle"),
                                (("heads", "--tasks", "riddles"), "there is no task"),
                                (("heads", "--tasks", "riddles@700"), "there is no task"),
                                (("heads", "--tasks", "keys@"), "behind the @ stands a number of tokens"),
                                (("heads", "--forms", "nothing@no"), "behind the @ stands a number of tokens"),
                                (("heads", "--tasks", "keys@7e2"), "behind the @ stands a number of tokens"),
                                (("heads", "--tasks", "keys@-700"), "behind the @ stands a number of tokens"),
                                (("heads", "--tasks", "words"), "of words no segment says an answer"),
                                (("heads", "--forms", "riddles"), 'there is no form "riddles"'),
                                (("heads", "--queries", "16,many"), '"many" is neither a number of queries'),
                                (("heads", "--queries", "0"), '"0" is neither a number of queries'),
                                (("heads", "--tasks", "keys,notes"), "four tokens that mark them")):
            with self.subTest(arguments=arguments):
                done = self.asked(*arguments)
                self.assertEqual(done.returncode, 2)
                self.assertIn(part, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        for few, part in ((self.asked("heads", problems=1), "ask for two problems of each kind at least"),
                          (self.asked("heads", "--tasks", "keys", problems=2), "2 problems are asked for, but 4 are")):
            self.assertEqual(few.returncode, 2)
            self.assertIn(part, few.stderr)
            self.assertEqual(few.stderr.count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
