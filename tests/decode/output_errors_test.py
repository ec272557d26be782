# SPDX-License-Identifier: Apache-2.0
"""What the programs write is whole, or they say that it is not: one sentence on standard error and exit code 2.

    python3 output_errors_test.py ZOOMR_DECODE ZOOMR_EVAL FAILING_DISK FIXTURES STUDIES
"""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

DECODE, EVAL, FAILING_DISK, FIXTURES, STUDIES = sys.argv[1:6]
LLAMA = os.path.join(FIXTURES, "llama")
INDEXED = os.path.join(STUDIES, "ledger", "checkpoints", "indexed")
BYTES = os.path.join(STUDIES, "bytes", "checkpoint")
SHORT = (DECODE, "--model", LLAMA, "--prompt", "= ; [", "--max-tokens", 12)
STUDY = (EVAL, "ledger", "--model", INDEXED, "--problems", 1, "--free-problems", 0, "--registers", 3, "--lines", 6,
         "--policies", "full")
NO_SPACE = "No space left on device"


def run(arguments, **how):
    how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "timeout": 300} | how
    return subprocess.run(list(map(str, arguments)), **how)


def at_most(size):
    """For preexec_fn: no file becomes longer than so many bytes, as on a disk that becomes full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


class Outputs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.text = self.path("text")
        with open(self.text, "w") as f:
            f.write("".join(f"On day {n * n} the prince spoke. Nobody answered him! " for n in range(60)))
        self.perplexity = (EVAL, "perplexity", "--model", BYTES, "--text", self.text, "--contexts", 256, "--bytes", 32,
                           "--passages", 1, "--policies", "full")

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def refused(self, done, *says):
        sentence = done.stderr.decode()
        self.assertEqual(done.returncode, 2, sentence)
        self.assertEqual(len(sentence.strip().splitlines()), 1, sentence)
        for words in says:
            self.assertIn(words, sentence)

    def printing(self):
        demo = (DECODE, "ledger", "--problems", 1, "--budget", 100, "--model", INDEXED, "--policies", "window")
        return {"text": SHORT, "json": (*SHORT, "--json"), "policies": (DECODE, "--list-policies"),
                "help": (DECODE, "--help"), "demo": demo, "study": STUDY,
                "study json": (*STUDY, "--json"), "perplexity": self.perplexity,
                "perplexity json": (*self.perplexity, "--json"), "help of eval": (EVAL, "--help")}

    def test_a_full_disk_under_the_standard_output(self):
        for name, command in self.printing().items():
            with self.subTest(name), open("/dev/full", "w") as full:
                self.refused(run(command, stdout=full), "standard output: cannot be written", NO_SPACE)

    def test_a_closed_standard_output_is_refused_before_anything_is_computed(self):
        for name, command in self.printing().items():
            with self.subTest(name):
                self.refused(run(command, stdout=None, preexec_fn=lambda: os.close(1)), "standard output", "closed")

    def test_a_closed_pipe_ends_the_program_as_it_ends_others(self):
        for command in (SHORT, (*SHORT, "--json"), (*STUDY, "--json")):
            read, write = os.pipe()
            os.close(read)
            try:
                self.assertEqual(run(command, stdout=write).returncode, -signal.SIGPIPE)
            finally:
                os.close(write)

    def test_other_closed_streams_do_not_end_in_files(self):
        logits = self.path("logits")
        for closed in ((0,), (2,), (0, 2)):
            done = run((*SHORT, "--dump-logits", logits), preexec_fn=lambda: [os.close(f) for f in closed])
            self.assertEqual(done.returncode, 0)
            self.assertEqual(os.path.getsize(logits) % 48, 0)

    def test_files_on_a_full_disk(self):
        for option in ("--dump-logits", "--trace-pages", "--report"):
            for more in ((), ("--json",)):
                self.refused(run((*SHORT, *more, option, "/dev/full")), "/dev/full: cannot be written", NO_SPACE)
        self.refused(run((*STUDY, "--csv", "/dev/full")), "/dev/full: cannot be written", NO_SPACE)
        self.refused(run((*self.perplexity, "--csv", "/dev/full")), "/dev/full: cannot be written", NO_SPACE)

    def test_a_file_is_whole_or_as_it_was_before(self):
        place = self.path("out")
        for before in (None, b"kept"):
            for command in ((*SHORT, "--dump-logits", place), (*SHORT, "--trace-pages", place),
                            (*SHORT, "--report", place), (*STUDY, "--csv", place), (*self.perplexity, "--csv", place)):
                if before is not None:
                    with open(place, "wb") as f:
                        f.write(before)
                self.refused(run(command, preexec_fn=at_most(40)), f"{place}: cannot be written: File too large")
                self.assertEqual(sorted(os.listdir(self.folder.name)), ["out", "text"] if before else ["text"])
                if before is not None:
                    with open(place, "rb") as f:
                        self.assertEqual(f.read(), before)

    def test_a_trace_that_cannot_be_written_leaves_no_file(self):
        place = self.path("trace")
        self.refused(run((*SHORT, "--record", place), preexec_fn=at_most(40)),
                     f"{place}-0001.safetensors: cannot be written: File too large")
        self.assertEqual(os.listdir(self.folder.name), ["text"])

    def test_a_trace_takes_no_file_of_another_one(self):
        pathlib.Path(self.path("trace-0003.safetensors")).touch()  # those before it are gone
        self.refused(run((*SHORT, "--record", self.path("trace"))), "trace-0003.safetensors is there already")
        self.assertEqual(run((*SHORT, "--record", self.path("trac"))).returncode, 0)

    def test_a_file_that_is_replaced_keeps_its_mode_and_its_links(self):
        real, link = self.path("real"), self.path("link")
        with open(real, "w") as f:
            f.write("before")
        os.chmod(real, 0o640)
        os.symlink(real, link)
        self.assertEqual(run((*STUDY, "--csv", link)).returncode, 0)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(os.stat(real).st_mode & 0o777, 0o640)
        with open(real) as f:
            self.assertTrue(f.read().startswith("checkpoint,task,policy"))

    def test_a_link_to_a_file_that_is_not_there_yet_stays_a_link(self):
        folder, link = self.path("folder"), self.path("link")
        os.mkdir(folder)
        os.symlink("folder/real", link)
        self.assertEqual(run((*SHORT, "--dump-logits", link)).returncode, 0)
        self.assertTrue(os.path.islink(link))
        self.assertEqual(os.listdir(folder), ["real"])
        self.assertEqual(os.path.getsize(os.path.join(folder, "real")) % 48, 0)

    def test_a_stream_goes_on_where_it_stands(self):
        """What standard output, or another descriptor, was redirected into keeps what it has."""
        link, log = self.path("link"), self.path("log")
        os.symlink("/dev/stdout", link)
        plain = run(SHORT).stdout
        for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "/proc/thread-self/fd/1", link, "/dev/stderr",
                     "/dev/fd/7"):
            for flags in (os.O_APPEND, os.O_TRUNC):
                with self.subTest(name, flags=flags):
                    with open(log, "wb") as f:
                        f.write(b"yesterday\n")
                    file = os.open(log, os.O_WRONLY | flags)
                    number = {"/dev/stderr": 2, "/dev/fd/7": 7}.get(name, 1)
                    try:
                        done = run((*SHORT, "--report", name), close_fds=False,
                                   preexec_fn=lambda: os.dup2(file, number))
                    finally:
                        os.close(file)
                    self.assertEqual(done.returncode, 0)
                    with open(log, "rb") as f:
                        written = f.read()
                    before = b"yesterday\n" if flags == os.O_APPEND else b""
                    self.assertEqual(written[:len(before)], before)
                    self.assertEqual(written.count(b"<!doctype html>"), 1)
                    self.assertTrue(os.path.islink(link))
                    if number == 1:  # the answer, the page, the table: in the order in which they are written
                        answer = plain.split(b"\n\n")[0]
                        self.assertTrue(written.startswith(before + answer), written[:80])
                        self.assertIn(b"tokens/s", written.split(b"</html>")[1])

    def test_a_pipe_and_a_device_are_written_to(self):
        pipe, page = self.path("pipe"), self.path("page")
        os.mkfifo(pipe)
        with open(page, "wb") as f, subprocess.Popen(["cat", pipe], stdout=f):
            self.assertEqual(run((*SHORT, "--report", pipe)).returncode, 0)
        with open(page, "rb") as f:
            self.assertTrue(f.read().endswith(b"</html>\n"))
        self.assertEqual(run((*SHORT, "--report", "/dev/null", "--dump-logits", "/dev/null")).returncode, 0)
        piped = run((*SHORT, "--report", "/dev/stdout")).stdout
        self.assertEqual(piped.count(b"<!doctype html>"), 1)

    def test_a_descriptor_that_nobody_gave_is_refused(self):
        self.refused(run((*SHORT, "--report", "/dev/fd/9")), "/dev/fd/9: cannot be written: Bad file descriptor")
        with open(self.text) as read:
            self.refused(run((*SHORT, "--report", "/dev/fd/0"), stdin=read),
                         "/dev/fd/0: cannot be written: Bad file descriptor")
        # the page's own unfinished file has a number too
        numbers = [f"/dev/fd/{number}" for number in range(3, 8)]
        for number in numbers:
            self.refused(run((*SHORT, "--report", self.path("page"), "--dump-logits", number)), "Bad file descriptor")
        self.assertEqual(os.listdir(self.folder.name), ["text"])

    def test_what_a_killed_process_has_left_is_removed(self):
        page = self.path("page.html")
        def left_over(*names):
            for name in names:
                open(self.path(name), "w").close()
        left_over("page.html.999999999.part", "trace-0001.safetensors.999999999.part",
                  "trace-0007.safetensors.999999999.part")
        others = ["page.html.part", "other.html.999999999.part", "page.html.x.part", f"page.html.{os.getpid()}.part"]
        left_over(*others)  # of other files; of a process that lives
        self.assertEqual(run((*SHORT, "--report", page, "--record", self.path("trace"))).returncode, 0)
        self.assertEqual(sorted(os.listdir(self.folder.name)),
                         sorted(["text", "page.html", "trace-0001.safetensors", *others]))

    def test_an_output_is_no_input_and_no_other_output(self):
        model = self.path("model")
        shutil.copytree(LLAMA, model)
        os.symlink(model, self.path("same"))
        os.link(self.path("text"), self.path("hard"))
        os.symlink("text", self.path("soft"))
        os.symlink("yet", self.path("dangling"))
        short = (DECODE, "--model", model, "--max-tokens", 2, "--prompt-file", self.text)
        with open(self.text, "w") as f:
            f.write("= ; [")
        def content():
            found = {}
            for folder, _, names in os.walk(self.folder.name):
                for path in (os.path.join(folder, name) for name in names):
                    found[path] = pathlib.Path(path).read_bytes() if os.path.exists(path) else None
            return found
        before = content()
        text, real = self.text, os.path.relpath(self.text)
        for more, says in (
                (("--report", text), f"--report {text}: --prompt-file {text} is the same file, and would be lost"),
                (("--report", real), "is the same file"), (("--dump-logits", self.path("hard")), "is the same file"),
                (("--dump-logits", self.path("soft")), "is the same file"),
                (("--trace-pages", os.path.join(self.folder.name, "model", "..", "text")), "is the same file"),
                (("--report", os.path.join(model, "model.safetensors")), "the model's"),
                (("--report", os.path.join(self.path("same"), "tokenizer.json")), "the model's"),
                (("--report", self.path("one"), "--dump-logits", self.path("one")), "--dump-logits"),
                (("--report", self.path("one"), "--dump-logits", os.path.join(model, "..", "one")), "is the same file"),
                (("--report", self.path("yet"), "--dump-logits", self.path("dangling")), "is the same file"),
                (("--policy", "full,full", "--dump-logits", self.path("one")), "one.full-0 is the same file"),
                (("--policy", "full,quest", "--dump-logits", self.path("x"), "--report", self.path("x.quest-0")),
                 "is the same file"),
                (("--record", self.path("run"), "--dump-logits", self.path("run-0001.safetensors")),
                 "is a file of this trace"),
                (("--record", self.path("run"), "--dump-logits", self.path("run-0002.safetensors")),
                 "is a file of this trace")):
            with self.subTest(more):
                self.refused(run((*short, *more)), says)
                self.assertEqual(content(), before)
        with open(self.path("log"), "wb") as log:
            self.refused(run((*short, "--report", self.path("log")), stdout=log), "standard output is the same file")
        with open(self.text, "ab") as log:
            self.refused(run(short, stdout=log), "standard output: --prompt-file")
        self.refused(run((*STUDY, "--csv", self.path("one"), "--resume", self.path("one"))), "is the same file")
        self.refused(run((*self.perplexity, "--csv", self.text)), "is the same file")
        self.refused(run((DECODE, "ledger", "--model", model, "--report", os.path.join(model, "config.json"))),
                     "the model's")
        self.assertEqual(content(), {**before, self.path("log"): b""})

    def test_an_empty_name_is_refused(self):
        for option in ("--dump-logits", "--report", "--record", "--trace-pages", "--prompt-file", "--voters",
                       "--model"):
            short = SHORT if option not in ("--prompt-file", "--model") else (DECODE,)
            self.refused(run((*short, option, "")), f"{option}: the name is empty")
        for option in ("--csv", "--resume", "--model"):
            self.refused(run((*STUDY, option, "")), f"{option}: the name is empty")
        self.refused(run((*self.perplexity, "--text", "")), "--text: the name is empty")

    def test_an_error_comes_without_notes(self):
        """What is worth knowing and no error is told when a run has ended well."""
        model = self.path("model")
        shutil.copytree(LLAMA, model)
        with open(os.path.join(model, "tokenizer.json")) as f:
            tokenizer = json.load(f)
        del tokenizer["model"]["vocab"]["."]
        with open(os.path.join(model, "tokenizer.json"), "w") as f:
            json.dump(tokenizer, f)
        short = (DECODE, "--model", model, "--prompt", "= ; [", "--max-tokens", 12)
        self.assertIn(b"note: no token of this model ends a sentence", run(short).stderr)
        for option in ("--dump-logits", "--trace-pages", "--report"):
            self.refused(run((*short, option, "/dev/full")), "/dev/full: cannot be written", NO_SPACE)
        with open("/dev/full", "w") as full:
            self.refused(run(short, stdout=full), "standard output: cannot be written", NO_SPACE)
            self.refused(run((*short, "--policy", "zoomr_focus"), stdout=full), "standard output: cannot be written")
        self.refused(run((*short, "--tiers", f"host=16MiB,file={self.folder.name}:16MiB", "--report", "/dev/full")),
                     "/dev/full: cannot be written")

    def test_a_file_of_lines_keeps_no_part_of_one(self):
        lines = self.path("units")
        command = (*STUDY[:-1], "full,window", "--resume", lines)
        self.assertEqual(run(command).returncode, 0)
        with open(lines, "rb") as f:
            whole = f.read()
        for most, kept in ((0, 0), (30, 0), (len(whole.splitlines()[0]) + 100, 1)):
            os.unlink(lines)
            self.refused(run(command, preexec_fn=at_most(most)), "units: cannot be written any more: File too large")
            with open(lines) as f:
                self.assertEqual([line.endswith("}\n") for line in f], kept * [True])
            self.assertEqual(run(command).returncode, 0)
        rows = self.path("rows")
        self.refused(run((*self.perplexity, "--resume", rows), preexec_fn=at_most(30)),
                     "rows: cannot be written any more")
        self.assertEqual(os.path.getsize(rows), 0)


class Tiers(unittest.TestCase):
    def decode(self, folder, *more, writes=None, policy="quest"):
        command = (DECODE, "--model", LLAMA, "--prompt", "= ; [ " * 60, "--policy", policy, "--set",
                   "zones.dense_layers=0", "--set", "fixed_pages.longest=4", "--set", "top_k.segments=1",
                   "--max-tokens", 8)
        refused = run((*command, "--tiers", f"host=1,file={folder}/details:1GiB")).stderr.decode()
        least = int(re.search("at least ([0-9]+)", refused)[1])
        disk = {} if writes is None else {"LD_PRELOAD": FAILING_DISK, "ZOOMR_TEST_WRITES": str(writes)}
        return run((*command, *more, "--tiers", f"host={least},file={folder}/details:1GiB"),
                   env={**os.environ, **disk})

    def test_a_disk_that_fails_is_the_disks_fault(self):
        with tempfile.TemporaryDirectory() as folder:
            whole = self.decode(folder, "--json")
            self.assertEqual(whole.returncode, 0, whole.stderr)
            self.assertGreater(json.loads(whole.stdout)["runs"][0]["tiers"]["bytes_out"], 0)
            for writes in (0, 1, 7):
                done = self.decode(folder, "--json", writes=writes)
                sentence = done.stderr.decode()
                self.assertEqual((done.returncode, done.stdout), (2, b""), sentence)
                self.assertEqual(len(sentence.strip().splitlines()), 1, sentence)
                self.assertNotIn("accepted", sentence)  # which is what a caller has done wrong
                self.assertRegex(sentence, "block [0-9]+ of the tier.s file .*/details cannot be written: "
                                           "Input/output error")
            self.assertEqual(os.listdir(folder), [])

    def test_the_peak_is_what_memory_has_given(self):
        with tempfile.TemporaryDirectory() as folder:
            tiered = json.loads(self.decode(folder, "--json").stdout)["runs"][0]
            self.assertEqual(tiered["device_bytes_peak"], tiered["tiers"]["memory_bytes"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[6:], verbosity=1)
