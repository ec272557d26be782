# SPDX-License-Identifier: Apache-2.0
"""The program zoomr-replay as its users meet it: figures and files, what it refuses, and how much memory it takes.

    python3 replay_cli_test.py PROGRAM
"""
import csv
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy

PROGRAM = sys.argv[1]
LAYERS, HEADS, KV_HEADS, DIM, TOKENS, PROMPT = 2, 4, 2, 16, 160, 60
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "U8": 1, "I32": 4}
# Runs a program, and prints how much memory it had at most: a child of a small process, whose own does not count.
PEAK = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL); "
        "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")


def run(*arguments):
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def file_bytes(metadata, tensors):
    """A safetensors file of {name: (dtype, shape, bytes)}."""
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, numbers) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(numbers)]}
        data += numbers
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class part:
    """Tokens [first, last) of a trace, to be changed before they are written."""

    def __init__(self, first=0, last=TOKENS):
        random = numpy.random.default_rng(first)
        self.metadata = {"zoomr_trace": "1", "layers": str(LAYERS), "heads": str(HEADS), "kv_heads": str(KV_HEADS),
                         "head_dim": str(DIM), "first": str(first), "prompt": str(PROMPT), "model": "a model"}
        self.tensors, self.count = {}, last - first
        for layer in range(LAYERS):
            for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
                numbers = random.standard_normal((self.count, heads, DIM), dtype=numpy.float32)
                self.tensors[f"layers.{layer}.{name}"] = ("F32", numbers.shape, numbers.tobytes())
        self.tensors["token_classes"] = ("U8", (self.count,), bytes(t % 7 == 6 for t in range(self.count)))

    def change(self, name, dtype=None, shape=None, numbers=None):
        before = self.tensors[name]
        self.tensors[name] = (dtype or before[0], shape or before[1], before[2] if numbers is None else numbers)
        return self

    def say(self, **metadata):
        for name, value in metadata.items():
            if value is None:
                self.metadata.pop(name, None)
            else:
                self.metadata[name] = value
        return self

    def put(self, name, at, value):
        numbers = bytearray(self.tensors[name][2])
        numbers[4 * at:4 * at + 4] = struct.pack("<f", value)
        return self.change(name, numbers=bytes(numbers))

    def bytes(self):
        return file_bytes(self.metadata, self.tensors)


def text(count, ends):
    changed = part()
    changed.tensors["text"] = ("U8", (count,), b"a" * count)
    changed.tensors["text_ends"] = ("I32", (len(ends),), struct.pack(f"<{len(ends)}i", *ends))
    return changed


def without(name):
    changed = part()
    del changed.tensors[name]
    return changed


def extra(name):
    changed = part()
    changed.tensors[name] = ("F32", (1,), b"0000")
    return changed


def lying(header):
    """A file whose header is what its bytes do not bear out."""
    text_of = json.dumps(header).encode()
    return struct.pack("<Q", len(text_of)) + text_of


WHOLE, A, B = part(), part(0, 100), part(100, TOKENS)
META = {"__metadata__": WHOLE.metadata}
HUGE = {**META, "layers.0.q": {"dtype": "F32", "shape": [1 << 40, 4, 16], "data_offsets": [0, 1 << 50]}}
MALFORMED = {  # files, and words of the sentence
    "nothing": ([b""], "no header"),
    "a header that is cut": ([WHOLE.bytes()[:100]], "header claims"),
    "data that are cut": ([WHOLE.bytes()[:-9]], "must lie between 163840 and 163991"),
    "a header longer than the file": ([struct.pack("<Q", 1 << 60) + b"{}"], "header claims"),
    "no JSON": ([struct.pack("<Q", 4) + b"{]}}"], "not valid JSON"),
    "more bytes than there are": ([lying(HUGE)], "must lie between"),
    "no metadata": ([file_bytes({}, WHOLE.tensors)], "no \"zoomr_trace\""),
    "metadata that are no strings": ([lying({"__metadata__": {"layers": 2}})], "must be a string"),
    "another version": ([part().say(zoomr_trace="2").bytes()], "version 1 is read"),
    "no number of heads": ([part().say(heads=None).bytes()], "no \"heads\""),
    "no number": ([part().say(heads="four").bytes()], "\"heads\" must be a whole number"),
    "too many layers": ([part().say(layers="99999999999").bytes()], "\"layers\" must be a whole number"),
    "more layers than there are": ([part().say(layers="3").bytes()], "\"layers.2.q\" is missing"),
    "fewer layers than there are": ([part().say(layers="1").bytes()], "no tensor \"layers.1."),
    "layers with a zero before": ([part().say(layers="02").bytes()], "\"layers\" must be a whole number"),
    "a prompt with a zero before": ([part().say(prompt="060").bytes()], "\"prompt\" must be a whole number"),
    "a first token of two zeros": ([part().say(first="00").bytes()], "\"first\" must be a whole number"),
    "layer ids with a zero before": ([part().say(layer_ids="0,01").bytes()], "\"layer_ids\" must be a whole number"),
    "a scale with a zero before": ([part().say(scale="00.5").bytes()], "\"scale\" must be a positive number"),
    "heads that do not divide": ([part().say(kv_heads="3").bytes()], "multiple of kv_heads"),
    "another width": ([part().say(head_dim="8").bytes()], "must have [160, 4, 8]"),
    "a scale that is none": ([part().say(scale="-1").bytes()], "\"scale\" must be a positive number"),
    "too few layer ids": ([part().say(layer_ids="3").bytes()], "\"layer_ids\" has 1 numbers"),
    "layer ids that go backwards": ([part().say(layer_ids="3,2").bytes()], "\"layer_ids\" must be a whole number"),
    "no prompt": ([part().say(prompt="0").bytes()], "\"prompt\" must be a whole number"),
    "no token after the prompt": ([part().say(prompt="160").bytes()], "no token after its prompt of 160"),
    "a prompt longer than the trace": ([part().say(prompt="161").bytes()], "the prompt has 161 tokens"),
    "a tensor that is missing": ([without("layers.1.v").bytes()], "\"layers.1.v\" is missing"),
    "a tensor too many": ([extra("layers.1.w").bytes()], "no tensor \"layers.1.w\""),
    "an index of the model's own": ([extra("layers.1.index_k").bytes()], "an index of the model's own"),
    "keys of fewer tokens": ([part().change("layers.1.k", shape=(159, 2, 16),
                                            numbers=b"0" * 4 * 159 * 32).bytes()], "must have [160, 2, 16]"),
    "keys of another type": ([part().change("layers.1.k", "BF16", numbers=b"0" * 2 * 160 * 32).bytes()],
                             "others of the trace have F32"),
    "keys of an unknown type": ([part().change("layers.0.k", "I32").bytes()], "F32, F16 and BF16 are read"),
    "no tokens": ([part(0, 0).bytes()], "there are no tokens"),
    "a hole between files": ([A.bytes(), part(101, TOKENS).bytes()], "one is missing"),
    "files out of order": ([B.bytes(), A.bytes()], "one is missing, out of order"),
    "a file twice": ([A.bytes(), A.bytes()], "named twice"),
    "files of two prompts": ([A.bytes(), part(100, TOKENS).say(prompt="61").bytes()], "\"prompt\" is \"61\""),
    "files of two types": ([A.bytes(), part(100, TOKENS).say(scale="0.5").bytes()], "\"scale\" is \"0.5\""),
    "classes in one file": ([A.bytes(), (lambda b: (b.tensors.pop("token_classes"), b)[1])(
        part(100, TOKENS)).bytes()], "in all files of a trace, or in none"),
    "classes too few": ([part().change("token_classes", shape=(9,), numbers=b"0" * 9).bytes()], "there are 160 tokens"),
    "text that goes backwards": ([text(160, [5] + [4] * 159).bytes()], "text_ends go backwards, from 5 to 4"),
    "text that ends too late": ([text(10, [11] * 160).bytes()], "end at byte 11, but the text has 10"),
    "text without ends": ([extra("text").bytes()], "need each other"),
    "ids too few": ([extra("token_ids").bytes()], "token_ids must be I32 [160]"),
    "a NaN in the prompt": ([part().put("layers.1.k", 32 * 57 + 3, float("nan")).bytes()],
                            "layers.1.k has a NaN or an infinity at token 57"),
    "logits that are too large": ([part().put("layers.1.k", 32 * 57 + 3, 1e19).put("layers.1.q", 64 * 90 + 3, 1e30)
                                   .bytes()], "layer 1: query head 0 of token 90 has logits that are too large"),
    "an infinity after it": ([A.bytes(), part(100, TOKENS).put("layers.0.q", 64 * 21, float("inf")).bytes()],
                             "layers.0.q has a NaN or an infinity at token 121"),
}


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def written(self, *files):
        paths = [self.path(f"trace{i}.safetensors") for i in range(len(files))]
        for path, bytes_of in zip(paths, files):
            with open(path, "wb") as f:
                f.write(bytes_of)
        return paths

    def refused(self, done, words):
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertTrue(done.stderr.startswith("zoomr-replay: "), done.stderr)
        self.assertEqual(done.stdout, "")

    def test_what_is_no_trace_is_one_sentence(self):
        for name, (files, words) in MALFORMED.items():
            with self.subTest(name):
                result = self.path("result.json")
                self.refused(run(*self.written(*files), "--policy", "quest@64", "--json", result), words)
                self.assertFalse(os.path.exists(result))

    def test_each_byte_is_a_class(self):
        for flags in (b"\x80", b"\xff"):
            trace = self.written(part().change("token_classes", numbers=flags * 160).bytes())
            done = run(*trace, "--policy", "quest@64")
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_is_no_policy_is_one_sentence(self):
        trace = self.written(WHOLE.bytes())
        for arguments, words in ((("--policy", "nobody"), "there is no policy"),
                                 (("--policy", "quest@0"), "must be a whole number"),
                                 (("--policy", "quest+zones.colour=1"), "has no option"),
                                 (("--policy", "zoomr_voters"), "--voters FILE"),
                                 (("--memory", "much"), "is not a size like 64MiB"),
                                 (("--memory", "1"), "--memory is 1 bytes"),
                                 (("--device-bytes", "4GiB"), "of which --device-bytes takes"),
                                 (("--device-bytes", "1KiB"), "it must be at least")):
            with self.subTest(arguments):
                self.refused(run(*trace, *arguments), words)
        plain = self.written(without("token_classes").bytes())
        self.refused(run(*plain, "--policy", "sentence_kv"), "neither token_classes nor text")
        self.refused(run(self.path("nowhere")), "no such file")

    def test_an_output_is_neither_the_trace_nor_another_output(self):
        trace, = self.written(WHOLE.bytes())
        link, one = self.path("link"), self.path("one")
        os.symlink(trace, link)
        for option in ("--json", "--csv", "--report", "--resume"):
            for name in (trace, link, os.path.join(self.folder, ".", "trace0.safetensors")):
                with self.subTest(option=option, name=name):
                    self.refused(run(trace, option, name), f"{option} {name}: the trace {trace} is the same file")
            self.refused(run(trace, option, ""), f"{option}: the name is empty")
        for first, second in (("--json", "--csv"), ("--csv", "--report"), ("--json", "--resume")):
            self.refused(run(trace, first, one, second, one), "is the same file, and would be lost")
        with open(trace, "ab") as log:
            done = subprocess.run([PROGRAM, trace], stdout=log, stderr=subprocess.PIPE, text=True, timeout=300)
        self.assertEqual(done.returncode, 2)
        self.assertIn("standard output: the trace", done.stderr)
        with open(trace, "rb") as f:
            self.assertEqual(f.read(), WHOLE.bytes())
        self.assertFalse(os.path.exists(one))

    def test_tables_go_on_behind_those_of_yesterday(self):
        trace, = self.written(WHOLE.bytes())
        with open(self.path("tables"), "w") as f:
            f.write("yesterday\n")
        with open(self.path("tables"), "a") as f:
            done = subprocess.run([PROGRAM, trace, "--csv", "/dev/stdout"], stdout=f, stderr=subprocess.PIPE,
                                  timeout=300)
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        with open(self.path("tables")) as f:
            lines = f.read().splitlines()
        self.assertEqual(lines[0], "yesterday")
        self.assertTrue(lines[1].startswith("policy,"), lines[1])
        self.assertIn("60 tokens of prompt and 100 after it", lines[1 + 1 + 1 + LAYERS * HEADS])

    def test_a_name_of_a_trace_is_short_and_on_one_line(self):
        for name in ("x" * 5000, "new\nline"):
            done = run(self.path(name))
            self.refused(done, "x" * 100 if len(name) > 100 else "new\\x0aline")
            self.assertLess(len(done.stderr), 2100)
        self.refused(run(*self.written(WHOLE.bytes()), "--scratch", "/dev/null", "--memory", "1900KiB"), "/dev/null")

    def test_figures_of_all_files_are_the_same(self):
        trace = self.written(A.bytes(), B.bytes())
        policies = ("--policy", "full,quest@32+zones.dense_layers=0", "--policy", "window", "--budget", "24,48")
        done = run(*trace, *policies, "--json", self.path("json"), "--csv", self.path("csv"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(self.path("json")) as f:
            document = json.load(f)
        runs = {r["policy"]: r for r in document["runs"]}
        self.assertEqual(list(runs), ["full", "quest@32+zones.dense_layers=0", "window@24", "window@48"])
        self.assertEqual(document["trace"]["tokens"], TOKENS)
        self.assertEqual(document["trace"]["prompt"], PROMPT)
        self.assertEqual(document["trace"]["model"], "a model")
        for name, r in runs.items():
            self.assertEqual(r["queries"], (TOKENS - PROMPT) * LAYERS * HEADS)
            self.assertEqual(r["stats"]["tokens"], TOKENS - PROMPT)
            self.assertEqual(numpy.shape(r["heads"]["error"]), (LAYERS, HEADS))
            self.assertAlmostEqual(float(numpy.mean(r["heads"]["captured"])), r["captured"])
            self.assertEqual(r["conclusive"], name != "full")
        self.assertLess(runs["full"]["worst_error"], 1e-5)
        self.assertEqual(runs["window@24"]["attended"], 24)
        self.assertEqual(runs["window@24"]["active"], runs["window@24"]["queries"])
        self.assertGreater(runs["window@24"]["error"], runs["window@48"]["error"])
        self.assertLess(runs["window@24"]["captured"], runs["window@48"]["captured"])
        with open(self.path("csv")) as f:
            lines = list(csv.DictReader(f))
        self.assertEqual(len(lines), 4 * (1 + LAYERS * HEADS))
        for line in lines:
            r = runs[line["policy"]]
            wanted = r if line["layer"] == "" else {
                key: r["heads"][key][int(line["layer"])][int(line["head"])] for key in r["heads"]}
            for key in ("attended", "error", "worst_error", "captured", "recall", "churn"):
                self.assertEqual(float(line[key]), wanted[key])
        table = done.stdout.splitlines()
        self.assertEqual([row.split()[0] for row in table[2:]], list(runs))
        self.assertIn("60 tokens of prompt and 100 after it", table[0])

    def test_a_trace_too_short_is_no_reason_for_a_conclusion(self):
        done = run(*self.written(WHOLE.bytes()), "--policy", "quest@1024,window@24", "--json", self.path("json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = {row.split()[0]: row.split() for row in done.stdout.splitlines()}
        self.assertEqual(rows["quest@1024"][1:9], ["0.0", "%", "-", "-", "-", "-", "-", "-"])
        self.assertIn("quest@1024: no conclusion, since it left out nothing in any of 800 queries", done.stdout)
        self.assertNotIn("window@24: no conclusion", done.stdout)
        with open(self.path("json")) as f:
            self.assertEqual([r["conclusive"] for r in json.load(f)["runs"]], [False, True])

    def test_dense_layers_are_not_called_a_trace_that_is_too_short(self):
        """The trace has two layers, as many as are dense under quest."""
        trace = self.written(WHOLE.bytes())
        policies = ("--policy", "quest@32,quest@1024+zones.dense_layers=1")
        done = run(*trace, *policies, "--report", self.path("page"), "--json", self.path("json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        dense, short = done.stdout.splitlines()[-2:]
        self.assertIn("quest@32: no conclusion", dense)
        self.assertTrue(dense.endswith(": the trace has none but its dense layers"), dense)
        self.assertTrue(short.endswith(": the trace is too short for it"), short)
        with open(self.path("page"), encoding="utf-8") as f:
            page = f.read()
        self.assertIn("none: the trace has none but its dense layers", page)
        self.assertIn("none: the trace is too short for it", page)
        with open(self.path("json")) as f:
            self.assertEqual([r["dense"] for r in json.load(f)["runs"]], [True, False])
        for _ in range(2):  # played, and found in the file
            again = run(*trace, *policies, "--resume", self.path("kept"))
            self.assertEqual(again.stdout.splitlines()[-2:], [dense, short])

    def test_without_a_terminal_each_part_of_the_work_has_a_line(self):
        done = run(*self.written(WHOLE.bytes()), "--advise", "--policy", "full,window@24,window@48", "--at-once", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.splitlines(), ["zoomr-replay: policies 1 to 2 of 3",
                                                    "zoomr-replay: policies 3 to 3 of 3"])

    def test_sentences_end_where_the_text_has_marks_if_nothing_else_says_so(self):
        changed = without("token_classes")
        words = [b"a.", b"b", b" c", b"d"] * 40
        changed.tensors["text"] = ("U8", (sum(map(len, words)),), b"".join(words))
        ends = numpy.cumsum([len(word) for word in words], dtype=numpy.int32)
        changed.tensors["text_ends"] = ("I32", ends.shape, ends.tobytes())
        done = run(*self.written(changed.bytes()), "--policy", "sentence_box@32")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("note: the trace has no token_classes", done.stderr)

    def test_layers_and_voters_have_the_numbers_of_the_model(self):
        trace = self.written(part().say(layer_ids="1,3").bytes())
        voters = self.path("voters.json")

        def play(layers, *weights):
            with open(voters, "w") as f:
                json.dump({"layers": layers, "heads": HEADS, "weights": weights}, f)
            return run(*trace, "--policy", "sentence_voters", "--voters", voters, "--csv", self.path("csv"))

        done = play(5, [3, 2, 1.5], [0, 1, 2.0])
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(self.path("csv")) as f:
            lines = list(csv.DictReader(f))
        self.assertEqual([line["layer"] for line in lines], [""] + ["1"] * HEADS + ["3"] * HEADS)
        with open(self.path("csv")) as f:
            alike = f.read()
        self.assertEqual(play(4, [3, 2, 1.5]).returncode, 0)    # the other weight was of a layer that is not there
        with open(self.path("csv")) as f:
            self.assertEqual(f.read(), alike)
        self.refused(play(5, [0, 1, 2.0]), "voters")            # nobody is left
        self.refused(play(3, [1, 1, 2.0]), "layers is 3, but must lie between 4")

    def test_what_has_finished_is_not_played_again(self):
        trace = self.written(WHOLE.bytes())
        keep = ("--resume", self.path("kept"))
        first = run(*trace, "--policy", "quest@32,window@24", *keep, "--json", self.path("first"))
        self.assertEqual(first.returncode, 0, first.stderr)
        with open(self.path("kept"), "a") as f:
            f.write('{"trace": "cut sho')
        second = run(*trace, "--policy", "quest@32,h2o@32,window@24", *keep, "--json", self.path("second"))
        self.assertEqual(second.returncode, 0, second.stderr)
        with open(self.path("first")) as f, open(self.path("second")) as g:
            before, after = json.load(f)["runs"], json.load(g)["runs"]
        self.assertEqual([before[0], before[1]], [after[0], after[2]])    # with the seconds that they took then
        with open(self.path("kept")) as f:
            self.assertEqual([json.loads(line)["run"]["policy"] for line in f], ["quest@32", "window@24", "h2o@32"])
        self.refused(run(*self.written(part().say(scale="0.5").bytes()), *keep), "line 1: it is of another trace")

    def test_memory_does_not_grow_with_the_trace(self):
        """96 MiB, of which 64 are keys and values, that leave no room for a cache of them."""
        tokens, heads, dim, layers = 8192, 4, 64, 4
        path, block = self.path("long.safetensors"), tokens * heads * dim * 4
        header, names = {"__metadata__": {
            "zoomr_trace": "1", "layers": str(layers), "heads": str(heads), "kv_heads": str(heads),
            "head_dim": str(dim), "first": "0", "prompt": str(tokens - 12)}}, [f"layers.{l}.{n}" for l in range(layers) for n in "qkv"]
        for i, name in enumerate(names):
            header[name] = {"dtype": "F32", "shape": [tokens, heads, dim], "data_offsets": [i * block, (i + 1) * block]}
        text_of = json.dumps(header).encode()
        some = numpy.random.default_rng(1).standard_normal(block // 64, dtype=numpy.float32).tobytes()
        with open(path, "wb") as f:
            f.write(struct.pack("<Q", len(text_of)) + text_of)
            for _ in range(16 * len(names)):
                f.write(some)
        self.assertGreater(os.path.getsize(path), 96 << 20)
        arguments = [PROGRAM, path, "--policy", "full,window@512", "--memory", "40MiB", "--json", self.path("json"),
                     "--scratch", self.folder]
        done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, text=True, timeout=300)
        status, peak = map(int, done.stdout.split())
        self.assertEqual(status, 0, done.stderr)
        self.assertLess(peak << 10, 88 << 20)
        with open(self.path("json")) as f:
            full = json.load(f)["runs"][0]
        self.assertLess(full["worst_error"], 1e-4)
        self.assertGreater(full["capacity"]["file"], 60 << 20)
        self.assertGreater(full["tiers"]["bytes_in"], 300 << 20)    # keys and values came for each token


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
