# SPDX-License-Identifier: Apache-2.0
"""What strangers' files may cost, and what numbers, folders and prompts of a command line may be: each refusal is one
sentence on standard error and exit code 2.

    python3 limits_test.py ZOOMR_DECODE ZOOMR_EVAL FIXTURES STUDIES
"""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

DECODE, EVAL, FIXTURES, STUDIES = sys.argv[1:5]
LLAMA = os.path.join(FIXTURES, "llama")
INDEXED = os.path.join(STUDIES, "ledger", "checkpoints", "indexed")
BYTES = os.path.join(STUDIES, "bytes", "checkpoint")
PROMPT = ("--model", LLAMA, "--prompt", "= ;")
BOUNDED = 512 << 20  # bytes of address space beyond what the program needs for an ordinary text


def run(*arguments, **how):
    return subprocess.run(list(map(str, arguments)), capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=60, **how)


class Limits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w") as f:
            f.write(text)
        return self.path(name)

    def refused(self, says, *arguments, **how):
        done = run(*arguments, **how)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertEqual(len(done.stderr.strip().split("\n")), 1, done.stderr)
        self.assertIn(says, done.stderr)

    def changed_model(self, change):
        """The fixture, its tokenizer.json changed."""
        copy = self.path("model")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(LLAMA, copy)
        path = os.path.join(copy, "tokenizer.json")
        with open(path) as f:
            tokenizer = json.load(f)
        change(tokenizer)
        with open(path, "w") as f:
            json.dump(tokenizer, f)
        return copy


class Numbers(Limits):
    def test_none_wraps(self):
        whole = "must be a whole number between"
        for program in ((DECODE, *PROMPT), (DECODE, "ledger"), (EVAL, "ledger"),
                        (EVAL, "perplexity", "--model", BYTES, "--text", __file__)):
            for number in ("-1", str(2**64), str(2**64 + 1), "0x10", "1.5", "+1", "", "1 "):
                with self.subTest(program=program, number=number):
                    self.refused(f"--seed: {whole} 0 and {2**64 - 1}, but is", *program, "--seed", number)
        for option in ("--max-tokens", "--budget"):
            for number in ("0", "-1", str(2**31), str(2**32 + 1), str(2**64 + 1), "010x"):
                self.refused(f"{option}: {whole} 1 and", DECODE, *PROMPT, option, number)
        for option, number in (("--problems", 2**32 + 1), ("--window", -4), ("--jobs", 2**32 + 1),
                               ("--registers", 2**32 + 4), ("--free-problems", -2)):
            self.refused(f"{option}: {whole}", EVAL, "ledger", option, number)
        for option in ("--contexts", "--passages", "--bytes"):
            self.refused(f"{option}: {whole}", EVAL, "perplexity", "--model", BYTES, "--text", "x", option, 2**32 + 300)

    def test_a_number_is_decimal(self):
        seeds = [json.loads(run(DECODE, *PROMPT, "--json", "--temperature", 1, "--max-tokens", 12, "--seed", s).stdout)
                 ["runs"][0]["tokens"] for s in ("010", "10", "8")]
        self.assertEqual(seeds[0], seeds[1])
        self.assertNotEqual(seeds[0], seeds[2])
        self.assertEqual(run(DECODE, *PROMPT, "--max-tokens", 1, "--seed", 2**64 - 1).returncode, 0)

    def test_of_tiers(self):
        for number in ("-4", "0", str(2**31), str(2**64 + 5), "many", "4KiB", ""):
            self.refused("segments must be a whole number between 1 and", DECODE, *PROMPT, "--tiers",
                         f"device=64MiB,segments={number}")
        for tier in ("device={}", "device=64MiB,host={}", "host=1MiB,file=/tmp/x:{}"):
            for size in ("-1", "0", str(2**63), str(2**64), str(2**64 + 65536), "8192PiB", "1.5MiB", "1XB", "MiB", "",
                         "1MiBs"):
                with self.subTest(tier=tier, size=size):
                    self.refused("is not a size like 64MiB", DECODE, *PROMPT, "--tiers", tier.format(size))
        sizes = ("1048576", "1048576B", "1024k", "1024KiB", "1MiB", "1mb", "1M")
        found = {json.loads(run(DECODE, *PROMPT, "--max-tokens", 2, "--json", "--tiers", f"host={size},file=/tmp:1GiB").stdout)
                 ["runs"][0]["tiers"]["memory_bytes"] for size in sizes}
        self.assertEqual(len(found), 1)

    def test_of_settings_and_budgets(self):
        for value in ("nan", "inf", "-inf", "1e99", str(2**32), "0x3"):
            self.refused("is not a number that fits", DECODE, *PROMPT, "--policy", "arkvale,r_kv", "--set",
                         f"zones.sinks={value}")
        for value in ("nan", "inf", "1e99"):
            self.refused("is not a number that fits", DECODE, *PROMPT, "--policy", "r_kv", "--set",
                         f"redundancy_aware.similar={value}")
        for budget in ("-1", "0", str(2**31), str(2**32 + 64), "many", ""):
            self.refused("after @ there must be a budget", EVAL, "ledger", "--policies", f"quest@{budget}")

    def test_what_does_not_apply_is_not_ignored(self):
        text = ("perplexity", "--model", BYTES, "--text", self.write("text", "x" * 4000), "--contexts", 64,
                "--bytes", 16)
        self.refused("window has no such option, but pooled_score.per, pooled_score.over_group, zones.sinks", EVAL,
                     *text, "--policies",
                     "full,quest@96,window@96", "--set", "fixed_pages.longest=32")
        self.refused("full takes no settings", EVAL, *text, "--policies", "full", "--set", "zones.sinks=8")
        self.refused('window has no option "fixed_pages.longest=3", but', EVAL, *text, "--policies",
                     "window+fixed_pages.longest=3")
        self.refused("no chosen policy has such an option", DECODE, "ledger", "--policies", "full,window", "--set",
                     "zones.height=3")


class Paths(Limits):
    def test_segments_of_code_have_the_options_of_code(self):
        text = (EVAL, "perplexity", "--model", BYTES, "--text", self.write("text", "x = 1\n" * 700), "--contexts", 64,
                "--bytes", 16, "--passages", 1, "--json", "--policies")
        self.refused("code_voters has no budget", *text, "code_voters@64")
        self.refused('code_kv has no option "sentences.longest=9", but code_segments.longest', *text,
                     "code_kv@64+sentences.longest=9")
        done = run(*text, "full,code_kv@32+code_segments.longest=8,sentence_kv@32")
        self.assertEqual(done.returncode, 0, done.stderr)
        cut, uncut = json.loads(done.stdout)["rows"][1:]
        self.assertNotEqual(cut["bits"], uncut["bits"])  # lines without marks are no sentences

    def test_the_system_says_why_a_file_cannot_be_read(self):
        a_file, loop = self.write("file", "x"), self.path("loop")
        os.symlink(loop, loop)
        reasons = ((os.path.join(a_file, "model"), "Not a directory"), (loop, "Too many levels of symbolic links"),
                   (self.path("x" * 300), "File name too long"), (self.path("absent"), "no such file"))
        for path, reason in reasons:
            self.refused(reason, DECODE, "--model", path, "--prompt", "=")
            self.refused(reason, DECODE, "--model", LLAMA, "--prompt-file", path)
            self.refused(reason, EVAL, "perplexity", "--model", BYTES, "--text", path)
            self.refused(reason.replace("no such", "No such"), EVAL, "ledger", "--policies", "full", "--resume",
                         os.path.join(path, "units"))

    @unittest.skipIf(os.geteuid() == 0, "nothing is refused to root")
    def test_a_folder_that_may_not_be_searched(self):
        copy = self.changed_model(lambda tokenizer: None)
        os.chmod(copy, 0)
        try:
            self.refused("Permission denied", DECODE, "--model", copy, "--prompt", "=")
        finally:
            os.chmod(copy, 0o700)
        os.chmod(os.path.join(copy, "config.json"), 0)
        self.refused("config.json: the file cannot be read: Permission denied", DECODE, "--model", copy,
                     "--prompt", "=")

    def test_a_file_that_cannot_be_asked_for_is_not_absent(self):
        copy = self.changed_model(lambda tokenizer: None)
        config = os.path.join(copy, "tokenizer_config.json")
        os.symlink(config, config)
        self.refused("tokenizer_config.json: it cannot be opened: Too many levels", DECODE, "--model", copy,
                     "--prompt", "=")


class Names(Limits):
    """Of files, in options and in sentences."""

    def test_one_in_a_sentence_is_short_and_on_one_line(self):
        for name in ("x" * 5000, "/" + "y/" * 2500, "new\nline", "\x1b[2J"):
            for arguments in ((DECODE, "--model", name, "--prompt", "="),
                              (DECODE, "--model", LLAMA, "--prompt-file", name),
                              (DECODE, *PROMPT, "--report", name + "/page"), (DECODE, *PROMPT, "--voters", name),
                              (DECODE, *PROMPT, "--tiers", f"host=16MiB,file={name}/x:1MiB"),
                              (DECODE, *PROMPT, name),
                              (EVAL, "perplexity", "--model", BYTES, "--text", name)):
                with self.subTest(name=name[:20], arguments=arguments):
                    self.refused("", *arguments)
                    sentence = run(*arguments).stderr.rstrip("\n")
                    self.assertLess(len(sentence), 2100)
                    self.assertFalse([c for c in sentence if ord(c) < 32], sentence)
        self.refused("new\\x0aline/config.json: no such file", DECODE, "--model", "new\nline", "--prompt", "=")

    def test_one_may_have_commas_and_blanks(self):
        said = "The sun rose. " * 200
        first, second = self.write("Austen, Emma.txt", said), self.write("b.txt", said)
        measured = ("perplexity", "--model", BYTES, "--contexts", 64, "--bytes", 16, "--passages", 1, "--policies",
                    "full", "--json", "--text")
        def rows(*texts):
            done = run(EVAL, *measured, *texts)
            self.assertEqual(done.returncode, 0, done.stderr)
            return len(json.loads(done.stdout)["rows"])
        self.assertEqual(rows(first), 1)
        self.assertEqual(rows(first, second), 2)
        self.assertEqual(rows(f"{second},{self.write('c.txt', said)}"), 2)
        self.refused("Austen, Ema.txt: no such file", EVAL, *measured, self.path("Austen, Ema.txt"))
        for path in ("a,b", "a,host"):
            os.mkdir(self.path(path))
            done = run(DECODE, *PROMPT, "--max-tokens", 1, "--tiers", f"file={self.path(path)}:16MiB,host=16MiB")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.refused("it must be host=SIZE", DECODE, *PROMPT, "--tiers", "host=16MiB,file=:16MiB")

    def test_a_device_is_no_tier(self):
        self.refused("/dev/null cannot be made: it is neither a folder nor a file", DECODE, *PROMPT, "--tiers",
                     "host=16MiB,file=/dev/null:16MiB")


class Delimiters(Limits):
    def model(self):
        """Its tokens are bytes of text, as GPT-2 writes them: "ĠParis" is " Paris"."""
        def change(tokenizer):
            vocab = {"Paris": 0, "ĠParis": 1, "Ġ": 2, ";": 3, "a": 4}
            vocab.update({f"b{i}": i for i in range(5, 64)})
            tokenizer.clear()
            tokenizer.update({"added_tokens": [], "normalizer": None, "decoder": {"type": "ByteLevel"},
                              "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                              "model": {"type": "BPE", "vocab": vocab, "merges": []}})
        return self.changed_model(change)

    def summaries(self, model, *delimiters, prompt="a a;a"):
        done = run(DECODE, "--model", model, "--prompt", prompt, "--policy", "sentence_kv", "--max-tokens", 1, "--json",
                   "--delimiters", *delimiters)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["runs"][0]["bytes"]["summaries"]

    def test_a_blank_belongs_to_a_token(self):
        model = self.model()
        two, three = self.summaries(model, ";"), self.summaries(model, ";", " ")
        self.assertLess(two, three)
        self.assertEqual(self.summaries(model, " "), two)       # ends the first sentence
        self.assertEqual(self.summaries(model, "Ġ"), two)       # as the vocabulary spells it
        self.assertEqual(self.summaries(model, "; Ġ"), three)   # two tokens
        none = self.summaries(model, "Paris")
        self.assertLess(none, two)
        self.refused('the delimiter " ;" is not a token of this model', DECODE, "--model", model, "--prompt", "a",
                     "--delimiters", " ;")
        self.refused('the delimiter "" is not a token of this model', DECODE, "--model", model, "--prompt", "a",
                     "--delimiters", "")


class Marks(Limits):
    def test_a_byte_order_mark_is_no_text(self):
        tokens = {}
        for name, before in (("plain", b""), ("marked", b"\xef\xbb\xbf")):
            with open(self.path(name), "wb") as f:
                f.write(before + b"= ; [")
            done = run(DECODE, "--model", LLAMA, "--prompt-file", self.path(name), "--max-tokens", 4, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            tokens[name] = json.loads(done.stdout)["runs"][0]["tokens"]
        self.assertEqual(tokens["marked"], tokens["plain"])
        done = run(DECODE, "--model", LLAMA, "--prompt-file", self.path("marked"), "--max-tokens", 1)
        self.assertEqual(done.stderr, "note: the byte order mark before the prompt is left out\n"
                                      "note: the answer is cut at 1 token; see --max-tokens\n")
        self.assertEqual(run(DECODE, "--model", LLAMA, "--prompt", "\ufeff=", "--max-tokens", 1).returncode, 0)
        for coding in ("utf-16-le", "utf-16-be"):
            with open(self.path("wide"), "wb") as f:
                f.write("\ufeff= ;".encode(coding))
            self.refused("wide: it is UTF-16", DECODE, "--model", LLAMA, "--prompt-file", self.path("wide"))

    def test_nothing_follows_a_document(self):
        voters = self.path("voters.json")
        document = json.dumps({"layers": 2, "heads": 4, "weights": [[0, 1, 0.5]]}).encode()
        arguments = (DECODE, *PROMPT, "--policy", "sentence_voters", "--max-tokens", 1, "--voters", voters)
        for after, right in ((b"", True), (b"\n \n", True), (b"\0", False), (b"\0junk", False), (b"{}", False)):
            with open(voters, "wb") as f:
                f.write(document + after)
            if right:
                self.assertEqual(run(*arguments).returncode, 0)
            else:
                self.refused("not valid JSON", *arguments)

    def test_bounds_of_a_posterior_are_numbers_that_fit(self):
        voters = self.path("voters.json")
        arguments = (DECODE, *PROMPT, "--policy", "sentence_voters", "--max-tokens", 1, "--voters", voters)
        for bounds, sentence in (({"unsure": -1}, "unsure is -1, but must lie between 0 and 64"),
                                 ({"unsure": 65}, "unsure is 65, but must lie between 0 and 64"),
                                 ({"unsure": "2"}, "unsure must be a number"),
                                 ({"none": 1e9}, "none is 1e+09, but must lie between -10000 and 10000"),
                                 ({"none": [1]}, "none must be a number"),
                                 ({"none_slope": -1}, "none_slope is -1, but must lie between 0 and 100")):
            with open(voters, "w") as f:
                json.dump({"layers": 2, "heads": 4, "weights": [[0, 1, 0.5]], **bounds}, f)
            self.refused(sentence, *arguments)


class Notes(Limits):
    def prompt(self):
        """Of a model that the program has something to note about."""
        copy = self.changed_model(lambda tokenizer: tokenizer["model"]["vocab"].pop("."))
        return ("--model", copy, "--prompt", "= ;", "--max-tokens", 2)

    def test_a_note_comes_when_the_run_goes_on(self):
        cut = "cut at 2 tokens"
        for policies, said in (("full", f"the answer is {cut}"), ("full,window", f"{cut}: 2 of 2 answers")):
            done = run(DECODE, *self.prompt(), "--policy", policies)
            self.assertEqual(done.returncode, 0)
            self.assertEqual(done.stderr, "note: no token of this model ends a sentence, so nothing refreshes there; "
                                          f"see --delimiters\nnote: {said}; see --max-tokens\n")

    def test_an_error_stays_one_sentence(self):
        self.refused("must be at least", DECODE, *self.prompt(), "--tiers", "host=1KiB,file=/tmp:1GiB")
        self.refused("cannot be written", DECODE, *self.prompt(), "--dump-logits", "/nowhere/logits")


class Prompts(Limits):
    def test_what_is_longer_than_the_context_is_refused(self):
        self.refused("the prompt has more than 2047 tokens, but this model's context is 2048", DECODE, "--model",
                     INDEXED, "--prompt", "; " * 2050)
        self.refused("this model's context of 2048 tokens holds at most", DECODE, "--model", INDEXED, "--prompt-file",
                     self.write("long", "; " * (1 << 20)))

    def test_it_is_not_read_or_encoded_whole(self):
        huge = self.path("huge")
        with open(huge, "wb") as f:
            f.truncate(1 << 30)
        def little_memory():
            resource.setrlimit(resource.RLIMIT_AS, (BOUNDED, BOUNDED))
        self.refused("holds at most", DECODE, "--model", INDEXED, "--prompt-file", huge, preexec_fn=little_memory)


class Bombs(Limits):
    """tokenizer.json made to cost time and memory."""

    def bomb(self, says, change, prompt="a" * 64):
        def little():
            resource.setrlimit(resource.RLIMIT_AS, (BOUNDED, BOUNDED))
            resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
        self.refused(says, DECODE, "--model", self.changed_model(change), "--prompt", prompt, preexec_fn=little)

    def test_a_normalizer_that_doubles(self):
        def change(tokenizer):
            step = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
            tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [step] * 28}
        self.bomb("the tokenizer's normalizer makes more than 1088 bytes", change)

    def test_a_normalizer_of_many_steps_or_long_texts(self):
        def many(tokenizer):
            tokenizer["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "a"}] * 65}
        self.bomb("there are more than 64 steps", many)
        def long(tokenizer):
            tokenizer["normalizer"] = {"type": "Prepend", "prepend": "a" * 257}
        self.bomb("has a text of 257 bytes, but may have at most 256", long)

    def test_a_decoder_that_doubles(self):
        def change(tokenizer):
            step = {"type": "Replace", "pattern": {"String": "="}, "content": "=="}
            tokenizer["decoder"] = {"type": "Sequence", "decoders": [step] * 40}
        self.bomb("the tokenizer's decoder makes more than", change, prompt="=")

    def test_a_pattern_that_goes_back_again_and_again(self):
        # the last one takes a million steps at each place, and then finds something
        for pattern in ("(a|aa)+$", "(?:(?:a+)+b|a)", "(?:a+)+[bd]|a", "(?:a?){18}a{18}[bd]|a"):
            def change(tokenizer):
                tokenizer["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"}
            with self.subTest(pattern):
                self.bomb("the tokenizer's pattern gives up", change, prompt="a" * 900 + "c")

    def test_a_template_that_repeats(self):
        def change(tokenizer):
            ids = {"id": "x", "ids": [0] * 1000, "tokens": ["x"]}
            tokenizer["post_processor"] = {"type": "TemplateProcessing", "special_tokens": {"x": ids},
                                           "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 100000}
        self.bomb("puts more than 1024 tokens around a text", change)

    def test_a_token_of_many_bytes(self):
        def change(tokenizer):
            tokenizer["added_tokens"].append({"id": 1, "content": "a" * 4097})
        self.bomb("the token has 4097 bytes, but may have at most 4096", change)

    def test_values_that_take_more_memory_than_they_look(self):
        copy = self.changed_model(lambda tokenizer: None)
        with open(os.path.join(copy, "tokenizer.json"), "w") as f:
            f.write("[" + "[]," * (1 << 24) + "[]]")
        def little():
            resource.setrlimit(resource.RLIMIT_AS, (BOUNDED, BOUNDED))
        self.refused("there are more than 4194304 values", DECODE, "--model", copy, "--prompt", "=", preexec_fn=little)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[5:], verbosity=1)
