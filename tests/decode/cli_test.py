# SPDX-License-Identifier: Apache-2.0
"""The program zoomr-decode as its users meet it: what it prints, what it refuses, and how.

    python3 cli_test.py PROGRAM FIXTURES LEDGER
"""
import base64
import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, FIXTURES, LEDGER = sys.argv[1:4]
LLAMA = os.path.join(FIXTURES, "llama")
TABLE = os.path.join(os.path.dirname(__file__), "..", "..", "include", "zoomr", "presets", "table.hpp")


def data_of(page):
    """What the page of --report says (docs/report.md)."""
    with open(page, encoding="utf-8") as f:
        return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', f.read(), re.S)[1])


def run(*arguments, stdin=subprocess.DEVNULL):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, stdin=stdin, timeout=600)


class Output(unittest.TestCase):
    def generate(self, *arguments):
        done = run("--model", LLAMA, "--prompt", "= ; [", "--max-tokens", 12, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def test_json_is_one_document_with_the_documented_keys(self):
        done = self.generate("--policy", "full,zoomr_one_pass,sentence_kv", "--budget", "64", "96", "--json")
        runs = json.loads(done.stdout)["runs"]
        self.assertEqual([(r["policy"], r["budget"]) for r in runs],
                         [("full", None)] + [(p, b) for p in ("zoomr_one_pass", "sentence_kv") for b in (64, 96)])
        for r in runs:
            self.assertEqual(set(r["bytes"]), {"details", "summaries", "metadata"})
            self.assertEqual(len(r["tokens"]), 12)
            self.assertGreater(r["tokens_per_second"], 0)
            self.assertGreater(r["attended_tokens_mean"], 0)
            self.assertGreater(r["device_bytes_peak"], 0)
            self.assertGreaterEqual(r["passes"], 11)
            self.assertIn("agreeability", r["stats"])
            self.assertIsNone(r["stats"]["entropy_bits"])      # no heads vote
            self.assertIn(r["stats"]["cpu_path"], ("avx512_bf16", "avx512", "avx2", "neon", "portable"))
            self.assertEqual(r["tokens"], runs[0]["tokens"])   # nothing is left out yet
        self.assertEqual(done.stderr, "")                      # no progress bar in a pipe

    def test_keys_and_values_take_as_many_bytes_as_their_storage_type(self):
        model = os.path.join(LEDGER, "checkpoints", "plain")    # heads of 64 dimensions
        runs = {}
        for kind in ("float", "q8_0", "q4_0", "mxfp8"):
            done = run("--model", model, "--prompt", "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; <go>", "--max-tokens", 4,
                       "--policy", "full,quest", "--storage", kind, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            runs[kind] = json.loads(done.stdout)["runs"]
        for i in range(2):
            floats = runs["float"][i]
            self.assertNotIn("storage", floats)
            for kind, bits in (("q8_0", 8.5), ("q4_0", 4.5), ("mxfp8", 8.25)):
                self.assertEqual(runs[kind][i]["storage"], kind)
                self.assertEqual(runs[kind][i]["bytes"]["details"] * 32, floats["bytes"]["details"] * bits)
                self.assertEqual(len(runs[kind][i]["tokens"]), len(floats["tokens"]))

    def test_threads_write_the_same_text(self):
        one, three = (json.loads(self.generate("--policy", "full,sentence_kv", "--threads", n, "--json").stdout)["runs"]
                      for n in (1, 3))
        self.assertEqual([r["tokens"] for r in one], [r["tokens"] for r in three])

    def test_logits_are_one_row_for_each_generated_token_and_their_largest_is_the_token(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "logits")
            tokens = json.loads(self.generate("--json", "--dump-logits", path).stdout)["runs"][0]["tokens"]
            with open(path, "rb") as f:
                data = f.read()
            vocab = len(data) // 4 // len(tokens)
            self.assertEqual(len(data), 4 * vocab * len(tokens))
            for i, token in enumerate(tokens):
                row = struct.unpack(f"<{vocab}f", data[4 * vocab * i:4 * vocab * (i + 1)])
                self.assertEqual(row.index(max(row)), token)
            self.generate("--policy", "full,window", "--dump-logits", path)
            for name in ("full-0", "window-0"):
                self.assertEqual(os.path.getsize(f"{path}.{name}"), len(data))

    def test_text_and_a_table_without_json(self):
        text = self.generate("--policy", "full,window").stdout
        for word in ("tokens/s", "attended", "peak KiB", "peak/full", "window"):
            self.assertIn(word, text)

    def test_the_same_seed_draws_the_same_tokens(self):
        draws = [json.loads(self.generate("--json", "--temperature", 1, "--top-p", 0.9, "--seed", s).stdout)
                 ["runs"][0]["tokens"] for s in (1, 1, 2, 3)]
        self.assertEqual(draws[0], draws[1])
        self.assertNotEqual(draws[2], draws[3])

    def test_options_of_a_policy_can_be_set(self):
        done = self.generate("--policy", "zoomr_one_pass", "--set", "top_k.segments=7", "--set", "zones.prompt=false",
                             "--set", "head_votes.per=kv_head", "--json")
        options = json.loads(done.stdout)["runs"][0]["stats"]["options"]
        for setting in ("top_k.segments=7", "zones.prompt=false", "head_votes.per=kv_head"):
            self.assertIn(setting, options)

    def test_a_policy_for_thoughts_says_where_a_text_has_none(self):
        def notes(prompt, *arguments):
            done = run("--model", os.path.join(LEDGER, "checkpoints", "plain"), "--prompt", prompt, "--max-tokens", 4,
                       "--policy", "full,zoomr_focus", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [line for line in done.stderr.splitlines() if "thoughts" in line]
        plain, thought = "<bos> a = #17 ; b = #42 ; c = a", "<bos> <thought> a = #17 ; </thought> b = #42 ; c = a"
        self.assertEqual(notes(plain), ["note: zoomr_focus is for texts with thoughts, and no token of this one begins "
                                        "or ends one"])
        self.assertEqual(notes(plain, "--json"), [])
        self.assertEqual(notes(thought), [])

    def test_heads_that_stream_hold_little(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"layers": 2, "kv_heads": 2, "retrieval": [[1, 0]], "sinks": 2, "recent": 14}, file)
            file.flush()
            text = ("--model", LLAMA, "--prompt", "= ; " * 90, "--max-tokens", 12)
            done = run(*text, "--streaming", file.name)
            self.assertRegex(done.stderr, r"note: at the end retrieval heads hold [0-9.]+ KiB, streaming heads [0-9.]+ KiB")
            held = json.loads(run(*text, "--streaming", file.name, "--json").stdout)["runs"][0]
            self.assertLess(held["streaming"]["streaming_bytes"], 3 * held["streaming"]["retrieval_bytes"] / 2)
            several = json.loads(run(*text, "--streaming", file.name, "--json", "--turn", " ; ;").stdout)["runs"][0]
            self.assertGreater(len(several["tokens"]), 12)
            for arguments, says in ((("--device", "cuda"), "KV heads that stream need a cache of their own"),
                                    (("--report", "/dev/null"), "--report, --streaming"),
                                    (("--mpi",), "--mpi, --streaming"),
                                    (("--anchors", "a.json"), "--anchors, --streaming"),
                                    (("--trace-pages", "/dev/null"), "KV heads that stream"),
                                    (("--tiers", "host=1MiB,file=/tmp:1GiB"), "KV heads that stream")):
                refused = run(*text, "--streaming", file.name, *arguments)
                self.assertEqual((refused.returncode, refused.stdout), (2, ""), refused.stderr)
                self.assertIn(says, refused.stderr)

    def test_tiers_change_nothing_but_where_details_lie(self):
        for policy in ("zoomr_mass", "quest", "sentence_voters"):
            with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile("w", suffix=".json") as voters:
                json.dump({"layers": 2, "heads": 4, "weights": [[0, 1, 0.5], [1, 2, 1.5]]}, voters)
                voters.flush()
                options = ("--policy", policy, "--voters", voters.name)
                plain = json.loads(self.generate(*options, "--json").stdout)["runs"][0]
                refused = run("--model", LLAMA, "--prompt", "= ; [", "--max-tokens", 12, *options, "--tiers",
                              f"host=1,file={folder}/details:1GiB").stderr
                least = int(re.search("at least ([0-9]+)", refused)[1])
                done = self.generate(*options, "--json", "--tiers",
                                     f"host={least},file={folder}/details:1GiB")
                self.assertEqual(os.listdir(folder), [])
            tiered = json.loads(done.stdout)["runs"][0]
            self.assertEqual(tiered["tokens"], plain["tokens"])
            self.assertLess(tiered["tiers"]["memory_bytes"], least + 4096)
            self.assertGreater(tiered["tiers"]["hits"], 0)

    def test_an_unsure_choice_reads_everything_unless_the_gate_is_off(self):
        def stats(bounds, *more):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as voters:
                json.dump({"layers": 2, "heads": 4, "weights": [[0, 1, 0.5], [1, 2, 1.5]], **bounds}, voters)
                voters.flush()
                done = run("--model", LLAMA, "--prompt", "= ; " * 30, "--max-tokens", 12, "--policy", "sentence_voters",
                           "--set", "sentences.longest=6", "--set", "zones.recent=4", "--set", "top_p.neighbours=0",
                           "--voters", voters.name, "--json", *more)
            self.assertEqual(done.returncode, 0, done.stderr)
            found = json.loads(done.stdout)["runs"][0]
            return found["stats"], found["attended_tokens_mean"]
        plain, few = stats({})
        self.assertEqual((plain["unsure_choices"], plain["unsure_share"]), (0, 0))
        self.assertGreater(plain["entropy_bits"], 1)
        for bounds in ({"unsure": 0}, {"none": 3}, {"unsure": 0, "none": -9, "none_slope": 2}):
            unsure, most = stats(bounds)
            self.assertEqual((unsure["unsure_choices"], unsure["unsure_share"]), (unsure["refreshes"], 1))
            self.assertGreater(most, 1.5 * few)
            off, as_before = stats(bounds, "--set", "head_posterior.gate=off")
            self.assertEqual((off["unsure_choices"], as_before), (0, few))
        self.assertEqual(stats({"unsure": 60, "none": -5000}), (plain, few))
        self.assertEqual(stats({"none": 3, "none_slope": 90})[0]["unsure_choices"], 0)

    def test_pages_are_traced_as_the_blocks_that_would_move(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "pages")
            done = run("--model", LLAMA, "--prompt", "= ; [", "--max-tokens", 60, "--policy", "full,quest,zoomr_mass",
                       "--trace-pages", path, "--set", "fixed_pages.longest=5", "--set", "top_k.segments=2",
                       "--set", "zones.dense_layers=0", "--set", "zones.prompt=false")
            self.assertEqual(done.returncode, 0, done.stderr)
            by_head = ["0:0", "0:1", "1:0", "1:1"]
            for name, block, readers in (("full-0", 2048, ["0", "1"]), ("quest-0", 1024, by_head),
                                         ("zoomr_mass-0", 2048, ["0", "1"])):
                with open(f"{path}.{name}") as f:
                    lines = f.read().splitlines()
                self.assertEqual(lines[0], f"pages 2 layers {block} bytes")
                read = [line for line in lines[1:] if line[0].isdigit()]
                self.assertEqual(read[:len(readers)], [f"{reader} 0" for reader in readers])
                self.assertEqual(len(read) % len(readers), 0)
                for before, line in zip(lines, lines[1:]):  # a choice stands before the reading that it serves
                    if before.startswith("choice "):
                        self.assertEqual(before.split()[1], line.split()[0])
                if name == "quest-0":
                    self.assertIn("segment 1 0-0", lines)
                    self.assertIn("segment 3 0-1", lines)
                    last = [line.split(" | ") for line in lines if line.startswith("choice 1:1 ")][-1]
                    chosen, others = last[0].split()[2:], last[1].split()
                    self.assertEqual(len(chosen), 2)
                    self.assertEqual(sorted(map(int, chosen + others)), list(range(len(chosen + others))))

    def test_a_page_has_all_runs_on_the_same_text_and_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "it's a page.html")
            policies = ("--policy", "quest,quest,window", "--set", "zones.recent=1", "--set", "zones.sinks=0")
            options = ("--same-text", "--audit", "--json", "--report", path)
            runs = json.loads(self.generate(*policies, *options).stdout)["runs"]
            self.assertEqual(os.listdir(folder), ["it's a page.html"])
            data = data_of(path)
            self.generate("--turn", "; = [", "--report", path)
            turned = data_of(path)["runs"][0]
        self.assertEqual(data["zoomr_report"], 1)
        self.assertIn("--prompt '= ; [' --max-tokens 12", data["command"])
        self.assertIn("--json --report '" + path.replace("'", "'\\''") + "'", data["command"])
        self.assertEqual([r["policy"] for r in data["runs"]], ["quest", "quest", "window"])
        self.assertEqual(len(data["texts"]), 1)
        self.assertTrue("".join(data["texts"][0]).endswith(runs[0]["text"]), data["texts"][0])
        for page, said in zip(data["runs"], runs):
            self.assertEqual(said["tokens"], runs[0]["tokens"])
            self.assertEqual((page["tokens"], page["prompt"], page["steps"]), (len(data["texts"][0]), 3, 12))
            self.assertGreater(said["stats"]["captured"], 0)
            self.assertEqual(len(page["levels"]["lanes"]), 4)
        self.assertEqual([page["given"] for page in data["runs"]], [False, True, True])
        self.assertNotIn("own_tokens", runs[0])  # it wrote them all
        self.assertEqual(runs[1]["own_tokens"], 12)
        self.assertLess(runs[2]["own_tokens"], 12)  # it sees one token
        self.assertEqual(turned["steps"], 12 + 1 + 12)  # a turn is one step
        self.assertEqual(sum(turned["positions"][1::2]), turned["steps"])
        self.assertEqual(len(turned["positions"]), 4)

    def test_the_table_says_whose_text_it_is(self):
        done = self.generate("--policy", "full,window", "--budget", 8, "--same-text")
        self.assertIn("--- full\n", done.stdout)  # which takes no budget
        self.assertIn("--- window, budget 8, passing the text of the first\n", done.stdout)
        full, window, says = done.stdout.splitlines()[-3:]
        self.assertEqual(full.split()[:2] + full.split()[-1:], ["full", "-", "all"])
        self.assertRegex(window, "^window .* [0-9]+ of 12$")
        self.assertEqual(says, "All policies passed the text of the first (--same-text).")
        self.assertNotIn("same-text", self.generate("--policy", "full,window").stdout)

    def test_a_page_says_no_where_nothing_can_be_recorded(self):
        for said, *arguments in (("--report: only the host's choices are shown", "--device", "cuda"),
                                 ("--report, --trace-pages: one of the two", "--trace-pages", "pages")):
            done = run("--model", LLAMA, "--prompt", "=", "--report", "page.html", *arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
            self.assertFalse(os.path.exists("page.html"))

    def test_a_page_allows_its_own_script_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            self.generate("--report", path)
            with open(path, "rb") as f:
                page = f.read()
        allowed = re.search(rb"script-src ([^;]*);", page)[1].decode()
        scripts = re.findall(rb"<script([^>]*)>(.*?)</script>", page, re.S)
        hashes = ["'sha256-" + base64.b64encode(hashlib.sha256(text).digest()).decode() + "'"
                  for kind, text in scripts if b"application/json" not in kind]
        self.assertEqual([allowed], hashes)

    def test_a_run_is_recorded_as_files_of_a_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "run")
            done = self.generate("--policy", "window", "--record", path, "--json")
            self.assertEqual(os.listdir(folder), ["run-0001.safetensors"])
            with open(path + "-0001.safetensors", "rb") as f:
                length, = struct.unpack("<Q", f.read(8))
                header = json.loads(f.read(length))
            said, tokens = header["__metadata__"], json.loads(done.stdout)["runs"][0]["tokens"]
            self.assertEqual((said["zoomr_trace"], said["first"], said["model"]), ("1", "0", "llama"))
            self.assertIn("--record " + path, said["command"])
            self.assertEqual(header["token_ids"]["shape"], [int(said["prompt"]) + len(tokens)])
            for reason, *arguments in (("is there already", "--policy", "full"), ("has one prompt", "--turn", "="),
                                       ("of one run", "--policy", "full,window"), ("of one run", "--budget", "3,4"),
                                       ("only what the host passes", "--device", "cuda")):
                done = run("--model", LLAMA, "--prompt", "=", "--record", path, *arguments)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1))
                self.assertIn(reason, done.stderr)

    def test_every_policy_is_listed_with_its_budget_and_options(self):
        text = run("--list-policies").stdout
        with open(TABLE, encoding="utf-8") as table:
            names = re.findall(r'visit\(\s*preset\{\s*"(\w+)"', table.read())
        self.assertIn("full", names)
        self.assertEqual([line for line in text.splitlines() if re.fullmatch(r"\w+", line)], names)
        self.assertNotIn("\nzoomr\n", "\n" + text)  # when a vote takes effect, the paper leaves open
        self.assertNotIn("as published", text)
        self.assertEqual(text.count("--budget limits"), text.count("--set "))
        self.assertEqual(run("--model", LLAMA, "--prompt", "a", "--policy", "zoomr").returncode, 2)

    def test_a_page_of_arkvale_may_have_another_size_and_its_budget_holds_at_least_four(self):
        done = self.generate("--policy", "arkvale", "--budget", 64, "--set", "fixed_pages.longest=8", "--json")
        options = json.loads(done.stdout)["runs"][0]["stats"]["options"]
        for setting in ("top_k.segments=5", "zones.sinks=8", "zones.recent=16", "zones.align=8"):
            self.assertIn(setting, options)
        done = run("--model", LLAMA, "--prompt", "a", "--policy", "arkvale", "--budget", 96)
        self.assertEqual(done.returncode, 2)
        self.assertIn("the budget is 96, but must be at least 97", done.stderr)

    def test_an_empty_prompt_is_bos_alone(self):
        done = run("--model", LLAMA, "--prompt", "", "--max-tokens", 3, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["runs"][0]["stats"]["prompt_tokens"], 1)

    def test_a_turn_is_passed_after_an_answer_and_is_answered(self):
        alone = json.loads(self.generate("--json").stdout)["runs"][0]
        # A window that holds everything passes turns token by token; the others pass them as later prompts.
        done = self.generate("--policy", "full,quest,window", "--budget", 2048, "--turn", "; = [", "--turn", "=", "--json")
        runs = json.loads(done.stdout)["runs"]
        turns = [run["stats"]["prompt_tokens"] - alone["stats"]["prompt_tokens"] for run in runs]
        self.assertGreaterEqual(turns[0], 4)
        self.assertEqual(turns, [turns[0], turns[0], 0])
        for r in runs:
            self.assertEqual(len(r["tokens"]), 36)
            self.assertEqual(r["tokens"], runs[0]["tokens"])
            self.assertEqual(r["tokens"][:12], alone["tokens"])
            self.assertTrue(r["text"].startswith(alone["text"] + "; = ["), r["text"])
        said = self.generate("--turn", "; = [").stdout
        self.assertIn(alone["text"] + "; = [", said)
        for options, sentence in ((("--turn", ""), "--turn: there is nothing in it"),
                                  (("--turn", "= " * 5000), "has no room for 2 answers")):
            refused = run("--model", LLAMA, "--prompt", "=", *options)
            self.assertEqual(refused.returncode, 2)
            self.assertIn(sentence, refused.stderr)

    def test_a_prompt_may_come_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as f:
            f.write("= ; [")
            f.flush()
            done = run("--model", LLAMA, "--prompt-file", f.name, "--max-tokens", 12, "--json")
        self.assertEqual(json.loads(done.stdout)["runs"][0]["tokens"],
                         json.loads(self.generate("--json").stdout)["runs"][0]["tokens"])

    def changed(self, folder, **files):
        """A copy of the checkpoint with other files, by their names without .json."""
        copy = os.path.join(folder, "model")
        shutil.copytree(LLAMA, copy)
        for name, value in files.items():
            with open(os.path.join(copy, name + ".json"), "w") as f:
                json.dump(value, f)
        return copy

    def test_a_text_ends_at_the_ids_of_generation_config(self):
        tokens = json.loads(self.generate("--json").stdout)["runs"][0]["tokens"]
        end = next(i for i, token in enumerate(tokens) if i > 2 and token not in tokens[:i])
        with tempfile.TemporaryDirectory() as folder:
            model = self.changed(folder, generation_config={"eos_token_id": [tokens[end]]})
            done = run("--model", model, "--prompt", "= ; [", "--max-tokens", 12, "--json")
        self.assertEqual(json.loads(done.stdout)["runs"][0]["tokens"], tokens[:end + 1])

    def sentence_piece(self, folder):
        """The checkpoint with a tokenizer of words behind spaces, and without an end."""
        text = {"added_tokens": [], "normalizer": {"type": "Prepend", "prepend": "▁"}, "pre_tokenizer": None,
                "decoder": {"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                "model": {"type": "BPE", "vocab": {"▁": 0, "a": 1, **{f"▁w{i}": i for i in range(2, 63)}, ".": 63},
                          "merges": []}}
        with open(os.path.join(LLAMA, "config.json")) as f:
            endless = {**json.load(f), "eos_token_id": None}
        return self.changed(folder, tokenizer=text, config=endless)

    def test_the_text_goes_on_behind_the_prompt(self):
        with tempfile.TemporaryDirectory() as folder:
            model = self.sentence_piece(folder)
            for prompt in ("a", ""):
                done = run("--model", model, "--prompt", prompt, "--max-tokens", 6, "--json")
                self.assertEqual(done.returncode, 0, done.stderr)
                made = json.loads(done.stdout)["runs"][0]
                self.assertEqual(len(made["tokens"]), 6)
                words = "".join({0: " ", 1: "a", 63: "."}.get(token, f" w{token}") for token in made["tokens"])
                self.assertTrue(words.startswith(" "))
                self.assertEqual(made["text"], words if prompt else words[1:])

    def test_marks_may_end_sentences_before_blanks_only(self):
        def summaries(*arguments):
            done = run("--model", model, "--prompt", "a.a.a.▁a.a", "--policy", "sentence_kv", "--max-tokens", 1,
                       "--json", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["runs"][0]["bytes"]["summaries"]
        with tempfile.TemporaryDirectory() as folder:
            model = self.sentence_piece(folder)
            anywhere = summaries()  # of five sentences
            self.assertEqual(summaries("--sentence-marks", "anywhere"), anywhere)
            self.assertEqual(5 * summaries("--sentence-marks", "before-blank"), 2 * anywhere)


class Chat(unittest.TestCase):
    """A model whose tokens are letters, so that it writes nonsense, in the template of SmolLM2 and Qwen2.5."""

    MARKS = ("<|im_start|>", "<|im_end|>", "<|begin|>", "<|end|>", "<|first|>", "<|last|>")
    TEMPLATE = ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nbe kind<|im_end|>\n' }}{% endif %}"
                "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
                "'<|im_end|>' + '\n'}}{% endfor %}{{ '<|im_start|>assistant\n' }}")
    HEAD = "<|im_start|>system\nbe kind<|im_end|>\n"

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = os.path.join(self.folder, "model")
        shutil.copytree(LLAMA, self.model)
        letters = [*self.MARKS, *"abcdefghijklmnopqrstuvwxyz", "Ġ", "Ċ", *"<>|_.!?,:;ABCDEFGHIJKLMNOPQRS"]
        self.write("tokenizer.json", {
            "added_tokens": [{"id": i, "content": mark, "special": True} for i, mark in enumerate(self.MARKS)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {text: i for i, text in enumerate(letters)}, "merges": []}})
        self.write("tokenizer_config.json", {"chat_template": self.TEMPLATE, "eos_token": "<|im_end|>"})
        with open(os.path.join(LLAMA, "config.json")) as f:
            self.write("config.json", {**json.load(f), "eos_token_id": 1, "vocab_size": 64})

    def write(self, name, value):
        path = os.path.join(self.model, name)
        with open(path, "w") as f:
            json.dump(value, f)
        return path

    def said(self, *contents):
        return self.write("chat.json", [{"role": "user", "content": content} for content in contents])

    def chat(self, *arguments, stdin="", policy="full"):
        limit = () if "--max-tokens" in arguments else ("--max-tokens", "9")
        done = subprocess.run([PROGRAM, "--model", self.model, "--policy", policy, *limit, *map(str, arguments)],
                              capture_output=True, text=True, input=stdin, timeout=600)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def runs(self, *arguments, **options):
        return json.loads(self.chat("--json", *arguments, **options).stdout)["runs"]

    def written(self, *prompts):
        """What is written where the template is typed by hand: the answers, all of them cut, are closed."""
        turns = [part for prompt in prompts[1:] for part in ("--turn", prompt)]
        return self.runs("--prompt", prompts[0], *turns)[0]

    def test_three_messages_are_answered_in_the_template_and_cut_answers_are_closed(self):
        file = self.said("hello", "why?", "and then")
        def question(text):
            return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        by_hand = self.written(self.HEAD + question("hello"), "<|im_end|>\n" + question("why?"),
                               "<|im_end|>\n" + question("and then"))
        runs = self.runs("--chat", file, policy="full,quest")
        self.assertEqual(len(by_hand["tokens"]), 27)  # none has ended by itself
        for r in runs:
            self.assertEqual((r["tokens"], r["text"]), (by_hand["tokens"], by_hand["text"]))
            self.assertEqual(r["answers_cut"], 3)
        messages, end = runs[0]["messages"], 0
        self.assertEqual([m["role"] for m in messages], ["system"] + ["user", "assistant"] * 3)
        self.assertEqual([m["content"] for m in messages[:2]], ["be kind", "hello"])
        self.assertEqual([m.get("cut", False) for m in messages], [False] + [False, True] * 3)
        for m in messages:
            self.assertEqual(m["tokens"][0], end)
            end = m["tokens"][1]
            around = len(m["role"]) + 2 + 2 - (2 if m is messages[-1] else 0)  # two marks, two line ends
            self.assertEqual(end - m["tokens"][0], (9 if m["role"] == "assistant" else len(m["content"])) + around)
        self.assertEqual(end, runs[0]["stats"]["prompt_tokens"] + runs[0]["stats"]["tokens"])
        again = self.write("again.json", messages[:4])  # what was said is a file of messages
        self.assertEqual(self.runs("--chat", again)[0]["tokens"], by_hand["tokens"][9:18])

    def test_messages_are_typed_a_line_each_and_later_policies_answer_the_same(self):
        from_file = self.runs("--chat", self.said("hello", "why?"))[0]
        typed = self.runs("--chat", stdin="hello\n\nwhy?", policy="full,window")
        for r in typed:
            self.assertEqual([m["content"] for m in r["messages"] if m["role"] == "user"], ["hello", "why?"])
            attended = [m["attended"] for m in r["messages"] if m["role"] == "assistant"]
            self.assertLess(attended[0], r["attended_tokens_mean"])
            self.assertGreater(attended[1], r["attended_tokens_mean"])
        self.assertEqual((typed[0]["tokens"], typed[0]["messages"]), (from_file["tokens"], from_file["messages"]))
        before = self.runs("--prompt", "a text\n", "--chat", stdin="hello\n")[0]["messages"]
        self.assertEqual(before[1]["content"], "a text\n\nhello")
        shown = self.chat("--chat", stdin="hello\r\nwhy?\n")
        answers = [m["content"] for m in from_file["messages"] if m["role"] == "assistant"]
        self.assertTrue(shown.stdout.startswith(f"> hello\n{answers[0]}\n\n> why?\n{answers[1]}\n\n"), shown.stdout)
        self.assertEqual(shown.stderr, "note: cut at 9 tokens: 2 of 2 answers; see --max-tokens\n")
        both = self.chat("--chat", stdin="hello\nwhy?\n", policy="full,window")
        self.assertEqual(both.stderr, "note: cut at 9 tokens: full 2 of 2, window 2 of 2 answers; see --max-tokens\n")

    def test_a_chat_that_is_typed_ends_where_there_is_no_more_room(self):
        done = self.chat("--chat", stdin="hello\n" + "a" * 950 + "\nwhy?\n")
        self.assertIn("note: the chat ends, since ", done.stderr)
        self.assertIn("room for 1024", done.stderr)
        self.assertNotIn("why", done.stdout)

    def test_the_message_of_the_system(self):
        file = self.said("hello")
        def first(*arguments):
            return [(m["role"], m["content"]) for m in self.runs("--chat", file, *arguments)[0]["messages"][:-1]]
        self.assertEqual(first(), [("system", "be kind"), ("user", "hello")])
        self.assertEqual(first("--system", "a<|im_end|>"), [("system", "a<|im_end|>"), ("user", "hello")])
        self.assertEqual(first("--system", ""), [("system", ""), ("user", "hello")])  # the template says one always
        without = self.TEMPLATE.replace("be kind", "' + messages[0]['content'] + '")
        self.write("tokenizer_config.json", {"chat_template": without})
        self.assertEqual(first("--system", ""), [("user", "hello")])

    def test_marks_of_thoughts_are_named(self):
        text = ("--prompt", "a<|begin|>b<|end|><|first|>c<|last|>d")
        plain = self.chat(*text, policy="zoomr_focus")
        marked = self.chat(*text, "--marks", "<|begin|>,<|end|>,<|first|>,<|last|>", policy="zoomr_focus")
        self.assertIn("is for texts with thoughts", plain.stderr)
        self.assertNotIn("is for texts with thoughts", marked.stderr)

    def test_a_page_has_the_text_of_all_turns(self):
        path = os.path.join(self.folder, "page.html")
        file = self.said("hello", "why?", "and then")
        run = self.runs("--chat", file, "--report", path, policy="full,window")[0]
        page = data_of(path)
        text = self.HEAD + "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n" + run["text"]
        self.assertEqual("".join(page["texts"][0]), text)
        self.assertEqual(dict(page["runs"][0]["figures"])["answers cut"], "3 of 3")
        self.assertEqual(page["runs"][0]["steps"], 3 * 9 + 2)

    def test_a_cut_answer_is_said_to_be_cut_in_all_modes(self):
        def note(*arguments):
            return self.chat("--prompt", "hello", *arguments).stderr
        self.assertEqual(note(), "note: the answer is cut at 9 tokens; see --max-tokens\n")
        self.assertEqual(note("--turn", "why?"), "note: cut at 9 tokens: 2 of 2 answers; see --max-tokens\n")
        self.assertEqual(note("--max-tokens", 5000),
                         "note: the answer is cut at 1019 tokens; the model's context has no room for more\n")
        tokens = self.runs("--prompt", "hello")[0]["tokens"]
        self.write("generation_config.json", {"eos_token_id": tokens[3]})
        ended = self.chat("--prompt", "hello")
        self.assertEqual(ended.stderr, "")
        self.assertEqual(self.runs("--prompt", "hello")[0]["answers_cut"], 0)

    def test_what_is_refused(self):
        file = self.said("hello")
        def refused(says, *arguments):
            done = run("--model", self.model, *arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), done.stderr)
            self.assertIn(says, done.stderr)
        refused("--chat: there is no message on standard input", "--chat")
        refused("a chat has its messages alone", "--chat", file, "--turn", "a")
        refused("a trace has one prompt", "--chat", file, "--record", "trace")
        refused("on a device there are no later turns", "--chat", file, "--device", "cuda")
        refused("--system is for --chat", "--prompt", "a", "--system", "b")
        refused("four tokens are needed, but 1", "--prompt", "a", "--marks", "<|begin|>")
        refused("\"<|x|>\" is no token", "--prompt", "a", "--marks", "<|x|>,<|end|>,<|first|>,<|last|>")
        refused("would be lost", "--chat", file, "--report", file)
        refused("the messages have", "--chat", self.said("a" * 2000))
        listed = self.write("list.json", [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
        refused("has a message of the system already", "--chat", listed, "--system", "c")
        self.write("tokenizer_config.json", {"chat_template": "{{ messages }}"})
        refused("tokenizer_config.json: chat_template is none that is known here", "--chat", file)
        self.write("tokenizer_config.json", {})
        refused("chat_template is missing", "--chat", file)


class Windows(unittest.TestCase):
    """A model of which five layers of six see a window of 8 tokens."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.model = os.path.join(folder.name, "model")
        shutil.copytree(os.path.join(FIXTURES, "gemma3"), self.model)
        shutil.copy(os.path.join(LLAMA, "tokenizer.json"), self.model)
        path = os.path.join(self.model, "config.json")
        with open(path) as f:
            config = json.load(f)
        with open(path, "w") as f:
            json.dump({**config, "eos_token_id": None}, f)  # all texts have the same length

    def generate(self, *arguments):
        return run("--model", self.model, "--prompt", "= ; [ = ; [ = ; [ = ; [ = ; [ = ;", "--max-tokens", 9, *arguments)

    def test_a_policy_is_for_the_layers_without_a_window(self):
        def of(*arguments):
            done = self.generate("--json", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout)["runs"][0]
        full = of()
        window = of("--policy", "window", "--set", "zones.recent=3", "--set", "zones.sinks=0")
        self.assertGreater(full["bytes"]["details"], 0)
        seen = 17 + (1 + 9) / 2  # by a token without a window, mean over nine after a prompt of 17
        self.assertAlmostEqual(full["attended_tokens_mean"] - window["attended_tokens_mean"], (seen - 3) / 7)

    def test_a_page_has_the_layers_without_a_window(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            done = self.generate("--policy", "window", "--report", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            page = data_of(path)["runs"][0]
        self.assertEqual(page["layers"], [5])
        self.assertEqual(len(page["levels"]["lanes"]), page["kv_heads"])
        self.assertGreater(page["query_heads"], page["kv_heads"] * page["group"])  # all layers: what is counted

    def test_what_serves_all_layers_alike_refuses_it(self):
        for said, *arguments in (("--device cuda", "--device", "cuda"), ("--tiers", "--tiers", "device=1MiB"),
                                 ("--trace-pages", "--trace-pages", "pages")):
            done = self.generate(*arguments)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"{said}: layers of Gemma 3 differ", done.stderr)
            self.assertEqual(done.stderr.strip().count("\n"), 0)
            self.assertEqual(done.stdout, "")


class Demo(unittest.TestCase):
    def test_the_demo_measures_every_policy_and_control_on_both_checkpoints(self):
        done = run("ledger", "--problems", 2, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(done.stdout)["runs"]
        names = {"full", "window", "summary_only", "zoomr_one_pass", "zoomr_second_pass", "zoomr_mass",
                 "zoomr_focus", "sentence_kv", "quest", "random_c", "oracle"}
        by = {(r["checkpoint"], r["policy"]): r for r in runs}
        self.assertEqual(set(by), {(c, n) for c in ("plain", "indexed") for n in names})
        for r in runs:
            self.assertEqual(r["problems"], 2)
            for key in ("fine_accuracy", "coarse_accuracy", "fine_accuracy_free", "exact_match"):
                self.assertTrue(0 <= r[key] <= 1)
        for checkpoint in ("plain", "indexed"):
            full, zoomr = by[checkpoint, "full"], by[checkpoint, "zoomr_one_pass"]
            self.assertLessEqual(zoomr["attended_tokens_mean"], 0.58 * full["attended_tokens_mean"])
            self.assertLess(zoomr["device_bytes_peak"], full["device_bytes_peak"])

    def test_the_demo_shows_what_was_zoomed_into(self):
        text = run("ledger", "--problems", 1, "--policies", "full,zoomr_mass").stdout
        self.assertIn("->", text)
        self.assertIn("the one it needs", text)
        self.assertIn("fine free", text)
        self.assertNotIn("oracle", text)

    def test_the_demo_shows_the_zooms_of_all_layers_and_what_its_controls_are(self):
        text = run("ledger", "--problems", 1, "--policies", "zoomr_mass,zoomr_focus,random_c,oracle").stdout
        self.assertIn("indexed, zoomr_focus: what is zoomed into, in any layer,", text)
        self.assertNotIn("zoomr_mass: what is zoomed into", text)
        indexed = text.split("indexed, zoomr_focus")[1]
        self.assertNotIn("not the one it needs", indexed)
        self.assertIn("random_c: a control", text)
        self.assertIn("oracle: a control", text)
        self.assertIn("fine free: ", text)

    def test_the_demo_writes_a_page_with_what_its_presets_have_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "page.html")
            model = os.path.join(LEDGER, "checkpoints", "indexed")
            done = run("ledger", "--model", model, "--problems", 1, "--policies", "full,zoomr_focus,oracle", "--report",
                       path, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            page, runs = data_of(path), json.loads(done.stdout)["runs"]
        self.assertIn("ledger --model", page["command"])
        self.assertEqual([one["policy"] for one in page["runs"]], ["indexed, full", "indexed, zoomr_focus"])
        self.assertEqual(len(page["texts"]), 1)
        for one, ran in zip(page["runs"], runs):  # what was passed token by token has cost what it did in drafts
            self.assertEqual(one["steps"], ran["stats"]["tokens"])
            figures = dict(one["figures"])
            self.assertEqual(figures["choices"], str(ran["stats"]["refreshes"]))
            self.assertEqual(figures["zoomed into"], str(ran["stats"]["zooms"]))
            self.assertEqual(figures["attended tokens, mean"], f"{ran['attended_tokens_mean']:.1f}")
            self.assertGreater(float(figures["tokens a second"]), 0)


class Refusals(unittest.TestCase):
    def refused(self, *arguments, says):
        done = run(*arguments)
        self.assertEqual(done.returncode, 2, (arguments, done.stderr))
        lines = done.stderr.strip().split("\n")
        self.assertEqual(len(lines), 1, done.stderr)
        self.assertIn(says, lines[0])
        self.assertEqual(done.stdout, "")

    def test_bad_options(self):
        model = ("--model", LLAMA, "--prompt", "=")
        self.refused(*model, "--policy", "zoom", says="there is no policy")
        self.refused(*model, "--budget", 0, says="--budget")
        self.refused(*model, "--budget", 10**12, says="--budget")
        self.refused(*model, "--policy", "sentence_kv", "--set", "fill_budget.tokens=63", says="smaller than sinks + window")
        self.refused(*model, "--policy", "window", "--budget", 4, says="must be at least 5")
        self.refused(*model, "--max-tokens", 0, says="--max-tokens")
        self.refused(*model, "--threads", 0, says="--threads")
        self.refused(*model, "--storage", "q5_0", says="--storage")
        self.refused(*model, "--storage", "q4_0", says="blocks of 32 numbers")  # heads of 8 dimensions
        self.refused(*model, "--storage", "q8_0", "--tiers", "device=1MiB", says="keys and values are float")
        self.refused(*model, "--storage", "q4_0", "--device", "cuda", says="keys and values are float")
        self.refused(*model, "--threads", 2, "--device", "cuda", says="threads are of the host")
        self.refused(*model, "--top-p", 0, says="top-p")
        self.refused(*model, "--temperature", -1, says="temperature")
        self.refused(*model, "--set", "zones.sinks", says="component.field=value")
        self.refused(*model, "--set", "zones.sinks=many", says="not a number")
        self.refused(*model, "--set", "zones.height=3", says="no chosen policy has such an option")
        self.refused(*model, "--set", "zones.sinks=-1", says="negative")
        self.refused(*model, "--nonsense", says="--nonsense")
        self.refused(*model, "--device", "tpu", says="--device")
        self.refused("--device", "cuda", "ledger", says="runs on the host")
        self.refused(*model, "--tiers", "host=1MiB", says="host and file need a size")
        self.refused(*model, "--tiers", "host=1MiB,tape=3", says="it must be host=SIZE")
        self.refused(*model, "--tiers", "device=many", says="is not a size like 64MiB")
        self.refused(*model, "--tiers", "host=1KiB,file=/tmp:1GiB", says="it must be at least")
        self.refused(*model, "--tiers", "file=/nowhere/at/all:1GiB,host=1MiB", says="cannot be made")
        self.refused("--tiers", "host=1MiB,file=/tmp:1GiB", "ledger", says="runs without")
        self.refused("ledger", "--problems", 0, says="--problems")
        self.refused("ledger", "--policies", "zoom", says="there is no policy")
        self.refused("--prompt", "x", says="--model is missing")
        self.refused("--model", LLAMA, "--prompt-file", "/nonexistent", says="/nonexistent")
        self.refused("--model", LLAMA, "--prompt", "nonsense", says="nonsense")
        self.refused(*model, "--sentence-marks", "never", says="--sentence-marks")
        self.refused(*model, "--sentence-marks", "before-blank", "--delimiters", ";", says="excludes")
        self.refused(*model, "--line-ends", "--delimiters", ";", says="excludes")

    def broken(self, name, change, says, prompt="="):
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "model")
            shutil.copytree(LLAMA, copy)
            path = os.path.join(copy, name)
            with open(path, "rb") as f:
                data = f.read()
            with open(path, "wb") as f:
                f.write(change(data))
            self.refused("--model", copy, "--prompt", prompt, says=says)

    def test_bad_checkpoints(self):
        def edit(**changes):
            return lambda data: json.dumps({**json.loads(data), **changes}).encode()
        self.broken("model.safetensors", lambda d: d[:len(d) // 2], "model.safetensors")
        self.broken("model.safetensors", lambda d: d[:4], "model.safetensors")
        self.broken("model.safetensors", lambda d: struct.pack("<Q", 2**63) + d[8:], "header")
        self.broken("model.safetensors", lambda d: d[:-2] + b"\xc0\x7f", "NaN")   # the last weight, bfloat16
        self.broken("model.safetensors", lambda d: d.replace(b"model.norm.weight", b"model.norm.height"), "norm")
        self.broken("config.json", edit(architectures=["MambaForCausalLM"], model_type="mamba"), "Mamba")
        self.broken("config.json", edit(hidden_size=10**15), "hidden_size")
        self.broken("config.json", edit(num_key_value_heads=3), "key_value_heads")
        self.broken("config.json", lambda d: b"[" * 100000, "deep")
        self.broken("config.json", lambda d: d[:20], "config.json")
        self.broken("tokenizer.json", lambda d: b'{"model":' * 5000, "deep")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=1)
