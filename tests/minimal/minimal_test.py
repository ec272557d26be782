# SPDX-License-Identifier: Apache-2.0
"""The program zoomr-minimal: what it prints, which is the same on every machine, and what it refuses.

    python3 minimal_test.py PROGRAM REPOSITORY
"""
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM, REPOSITORY = map(os.path.abspath, sys.argv[1:3])
CHECKPOINT = os.path.join(REPOSITORY, "examples", "studies", "ledger", "checkpoints", "indexed")
EXPECTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "expected.txt")


def run(*arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run([PROGRAM, *arguments], stderr=subprocess.PIPE, text=True, cwd="/",
                          timeout=300, **options)


def text_after(title, printed):
    return printed.split(title + "\n", 1)[1].split("\n\n", 1)[0].split()


def trace_of(program):
    """What the rules of the task make of a program: its thoughts and summaries, up to <ans>."""
    with open(os.path.join(CHECKPOINT, "ledger.json"), encoding="utf-8") as f:
        task = json.load(f)
    kappa = dict(zip(task["names"], task["kappa"]))
    lines, written = {}, []
    for name, value in re.findall(r"(\w+) = ([^;]*) ;", " ".join(program)):
        seed = re.fullmatch(r"#(\d+)", value)
        source, line = (None, None) if seed else re.fullmatch(r"(\w+) \[ @?(\w+) \]", value).groups()
        values = [int(seed[1]) if seed else lines[source][-1 if line == "last" else int(line)]]
        while len(values) < task["lines"]:
            values.append(task["permutation"][(values[-1] + kappa[name]) % task["values"]])
        lines[name] = values
        shown = " ".join(f"@{j} {v:02d}" for j, v in enumerate(values))
        written += (f"<thought> {name} = {value} ; {values[0]:02d} {shown} </thought> "
                    f"<summary> {name} last {values[-1]:02d} </summary>").split()
    return written + ["<ans>"]


class Output(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.done = run()

    def test_everything_that_is_printed_is_as_expected(self):
        self.assertEqual((self.done.returncode, self.done.stderr), (0, ""))
        with open(EXPECTED, encoding="utf-8") as f:
            self.assertEqual(self.done.stdout, f.read())

    def test_the_directory_can_be_named(self):
        self.assertEqual(run(CHECKPOINT).stdout, self.done.stdout)

    def test_both_texts_are_what_the_task_asks_for(self):
        trace = trace_of(text_after("The prompt:", self.done.stdout))
        self.assertGreater(len(trace), 700)
        self.assertEqual(text_after("Full attention wrote:", self.done.stdout), trace)
        self.assertEqual(text_after("The policy wrote:", self.done.stdout), trace)

    def test_some_layer_reads_the_thought_that_a_pointer_into_it_needs(self):
        zooms = re.findall(r"^  \w+ = (\w+) \[ @\d+ \] ;\s*->(.*)$", self.done.stdout, re.M)
        self.assertGreater(len(zooms), 4)
        for source, chosen in zooms:
            self.assertIn(source, chosen.split())


class Refusal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.directory = os.path.join(self.folder.name, "checkpoint")
        shutil.copytree(CHECKPOINT, self.directory)

    def at(self, name):
        return os.path.join(self.directory, name)

    def refused(self, *arguments):
        done = run(*(arguments or (self.directory,)))
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(done.stderr, r"\Azoomr-minimal: [^\n]+\n\Z")
        return done.stderr

    def changed_json(self, name, **changes):
        shutil.copy(os.path.join(CHECKPOINT, name), self.at(name))
        with open(self.at(name), encoding="utf-8") as f:
            content = json.load(f)
        for key, value in changes.items():
            if value is None:
                del content[key]
            else:
                content[key] = value
        with open(self.at(name), "w", encoding="utf-8") as f:
            json.dump(content, f)

    def changed_header(self, change):
        """Writes the tensors with a header that `change(header)` makes of the right one."""
        with open(os.path.join(CHECKPOINT, "model.safetensors"), "rb") as f:
            header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
            data = f.read()
        text = json.dumps(change(header)).encode()
        with open(self.at("model.safetensors"), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text + data)

    def test_what_is_missing_is_named(self):
        self.assertIn("/nowhere/tokenizer.json: No such file or directory", self.refused("/nowhere"))
        for name in ("tokenizer.json", "config.json", "model.safetensors"):
            os.rename(self.at(name), self.at("elsewhere"))
            self.assertIn(name + ": No such file or directory", self.refused())
            os.mkdir(self.at(name))
            self.assertIn(name, self.refused())
            os.rmdir(self.at(name))
            os.rename(self.at("elsewhere"), self.at(name))

    def test_a_truncated_checkpoint(self):
        with open(self.at("model.safetensors"), "rb") as f:
            data = f.read()
        for size in (0, 7, 8, 1000, len(data) // 2, len(data) - 1):
            with open(self.at("model.safetensors"), "wb") as f:
                f.write(data[:size])
            self.assertIn("model.safetensors: it ends before ", self.refused())

    def test_a_header_that_lies(self):
        name = "model.layers.1.mlp.up_proj.weight"
        with open(self.at("model.safetensors"), "r+b") as f:
            f.write(struct.pack("<Q", (1 << 64) - 1))
        self.assertIn("it ends before its header", self.refused())
        for wrong in ([1 << 63, 0], [-1, 0], [1e300, 0], ["0", 0], [], 0, {}, [2182000, 2280304]):
            self.changed_header(lambda h: {**h, name: {**h[name], "data_offsets": wrong}})
            self.assertIn("it ends before " + name, self.refused())
        for wrong in ({"shape": [384, 129]}, {"shape": [384 * 128]}, {"shape": "all"}, {"dtype": "F32"}, {"dtype": 16}):
            self.changed_header(lambda h: {**h, name: {**h[name], **wrong}})
            self.assertIn("there is no " + name, self.refused())
        for change in (lambda h: {**h, name: 7}, lambda h: {k: v for k, v in h.items() if k != name}):
            self.changed_header(change)
            self.assertIn("there is no " + name, self.refused())
        self.changed_header(lambda h: [h])
        self.assertIn("not a JSON object", self.refused())

    def test_sizes_of_another_model(self):
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_key_value_heads", "head_dim", "rope_theta", "rms_norm_eps"):
            for wrong in (None, -1, 1e300, 1 << 63, "128"):
                self.changed_json("config.json", **{key: wrong})
                self.assertIn(key, self.refused())
        for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                    "num_key_value_heads", "head_dim"):
            for wrong in (0, 5, 16384):
                self.changed_json("config.json", **{key: wrong})
                self.refused()

    def test_another_vocabulary(self):
        with open(self.at("tokenizer.json"), encoding="utf-8") as f:
            vocab = json.load(f)["model"]["vocab"]
        for wrong in ({"vocab": {**vocab, ";": 400}}, {"vocab": {**vocab, ";": -1}}, {"vocab": {**vocab, ";": 0.5}},
                      {"vocab": {**vocab, "one more": 0}}, {"vocab": {}}, {"vocab": 7}, {}, 7, [], "vocab"):
            self.changed_json("tokenizer.json", model=wrong)
            self.refused()
        with open(self.at("tokenizer.json"), "w", encoding="utf-8") as f:
            f.write("{")
        self.assertIn("not a JSON object", self.refused())

    def test_more_than_one_directory(self):
        self.assertIn("usage", self.refused(CHECKPOINT, CHECKPOINT))

    def test_output_that_is_lost(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = run(stdout=full)
        self.assertEqual((done.returncode, done.stderr), (2, "zoomr-minimal: standard output cannot be written\n"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
