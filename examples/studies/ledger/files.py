# SPDX-License-Identifier: Apache-2.0
"""Writes what the C++ side reads besides the weights: tokenizer.json, ledger.json, and the fixture problems.json.

    python3 files.py            writes problems.json
"""
import json
import os

import numpy as np

import ledger


def write(path, content):
    """JSON with one line per entry of the outermost object (and per problem)."""
    def entry(key, value):
        rows = ("[\n " + ",\n ".join(map(json.dumps, value)) + "]") if key == "problems" else json.dumps(value)
        return f"{json.dumps(key)}: {rows}"
    with open(path, "w") as f:
        f.write("{" + ",\n".join(entry(key, value) for key, value in content.items()) + "}\n")


def save(directory, size, registers, lines, answers, names):
    """Writes tokenizer.json (a word-level Hugging Face tokenizer) and ledger.json (the constants of the task)."""
    special = [{"id": i, "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, mark in enumerate(ledger.MARKS)]
    tokenizer = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
                 "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
                 "model": {"type": "WordLevel", "vocab": ledger.ID, "unk_token": "<unk>"}}
    constants = {
        "task": "ledger", "size": size, "registers": registers, "lines": lines, "answers": answers,
        "values": ledger.VALUES, "literals": ledger.LITERALS, "fine_share": ledger.FINE_SHARE,
        "first_fine": ledger.FIRST_FINE, "last_fine": lines - 2, "permutation": ledger.P.tolist(),
        "names": ledger.NAMES[:names], "kappa": ledger.KAPPA[:names].tolist(),
        "symbols": {"begin": "<bos>", "end": "<eos>", "go": "<go>", "thought": "<thought>", "end_thought": "</thought>",
                    "summary": "<summary>", "end_summary": "</summary>", "answer": "<ans>", "equals": "=",
                    "boundary": ";", "open": "[", "close": "]", "last": "last"},
        "formats": {"value": "%02d", "literal": "#%02d", "index": "@%d"}}
    for name, content in (("tokenizer.json", tokenizer), ("ledger.json", constants)):
        write(os.path.join(directory, name), content)


def reference(program, r):
    return {"source": int(program[0][0, r]), "line": "last" if program[1][0, r] == ledger.LAST else int(program[1][0, r])}


def fixture(rng, registers, lines, answers, names, listed=False):
    """One problem: its program, register by register, and its whole text.  A source is a register's number."""
    program = ledger.draw(rng, 1, registers, lines, answers, names)
    statements = []
    for r in range(registers):
        name = {"name": ledger.NAMES[program.names[0, r]]}
        statements.append(name | ({"literal": int(program.literals[0, r])} if r < ledger.LITERALS
                                  else reference((program.sources, program.lines), r)))
    batch = ledger.render(program, lines, listed)
    return {"registers": registers, "lines": lines, "listed": listed, "statements": statements,
            "answers": [reference((program.ask_sources, program.ask_lines), a) for a in range(answers)],
            "fetch_at": batch.fetch_at.tolist(), "prompt_length": batch.prompt_length, "text": ledger.text(batch.tokens[0])}


if __name__ == "__main__":
    rng = np.random.default_rng(2024)
    sizes = [(3, 6, 1, 32), (4, 8, 2, 32), (6, 12, 3, 32), (12, 24, 3, 32), (12, 24, 3, 32), (24, 40, 3, 128), (6, 12, 3, 32, True)]
    found = {"permutation": ledger.P.tolist(), "names": ledger.NAMES, "kappa": ledger.KAPPA.tolist(),
             "problems": [fixture(rng, *size) for size in sizes]}
    write(os.path.join(os.path.dirname(os.path.abspath(__file__)), "problems.json"), found)
