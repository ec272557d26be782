# SPDX-License-Identifier: Apache-2.0
"""The LEDGER task: linked register files whose details exist only inside one earlier thought.

A problem of R registers with T lines each is a prompt (a program), a trace (per register a thought
and a summary) and a few answers.  v_0 is the seed, v_{j+1} = P[(v_j + kappa[name]) mod 97].  A pointer
`c = a [ @5 ] ;` seeds c with line 5 of a (fine), `c = a [ last ] ;` with the last line of a (coarse).
All problems of one size have the same length and the same layout; only the symbols differ.  The questions come
one by one, `<ans> e [ @7 ] 30 ; b [ @3 ] 81 <eos>`, or are listed first, and the model repeats each one before
its answer: `<ans> e [ @7 ] b [ @3 ] <go> e [ @7 ] 30 ; b [ @3 ] 81 <eos>`.
"""
from dataclasses import dataclass

import numpy as np

VALUES = 97       # values 00..96, literals #00..#96
INDICES = 64      # index symbols @0..@63; sizes S, M, L use the first 24, 40, 64
FINE_SHARE = 0.75
FIRST_FINE = 3    # fine references point at lines 3 .. T-2
LITERALS = 2      # registers 0 and 1 are literals
LAST = -1         # the line of a coarse reference


def short_names(count=128):
    """a, b, .., z, aa, ab, ..: one token each."""
    letters = [chr(ord("a") + i) for i in range(26)]
    return (letters + [x + y for x in letters for y in letters])[:count]


NAMES = short_names()
MARKS = ["<unk>", "<bos>", "<eos>", "<go>", "<thought>", "</thought>", "<summary>", "</summary>", "<ans>"]
VOCAB = (MARKS + ["=", ";", "[", "]", "last"] + [f"{v:02d}" for v in range(VALUES)]
         + [f"#{v:02d}" for v in range(VALUES)] + [f"@{j}" for j in range(INDICES)] + NAMES)
ID = {symbol: i for i, symbol in enumerate(VOCAB)}
VALUE_0, LITERAL_0, INDEX_0, NAME_0 = ID["00"], ID["#00"], ID["@0"], ID["a"]

_fixed = np.random.RandomState(97)
P = _fixed.permutation(VALUES)                            # [97]
KAPPA = np.resize(_fixed.permutation(VALUES), len(NAMES))  # [128] distinct for the first 97 names


@dataclass
class Program:
    """B programs of one size.  Lines are 0..T-1, or LAST."""
    names: np.ndarray         # [B, R]      which name, distinct in each row
    literals: np.ndarray      # [B, 2]      seeds of registers 0 and 1
    sources: np.ndarray       # [B, R]      register pointed at (columns 0, 1 unused)
    lines: np.ndarray         # [B, R]      line pointed at
    ask_sources: np.ndarray   # [B, A]      the same for the answers
    ask_lines: np.ndarray     # [B, A]


@dataclass
class Batch:
    """B rendered problems of one size: L tokens, F fetches (R-2 pointers, then A answers)."""
    tokens: np.ndarray        # [B, L]
    scored: np.ndarray        # [L] bool    the token at p can be known from the tokens before p, and is trace
    fetch_at: np.ndarray      # [F]         position of the `;` or `]` that ends the pointer; the value is next
    sources: np.ndarray       # [B, F]      register pointed at
    lines: np.ndarray         # [B, F]      line pointed at
    value_at: np.ndarray      # [B, F]      where the value stands: in the thought, or (coarse) in the summary
    owner_at: np.ndarray      # [L]         position of the name that the statement, thought, .. around p is about
    thoughts: np.ndarray      # [R, 2]      first and last position, markers included
    summaries: np.ndarray     # [R, 2]      first and last position, markers included
    statements: np.ndarray    # [R, 2]      first and last position, in the prompt
    prompt_length: int        # tokens up to and with <go>


def draw(rng, batch, registers, lines, answers, names=32):
    """Draws `batch` programs; register i and an answer (i = R) point at a uniform j <= i-2."""
    def references(tops):     # tops [n]: sources are drawn from 0 .. top-1
        n = len(tops)
        source = (rng.random((batch, n)) * np.asarray(tops)).astype(int)
        fine = rng.integers(FIRST_FINE, lines - 1, (batch, n))
        return source, np.where(rng.random((batch, n)) < FINE_SHARE, fine, LAST)
    ranks = np.argsort(rng.random((batch, names)), axis=1)
    source, line = references([max(i - 1, 1) for i in range(registers)])
    ask_source, ask_line = references([registers - 1] * answers)
    return Program(ranks[:, :registers], rng.integers(0, VALUES, (batch, LITERALS)), source, line, ask_source, ask_line)


def run(program, lines):
    """Computes every register file: [B, R, T]."""
    batch, registers = program.names.shape
    row = np.arange(batch)
    values = np.zeros((batch, registers, lines), int)
    for r in range(registers):
        v = program.literals[:, r] if r < LITERALS else values[row, program.sources[:, r], program.lines[:, r]]
        for j in range(lines):
            values[:, r, j] = v
            v = P[(v + KAPPA[program.names[:, r]]) % VALUES]
    return values


def render(program, lines, listed=False):
    """Writes prompt, trace and answers as tokens, and notes where everything stands.  listed: questions first."""
    batch, registers = program.names.shape
    row = np.arange(batch)
    values = run(program, lines)
    out, scored, owner = [], [], []
    state = {"owner": 0, "score": False}

    def put(*symbols):        # a symbol: text, or ids [B]
        for s in symbols:
            out.append(np.full(batch, ID[s]) if isinstance(s, str) else s)
            scored.append(state["score"])
            owner.append(state["owner"])

    def put_owner(name):
        state["owner"] = len(out)
        put(name)

    def symbol(line):         # [B] -> ids of @5 or last
        return np.where(line == LAST, ID["last"], INDEX_0 + line)

    def statement(r):
        put_owner(NAME_0 + program.names[:, r])
        if r < LITERALS:
            put("=", LITERAL_0 + program.literals[:, r], ";")
        else:
            put("=", NAME_0 + program.names[row, program.sources[:, r]], "[", symbol(program.lines[:, r]), "]", ";")

    put("<bos>")
    statements = []
    for r in range(registers):
        start = len(out)
        statement(r)
        statements.append((start, len(out) - 1))
    put("<go>")
    prompt_length = len(out)
    state["score"] = True
    thoughts, summaries, first_value_at, summary_value_at, fetch_at = [], [], [], [], []
    for r in range(registers):
        start = len(out)
        put("<thought>")
        statement(r)
        if r >= LITERALS:
            fetch_at.append(len(out) - 1)
        put(VALUE_0 + values[:, r, 0])
        first_value_at.append(len(out) + 1)
        for j in range(lines):
            put(f"@{j}", VALUE_0 + values[:, r, j])
        put("</thought>")
        thoughts.append((start, len(out) - 1))
        put("<summary>")
        put_owner(NAME_0 + program.names[:, r])
        put("last", VALUE_0 + values[:, r, -1])
        summary_value_at.append(len(out) - 1)
        put("</summary>")
        summaries.append((len(out) - 5, len(out) - 1))
    put("<ans>")
    answers = program.ask_sources.shape[1]

    def question(a):
        put_owner(NAME_0 + program.names[row, program.ask_sources[:, a]])
        put("[", symbol(program.ask_lines[:, a]), "]")
    state["score"] = False        # what is asked cannot be known
    if listed:
        for a in range(answers):
            question(a)
        put("<go>")
    for a in range(answers):
        state["score"] = listed
        question(a)
        fetch_at.append(len(out) - 1)
        state["score"] = True
        put(VALUE_0 + values[row, program.ask_sources[:, a], program.ask_lines[:, a]])
        state["score"] = listed   # nor how many questions there are
        put(";" if a + 1 < answers else "<eos>")

    sources = np.concatenate([program.sources[:, LITERALS:], program.ask_sources], 1)
    line = np.concatenate([program.lines[:, LITERALS:], program.ask_lines], 1)
    value_at = np.where(line == LAST, np.array(summary_value_at)[sources], np.array(first_value_at)[sources] + 2 * line)
    return Batch(np.stack(out, 1), np.array(scored), np.array(fetch_at), sources, line, value_at, np.array(owner),
                 np.array(thoughts), np.array(summaries), np.array(statements), prompt_length)


def problems(rng, batch, registers, lines, answers, names=32, listed=False):
    """Draws and renders `batch` problems."""
    return render(draw(rng, batch, registers, lines, answers, names), lines, listed)


def text(tokens):
    """[L] ids -> one line of text."""
    return " ".join(VOCAB[t] for t in tokens)
