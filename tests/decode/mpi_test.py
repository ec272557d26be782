# SPDX-License-Identifier: Apache-2.0
"""zoomr-decode --mpi: processes that share out the heads write what one process writes, bit for bit in the logits, and
end together, with one sentence.

    python3 mpi_test.py ZOOMR_DECODE FIXTURES LEDGER NIGHTLY MPIRUN...   mpirun with its option for how many processes
"""
import array
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM, FIXTURES, LEDGER, NIGHTLY, *MPIRUN = sys.argv[1:]
LLAMA = os.path.join(FIXTURES, "llama")                       # 4 query heads, 2 KV heads
INDEXED = os.path.join(LEDGER, "checkpoints", "indexed")      # the same, and texts with thoughts
THOUGHTS = "<bos> a = #17 ; b = #42 ; c = a [ @5 ] ; d = b [ last ] ; <go>"
BY_DAY = NIGHTLY != "ON"


def run(ranks, *arguments, others=()):
    """On so many ranks, or in one process without MPI. `others` is what another rank is told."""
    command = [PROGRAM, *map(str, arguments)]
    if ranks > 0:
        command = [*MPIRUN, str(ranks), *command, "--mpi"]
    if others:
        command += [":", MPIRUN[-1], "1", PROGRAM, *map(str, others), "--mpi"]
    return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120)


def sentences(done):
    """What the program has said; the rest is mpirun's."""
    return [line for line in done.stderr.split("\n") if line.startswith("zoomr-decode: ")]


class Text(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def written(self, ranks, *arguments):
        """Tokens, text and logits, by run."""
        logits = os.path.join(self.folder, "logits")
        done = run(ranks, *arguments, "--json", "--dump-logits", logits)
        self.assertEqual(done.returncode, 0, done.stderr)
        runs = json.loads(done.stdout)["runs"]
        with open(logits, "rb") as f:
            return [(r["tokens"], r["text"]) for r in runs], f.read(), runs

    def voters(self):
        path = os.path.join(self.folder, "voters.json")
        with open(path, "w") as f:
            json.dump({"layers": 2, "heads": 4, "weights": [[0, 1, 0.5], [1, 0, 0.7], [1, 2, 1.5]]}, f)
        return path

    def check(self, ranks, *arguments):
        text, logits, _ = self.written(0, *arguments)
        same, bits, _ = self.written(ranks, *arguments)
        self.assertEqual(same, text)
        self.assertTrue(bits == logits, arguments)
        self.assertGreater(len(logits), 0)

    def test_it_is_that_of_one_process_bit_for_bit(self):
        prompt = ("--model", LLAMA, "--prompt", "= ; [ " * 60, "--max-tokens", 12, "--voters", self.voters())
        for policy in ("full", "quest", "sentence_kv", "sentence_voters", "arkvale", "snapkv"):
            small = () if policy in ("full", "sentence_voters") else ("--budget", 100)
            self.check(2, *prompt, "--policy", policy, *small)
        for policy in ("full", "sentence_voters"):      # each KV head on two ranks
            self.check(4, *prompt, "--policy", policy)

    def test_of_dealt_tokens_the_text_is_the_same_and_logits_differ_by_rounding(self):
        prompt = ("--model", LLAMA, "--prompt", "= ; [ " * 60, "--max-tokens", 12, "--voters", self.voters())
        for ranks, policy in ((2, "full"), (3, "quest"), (2, "sentence_voters")):
            arguments = (*prompt, "--policy", policy)
            text, logits, alone = self.written(0, *arguments)
            same, near, runs = self.written(ranks, *arguments, "--deal", 32)
            self.assertEqual(same, text)
            largest = max(map(abs, array.array("f", logits)))
            for a, b in zip(array.array("f", logits), array.array("f", near), strict=True):
                self.assertAlmostEqual(a, b, delta=1e-4 * largest)
            sent = runs[0]["ranks"]
            self.assertEqual(sent["deal"], 32)
            self.assertEqual(sent["own_heads"], 4)
            self.assertGreater(sent["caches"]["messages"], 0)
            if policy == "full":
                self.assertLess(runs[0]["device_bytes_peak"], 0.8 * alone[0]["device_bytes_peak"])

    def test_of_thoughts_too(self):
        for ranks in (2, 4):
            self.check(ranks, "--model", INDEXED, "--delimiters", ";", "--prompt", THOUGHTS, "--max-tokens", 60,
                       "--policy", "zoomr_focus", "--turn", "; <go>")

    def test_layers_with_windows_and_a_kv_head_for_two(self):
        prompt = ("--prompt", "= ; [ " * 8, "--max-tokens", 8)
        with open(os.path.join(LLAMA, "tokenizer.json")) as f:
            tokenizer = f.read()
        for family in ("gemma3", "qwen2"):
            model = os.path.join(self.folder, family)
            os.mkdir(model)
            for name in ("config.json", "model.safetensors"):
                os.symlink(os.path.abspath(os.path.join(FIXTURES, family, name)), os.path.join(model, name))
            with open(os.path.join(model, "tokenizer.json"), "w") as f:
                f.write(tokenizer)
            self.check(2, "--model", model, *prompt)


class Ends(unittest.TestCase):
    def refused(self, says, done):
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(len(sentences(done)), 1, done.stderr)
        self.assertIn(says, sentences(done)[0])

    def test_one_rank_says_what_is_wrong_for_all(self):
        text = ("--model", LLAMA, "--prompt", "= ;", "--max-tokens", 4)
        for says, ranks, arguments in (
                ("there is no policy", 2, (*text, "--policy", "nonsense")),
                ("config.json", 2, ("--model", FIXTURES)),
                ("some KV head's query heads are on several ranks", 4, (*text, "--policy", "quest")),
                ("5 ranks cannot have a head each of 2 KV heads of 2 query heads", 5, text),
                ("--mpi: in the demo, on a device and over tiers", 2, (*text, "--tiers", "host=1MiB,file=/dev/null:1MiB")),
                ("--mpi: --audit, --report, --trace-pages and --record", 2, (*text, "--audit")),
                ("a multiple of 16", 2, (*text, "--deal", 24)),
                ("token_ranks are for policies that evict nothing", 2, (*text, "--deal", 32, "--policy", "snapkv")),
                ("--mpi, --chat: name a file", 2, (*text, "--chat"))):
            self.refused(says, run(ranks, *arguments))

    def test_ranks_that_were_told_something_else_end(self):
        done = run(1, "--model", LLAMA, "--prompt", "= ;", others=("--model", LLAMA, "--prompt", "; ="))
        self.refused("ranks: rank 1 passes other tokens", done)

    @unittest.skipIf(BY_DAY, "it waits for a quarter of a minute")
    def test_a_rank_that_fails_alone_ends_the_others(self):
        done = run(1, "--model", LLAMA, "--prompt", "= ;", others=("--model", FIXTURES, "--prompt", "= ;"))
        self.refused("config.json", done)

    @unittest.skipIf(BY_DAY, "it waits for half a minute")
    def test_a_rank_that_stops_is_named(self):
        command = [*MPIRUN, "3", PROGRAM, "--model", INDEXED, "--prompt", "<bos> a = #17 ; b = #42 ; ", "--max-tokens",
                   "100000", "--mpi"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
            time.sleep(3)
            with open(f"/proc/{running.pid}/task/{running.pid}/children") as f:
                children = [int(pid) for pid in f.read().split()]
            for pid in children:
                with open(f"/proc/{pid}/environ", "rb") as f:
                    if b"OMPI_COMM_WORLD_RANK=1\0" in f.read():
                        os.kill(pid, signal.SIGSTOP)
            out, err = running.communicate(timeout=120)
        self.refused("ranks: rank 1 has not answered in time",
                     subprocess.CompletedProcess(command, running.returncode, out, err))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
