# SPDX-License-Identifier: Apache-2.0
"""Novels of Project Gutenberg as training text and held-out text.

    python3 texts.py --out DIR middlemarch.txt war-and-peace.txt      writes DIR/NAME.train.txt and DIR/NAME.heldout.txt

A book is cut to what lies between its START and END lines, one paragraph a line; its last tenth is held out. In
training, the proper names of each passage are exchanged for invented ones: a name can be known from the passage only.
"""
import argparse
import collections
import os
import re

HELD_OUT = 0.1                  # share of each book, at its end
WORD = re.compile(r"[^\W\d_]+")
TITLES = {"Mr", "Mrs", "Miss", "Sir", "Lady", "Lord", "Dr", "God", "St", "English", "French"}


def book(path):
    """The text of a Gutenberg file without header and footer: paragraphs without line breaks, one a line."""
    with open(path, encoding="utf-8-sig") as f:                 # line ends become \n
        text = f.read()
    start = re.search(r"\*\*\* ?START OF TH[^\n]*\n", text)
    end = re.search(r"(\nEnd of (the )?Project Gutenberg[^\n]*\s*)?\*\*\* ?END OF TH", text)
    if not start or not end:
        raise SystemExit(f"{path}: no START and END lines of Project Gutenberg")
    paragraphs = re.split(r"\n\s*\n", text[start.end():end.start()])
    return "\n".join(p for p in (" ".join(p.split()) for p in paragraphs) if p) + "\n"


def split(text):
    """(training text, held-out text), cut at a paragraph."""
    cut = text.index("\n", round(len(text) * (1 - HELD_OUT))) + 1
    return text[:cut], text[cut:]


def proper_names(text):
    """Words that are capitals in the middle of sentences and hardly ever small."""
    small = collections.Counter(WORD.findall(text))
    inside = collections.Counter(re.findall(r"(?<=[\w,;] )[^\W\d_]{3,}", text))
    return {w for w, n in inside.items() if w not in TITLES and n >= 2 and
            w[0].isupper() and not w.isupper() and small[w.lower()] <= 0.05 * small[w]}


class Names:
    """Exchanges proper names for invented ones: letters drawn after the two before, as in the names themselves."""

    def __init__(self, texts):
        self.known = set().union(*map(proper_names, texts))
        self.after = collections.defaultdict(list)
        for name in sorted(self.known):
            for i in range(len(name) + 1):
                self.after[(".." + name)[i:i + 2]].append((name + "\n")[i])

    def invent(self, rng):
        while True:
            name = ".."
            while len(name) < 16 and name[-1] != "\n":
                choices = self.after[name[-2:]]
                name += choices[rng.integers(len(choices))]
            if 3 <= len(name) - 3 <= 12:
                return name[2:-1]

    def exchange(self, passage, rng):
        """The same passage about other people: a name has the same stand-in wherever it occurs."""
        stand_in = {}

        def other(match):
            word = match.group()
            if word not in self.known:
                return word
            if word not in stand_in:
                stand_in[word] = self.invent(rng)
            return stand_in[word]
        return WORD.sub(other, passage)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("books", nargs="+")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    for path in options.books:
        name = os.path.splitext(os.path.basename(path))[0]
        for part, text in zip(("train", "heldout"), split(book(path))):
            with open(os.path.join(options.out, f"{name}.{part}.txt"), "w", encoding="utf-8", newline="\n") as f:
                f.write(text)
