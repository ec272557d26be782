# SPDX-License-Identifier: Apache-2.0
"""Measures a checkpoint on held-out problems: accuracy, what the index finds, and what masks leave.

    python3 evaluate.py checkpoints/plain [--problems 200]

Everything is teacher-forced in one pass.  Greedy decoding reproduces a problem exactly if and only if
every scored token is the argmax, so `exact` is also the rate of free runs without a single error.
"""
import argparse
import json
import math
import os

import numpy as np
import torch

import ledger
import model as decoder

WINDOW = 24
PIECE = 33              # tokens from which on a piece of the prompt ends at the next `;`
SINKS = 4
HELD_OUT = 10_000_000   # seeds from here on are never trained on


def hits(net, batch, hidden=None):
    """[B, L-1] bool: the token at p+1 is the argmax at p; and the rotated queries and keys."""
    tokens = torch.as_tensor(batch.tokens)
    states, seen = net(tokens, hidden)
    return (net.lm_head(states[:, :-1]).argmax(-1) == tokens[:, 1:]).numpy(), seen


def accuracies(net, batch, hidden=None):
    """Shares of right tokens: fetches by kind, other values, all else; and of problems without an error."""
    ok, _ = hits(net, batch, hidden)
    fetched, fine = ok[:, batch.fetch_at], batch.lines != ledger.LAST
    answers = np.arange(fine.shape[1]) >= len(batch.thoughts) - ledger.LITERALS
    scored = batch.scored[1:].copy()
    exact = ok[:, scored].all(1).mean()
    scored[batch.fetch_at] = False
    value = (batch.tokens[0, 1:] >= ledger.VALUE_0) & (batch.tokens[0, 1:] < ledger.LITERAL_0)
    return {"fine": fetched[fine].mean(), "coarse": fetched[~fine].mean(), "answer": fetched[:, answers].mean(),
            "chain": ok[:, scored & value].mean(), "syntax": ok[:, scored & ~value].mean(), "exact": exact}


def mean_keys(keys, spans):
    """keys [B, G, L, D], spans [R, 2] (markers included) -> the mean key strictly between the markers [B, G, R, D]."""
    return torch.stack([keys[:, :, first + 1:last].mean(2) for first, last in spans], 2)


def span_logits(seen, asking, spans):
    """q . mean key / sqrt(D) of the positions [N] on each span that is over: [layers, B, H, N, R], -inf elsewhere."""
    late = torch.as_tensor(asking[:, None] < spans[None, :, 1])                       # [N, R]
    logits = []
    for q, k in seen:
        group = q.shape[1] // k.shape[1]
        mean = mean_keys(k, spans).repeat_interleave(group, 1)                          # [B, H, R, D]
        at = q[:, :, torch.as_tensor(asking)]                                           # [B, H, N, D]
        logits.append((at @ mean.transpose(2, 3) / math.sqrt(q.shape[-1])).masked_fill(late, -math.inf))
    return torch.stack(logits)


def thought_mass(seen, batch):
    """Attention mass of each pointer on the thought it refers to: [layers, B, H, F]."""
    future = torch.arange(batch.tokens.shape[1])[None] > torch.as_tensor(batch.fetch_at)[:, None]      # [F, L]
    start = torch.as_tensor(batch.thoughts[batch.sources])                              # [B, F, 2]
    column = torch.arange(batch.tokens.shape[1])
    inside = (column >= start[..., :1]) & (column <= start[..., 1:])                    # [B, F, L]
    mass = []
    for q, k in seen:
        keys = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        at = q[:, :, torch.as_tensor(batch.fetch_at)]
        p = (at @ keys.transpose(2, 3) / math.sqrt(q.shape[-1])).masked_fill(future, -math.inf).softmax(-1)
        mass.append((p * inside[:, None]).sum(-1))
    return torch.stack(mass)


def index_quality(net, batch, hidden=None):
    """How often mean keys find the thought referred to by a fine pointer, per head and by votes."""
    _, seen = hits(net, batch, hidden)
    fine = torch.as_tensor(batch.lines != ledger.LAST)                                  # [B, F]
    right = torch.as_tensor(batch.sources)                                              # [B, F]
    length = torch.as_tensor(batch.thoughts[:, 1] - batch.thoughts[:, 0] + 1).log()     # [R]
    found = {"thought mass": thought_mass(seen, batch).transpose(1, 2)[:, :, fine].mean(-1)}
    for name, spans in (("summary", batch.summaries), ("thought", batch.thoughts)):
        logits = span_logits(seen, batch.fetch_at, spans)                                        # [layers, B, H, F, R]
        top = logits.argmax(-1) == right[None, :, None]                                 # [layers, B, H, F]
        found[f"{name} top-1"] = top.transpose(1, 2)[:, :, fine].float().mean(-1)       # [layers, H]
        two = logits.topk(2, -1).indices
        votes = torch.zeros_like(logits).scatter(-1, two, 1.0).sum((0, 2))              # [B, F, R]
        mass = (logits + length).softmax(-1).sum((0, 2))
        for rule, score, count in (("votes", votes, 2), ("mass", mass, 1), ("mass", mass, 2)):
            hit = (score.topk(count, -1).indices == right[..., None]).any(-1)           # [B, F]
            found[f"{name} {rule} c={count}"] = hit[fine].float().mean()
    return found


def pieces(batch):
    """The segments of the prompt: [P, 2], the positions before the first and after the last token of each, as if markers."""
    ends = [end + 1 for _, end in batch.statements]
    cuts = [0]
    for end in ends:
        if end - cuts[-1] >= PIECE:
            cuts.append(end)
    return np.array([(a - 1, b) for a, b in zip(cuts, cuts[1:] + [batch.prompt_length]) if a < b])


def piece_of(batch):
    """The piece in which each register's statement lies: [R]."""
    return np.searchsorted(pieces(batch)[:, 1], batch.statements[:, 1], side="right")


def zoomed(batch, oracle, whole_prompt=True):
    """True where a key is hidden: all but {prompt, summaries, window, open thought}, and (oracle) the thought referred to.

    Without the whole prompt, of it only the sinks, and (oracle) while a statement is repeated its piece."""
    B, L = batch.tokens.shape
    row, column = np.arange(L)[:, None], np.arange(L)[None, :]
    seen = (column < (batch.prompt_length if whole_prompt else SINKS)) | (row - column < WINDOW)
    seen |= (row < batch.prompt_length) & (column < batch.prompt_length)
    if oracle:
        at = pieces(batch)
        for (first, _), p in zip(batch.thoughts, piece_of(batch)):
            seen |= (row >= first) & (row < first + len("a = b [ 5 ] ;".split())) & (column > at[p, 0]) & (column < at[p, 1])
    for first, last in batch.summaries:
        seen |= (column >= first) & (column <= last)
    for (first, _), (_, end) in zip(batch.thoughts, batch.summaries):     # open until its summary ends
        seen |= (column >= first) & (row >= first) & (row <= end)
    seen |= (row > batch.summaries[-1, 1]) & (column > batch.summaries[-1, 1])
    seen = np.repeat(seen[None], B, 0)                                                  # [B, L, L]
    if oracle:                # from the end of the pointer to the end of what it opens
        for f, at in enumerate(batch.fetch_at):
            r = f + ledger.LITERALS
            end = batch.summaries[r, 1] if r < len(batch.thoughts) else at + 1
            for b, (first, last) in enumerate(batch.thoughts[batch.sources[:, f]]):
                seen[b, at:end + 1, first:last + 1] = True
    return torch.as_tensor(~seen | (column > row))


def evaluate(net, count=200, registers=12, lines=24, answers=3, seed=HELD_OUT, index=True):
    """Averages over `count` problems: a dict of numbers and, per layer and head, nested lists."""
    rng, parts = np.random.default_rng(seed), []
    with torch.no_grad():
        while sum(size for size, _ in parts) < count:
            batch = ledger.problems(rng, 10, registers, lines, answers)
            part = accuracies(net, batch)
            if index:
                part |= index_quality(net, batch)
                for name, hidden in (("without", zoomed(batch, False)), ("oracle", zoomed(batch, True))):
                    part |= {f"{k}, {name}": v for k, v in accuracies(net, batch, hidden).items()}
                    part |= {f"{k}, {name}": v for k, v in index_quality(net, batch, hidden).items() if "c=" in k}
            parts.append((10, part))
    mean = {k: sum(torch.as_tensor(p[k], dtype=torch.float64) for _, p in parts) / len(parts) for k in parts[0][1]}
    return {k: v.mul(1e4).round().div(1e4).tolist() for k, v in mean.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("--problems", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with open(os.path.join(options.checkpoint, "ledger.json")) as f:
        size = json.load(f)
    found = evaluate(decoder.load(options.checkpoint), options.problems, size["registers"], size["lines"], size["answers"])
    for key, value in found.items():
        print(f"{key:28} {json.dumps(value)}")
