#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tokenizers of the fixtures against the package `tokenizers`, over texts that are not in NFC: ids, and the texts
of ids. Characters that are newer than the package's tables, so that it does not normalise them, are left out.
Run it by hand, with that package and the program of the target `tokenize`:

    python3 tokenizer_oracle.py PROGRAM [--texts 20000] [--seed 1]
    python3 tokenizer_oracle.py --write NAME    makes fixtures/tokenizers/NAME.json, which the tests read: unicode, or
                                                metaspace (how newer converters write vocabularies of SentencePiece)
"""
import argparse
import functools
import json
import pathlib
import random
import subprocess
import tempfile
import unicodedata

from tokenizers import Tokenizer, normalizers

FOLDER = pathlib.Path(__file__).parent / "fixtures" / "tokenizers"

# Tokenizers as they are, and with another normalizer, or with a token added.
VARIANTS = [(family, {}) for family in ("gpt2", "llama3", "qwen2", "llama2", "words", "words_unknown")]
VARIANTS += [("gpt2", {"normalizer": {"type": form}}) for form in ("NFKC", "NFD", "NFKD")]
VARIANTS += [
    ("llama2", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "NFKC"}, {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]}}),
    ("qwen2", {"added": [{"content": "é!", "normalized": True}, {"content": "x\u0301y", "normalized": False},
                         {"content": "<a>", "normalized": True, "lstrip": True, "rstrip": True}]}),
]

def metaspace(**members):
    return {"type": "Metaspace", "replacement": "\u2581", **members}


def regex(pattern, content):
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


ADDED = [{"content": "<tool>", "normalized": False}, {"content": "a b", "normalized": True},
         {"content": "<fill>", "normalized": False, "lstrip": True, "rstrip": True}]
METASPACE = [("llama2", {"normalizer": None, "added": ADDED,
                         "pre_tokenizer": metaspace(prepend_scheme=scheme, split=split)})
             for scheme in ("first", "always", "never") for split in (False, True)]
METASPACE += [
    ("llama2", {"normalizer": {"type": "NFKC"}, "pre_tokenizer": metaspace(), "decoder": metaspace(), "added": ADDED}),
    ("llama2", {"normalizer": None, "pre_tokenizer": metaspace(prepend_scheme="never", add_prefix_space=False),
                "decoder": metaspace(prepend_scheme="never")}),
    ("llama2", {"normalizer": {"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": False, "strip_right": True}, regex(" {2,}", "\u2581")]},
        "pre_tokenizer": metaspace(prepend_scheme="first", split=True)}),
    ("llama2", {"normalizer": {"type": "Sequence", "normalizers": [
        regex(r"[\p{P}\p{S}]+|\s\s", ""), {"type": "Strip", "strip_left": True, "strip_right": True}, regex(r"(\p{L})\1", "$1")]},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                    metaspace(prepend_scheme="first", split=False),
                    {"type": "Digits", "individual_digits": True}]}, "added": ADDED[:1]}),
]

SPACES = [*" \t\n\r\x0b\x0c\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000", "  ", "   ", "\r\n", "\r\n\r\n", "\n\n",
          "\u180e", "\u200b", "\ufeff", "\x1c", "\x1f"]
DECOMPOSED = ["e\u0301", "é", "a\u0323\u0308", "a\u0308\u0323", "x\u0301\u0316\u0301", "\u0301", "K\u212a", "\u2126", "Å\u212b",
              "\u1112\u1161\u11ab", "\uac00\u11a8", "\u1100\u1161", "\uf900", "\u2f800", "ガ", "ｶﾞ", "か\u3099", "ﬁ", "½", "①", "Ⅷ",
              "ﷺ", "\u0958", "\u0f77", "\u0344", "\u1fcd", "\ufb1d", "\U0001d15e", "\U0001109a", "\u2260", "=\u0338", "é!", "e\u0301!"]
OTHERS = ["the", "Lamp", "it's", "IT'S", "WE'LL", "don’t", "3.14", "12345", "१२३", "٣٤٥", "...", "?!", "—", "(a)", "x=1;", "a",
          "大海", "你好", "。", "！", "？", "日本語", "한국어", "العربية", "हिन्दी", "ไทย", "Ünïcödé", "ß", "İ", "ǅ", "ſ", "'ſ", "𝒜", "𐐷",
          "🙂", "👩\u200d👩\u200d👧", "🇩🇪", "❤\ufe0f", "\U000e0061", "\u1820\u180e", "Ⓐ", "\U0001f130", "\x00", "\x7f", "\xff",
          "\ufffd", "<0x41>", "▁", "Ġ", "Ċ", "zoom", "lighthouse", "x\u0301y", "<a>",
          "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool>", "<tool>s", "<fill>", "<|begin_of_text|>", "<|eot_id|>",
          "<s>", "</s>", "<unk>", "<bos>", "<eos>", "naïve", "nai\u0308ve", "="]


FORMS = ("NFC", "NFD", "NFKC", "NFKD")


def in_its_tables(c):
    """Whether the package has the same decompositions and the same class of a mark as Python's Unicode."""
    text = f"a{c}\u0301{c}\u0316{c}"
    return all(getattr(normalizers, form)().normalize_str(text) == unicodedata.normalize(form, text) for form in FORMS)


@functools.cache
def characters():
    """Those that the package knows, marks among them, and all that a normal form changes."""
    known = [c for c in map(chr, range(0x80, 0x30000))
             if unicodedata.category(c) not in ("Cn", "Cs", "Co") and in_its_tables(c)]
    marks = [c for c in known if unicodedata.combining(c)]
    changed = [c for c in known if not 0xAC10 <= ord(c) < 0xD700 and any(unicodedata.normalize(f, c) != c for f in FORMS)]
    known = [c for c in known if not (0x3400 <= ord(c) < 0xD7A4 or ord(c) >= 0x20000)]  # few of the many ideographs
    return known, marks, changed


@functools.cache
def texts(number, seed):
    """Texts that are not in NFC: every character that a normal form changes, then pieces and characters at random."""
    draw = random.Random(seed)
    known, marks, changed = characters()

    def piece():
        kind = draw.randrange(12)
        if kind < 3:
            return draw.choice(SPACES)
        if kind < 6:
            return draw.choice(DECOMPOSED)
        if kind < 10:
            return draw.choice(OTHERS)
        if kind == 10:
            return draw.choice(known)
        return draw.choice("aeouxZ") + "".join(draw.choice(marks) for _ in range(draw.randint(1, 4)))

    each = [f"a {c}{c} b1{c}c e\u0301" for c in changed]
    draw.shuffle(each)
    found = each[: number // 3]
    while len(found) < number:
        text = "".join(piece() for _ in range(draw.randint(1, 9)))
        if unicodedata.normalize("NFC", text) != text:
            found.append(text)
    return found


def programs(number, seed):
    """For tokenizers that know a few words alone: those, with spaces of all kinds between them."""
    draw = random.Random(seed)
    spaces = [space for space in SPACES if space.isspace() and space not in "\x1c\x1f"]
    words = ["a", "大海", "=", "17", "<bos>", "naïve", "<eos>", "[", ".", "don"]
    return ["".join(draw.choice(words) + draw.choice(spaces) for _ in range(draw.randint(1, 9))) for _ in range(number)]


def tokenizer_of(family, changes):
    """The text of a tokenizer.json."""
    text = json.loads((FOLDER / family / "tokenizer.json").read_text())
    text |= {part: changes[part] for part in ("normalizer", "pre_tokenizer", "decoder") if part in changes}
    unused = max(*text["model"]["vocab"].values(), *(token["id"] for token in text["added_tokens"])) + 1
    for n, token in enumerate(changes.get("added", [])):
        plain = {"id": unused + n, "single_word": False, "lstrip": False, "rstrip": False, "special": False}
        text["added_tokens"].append({**plain, **token})
    return json.dumps(text)


def expected(tokenizer, asked):
    try:
        ids = tokenizer.encode(asked).ids if isinstance(asked, str) else asked
    except Exception:  # a word without a token
        return None
    return ids, tokenizer.decode(ids, skip_special_tokens=False)


def compare(program, number, seed):
    wrong = 0
    for family, changes in VARIANTS + METASPACE:
        text = tokenizer_of(family, changes)
        tokenizer = Tokenizer.from_str(text)
        asked = texts(number, seed) + programs(number // 20, seed) + sentences(number // 10, seed)
        draw = random.Random(seed)
        for _ in range(number // 20):  # ids whose bytes are no characters; the package joins bytes of <0xNN> otherwise
            if family != "llama2":
                asked.append([draw.randrange(tokenizer.get_vocab_size()) for _ in range(draw.randint(1, 6))])
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "tokenizer.json").write_text(text)
            lines = "".join(json.dumps(one) + "\n" for one in asked)
            done = subprocess.run([program, folder], input=lines, capture_output=True, text=True, check=True)
        ids = decoded = 0
        for one, line in zip(asked, done.stdout.split("\n")[:-1], strict=True):
            want, got = expected(tokenizer, one), json.loads(line)
            other_ids = got.get("ids") != (want and want[0])
            other_text = not other_ids and want is not None and got["text"] != want[1]
            ids, decoded = ids + other_ids, decoded + other_text
            if (other_ids or other_text) and ids + decoded <= 5:
                print("  ", ascii(one), ascii(got), ascii(want))
        print(f"{family} {json.dumps(changes)}: {len(asked)} texts, {ids} with other ids, {decoded} with another text")
        wrong += ids + decoded
    return wrong


def sentences(number, seed):
    """Texts with spaces and added tokens in all places."""
    draw = random.Random(seed)
    pieces = [*SPACES[:2], " ", " ", "  ", "   ", "\u2581", "the", "a b", "<tool>", "<fill>", "</s>", "Lamp", "it's", "12",
              "...", "aa", "e\u0301", "\u00e9", "zoom", "lighthouse", "\n"]
    return ["", " ", "a", " a", *("".join(draw.choice(pieces) for _ in range(draw.randint(1, 8))) for _ in range(number))]


def write(name):
    """A few of the texts, each for one tokenizer."""
    made = []
    for n, (family, changes) in enumerate(VARIANTS if name == "unicode" else METASPACE):
        tokenizer = Tokenizer.from_str(tokenizer_of(family, changes))
        chosen = programs(100, n) if family == "words" else texts(130, n)
        if name == "metaspace":
            chosen = sentences(60, n)
        cases = [[text, *expected(tokenizer, text)] for text in chosen if expected(tokenizer, text)]
        if name == "unicode":       # whose texts are not read
            cases = [case[:2] for case in cases]
        lines = ",\n".join(json.dumps(case, ensure_ascii=True, separators=(",", ":")) for case in cases)
        made.append(f'{{"tokenizer":"{family}","changes":{json.dumps(changes)},"cases":[\n{lines}]}}')
    (FOLDER / f"{name}.json").write_text("[" + ",\n".join(made) + "]\n")


if __name__ == "__main__":
    options = argparse.ArgumentParser()
    options.add_argument("program", nargs="?")
    options.add_argument("--texts", type=int, default=20000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--write", choices=("unicode", "metaspace"))
    said = options.parse_args()
    if said.write:
        write(said.write)
    if said.program:
        raise SystemExit(compare(said.program, said.texts, said.seed) > 0)
