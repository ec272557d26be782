# SPDX-License-Identifier: Apache-2.0
"""Trains a byte-level decoder on novels, on one CPU thread, and writes it in Hugging Face layout.

    python3 train.py --out checkpoint --minutes 80 middlemarch.txt war-and-peace.txt

Contexts grow: 1,024 bytes, then 4,096, then 16,384, in chunks that each take a step and see all before them in their
passage. OUT/state.pt is written every three minutes; the same command continues from it.
"""
import argparse
import csv
import ctypes
import math
import os
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import attention
import texts
import tokenizer

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ledger"))
import model as decoder  # noqa: E402
from muon import Muon  # noqa: E402

BOS = tokenizer.BOS
CONFIG = dict(decoder.CONFIG, hidden_size=192, intermediate_size=512, head_dim=48, vocab_size=257,
              max_position_embeddings=16384, torch_dtype="bfloat16", bos_token_id=BOS)
STAGES = [(0.48, 1024, 1024, 4), (0.68, 4096, 2048, 2), (1.01, 16384, 2048, 1)]  # until, context, chunk, passages
GUIDED = [(2, 0, 4), (3, 0, 6)]     # (layer, head, bytes that must match): heads that are told where a text repeats
GUIDES = [(0.48, 0.1), (0.92, 0.05), (1.01, 0.0)]     # weight of the guidance, until a share of the time
ROWS = 192           # repetitions of a passage and chunk that guide
DECAY = 3e-4         # of the layers' matrices, per step
EVERY = 400          # seconds between measurements
TESTS = [(1024, 12), (4096, 4)]     # contexts and passages of a measurement


def ids(text, length):
    """<bos> and the first bytes of a text."""
    return np.concatenate([[BOS], np.frombuffer(text.encode(), np.uint8)[:length - 1]]).astype(np.int64)


class Passages:
    """Passages of `context` bytes from random places, with invented names, in chunks that follow each other."""

    def __init__(self, books, names, context, chunk, count, seed):
        self.books, self.names, self.seed = books, names, seed
        self.context, self.chunk, self.count = context, chunk, count
        self.drawn, self.at = 0, context

    def draw(self):
        rng = np.random.default_rng((self.seed, self.context, self.drawn))
        self.drawn += 1
        sizes = np.array([len(b) for b in self.books])
        while True:
            text = self.books[rng.choice(len(sizes), p=sizes / sizes.sum())]
            first = text.find(" ", rng.integers(len(text) - self.context)) + 1
            passage = ids(self.names.exchange(text[first:first + 2 * self.context], rng), self.context + 1)
            if len(passage) == self.context + 1:
                return passage

    def next(self):
        """(tokens [count, chunk + 1], is it the beginning of the passages?)"""
        if self.at >= self.context:
            self.passages, self.at = torch.as_tensor(np.stack([self.draw() for _ in range(self.count)])), 0
        chunk = self.passages[:, self.at:self.at + self.chunk + 1]
        self.at += self.chunk
        return chunk, self.at == self.chunk

    def so_far(self):
        """The passages up to the end of the last chunk, and one byte more."""
        return self.passages[:, :self.at + 1]


def repetitions(passage, first, n, rng, most=4):
    """Where the last n bytes, and the next one, stood before, at most `most` times: some positions from `first` on
    [N], and where each is to look [N, S], at the bytes that came next then. passage [S + 1]"""
    S = len(passage) - 1
    gram = np.zeros(S + 1, np.int64)                    # the n bytes up to and with a position
    for i in range(n):
        gram[n - 1:] = gram[n - 1:] * 257 + passage[i:S - n + 2 + i]
    _, group, count = np.unique(gram, return_inverse=True, return_counts=True)
    times = count[group[:S]]
    candidates = np.flatnonzero((times > 1) & (times <= most + 1) & (np.arange(S) >= max(first, n)))
    rows, look = [], []
    for t in rng.permutation(candidates)[:ROWS]:
        before = np.flatnonzero(gram[n - 1:max(t - 8, n - 1)] == gram[t]) + n
        before = before[passage[before] == passage[t + 1]]
        if len(before):
            rows.append(t)
            look.append(np.isin(np.arange(S), before))
    return np.array(rows, np.int64), np.array(look, bool).reshape(len(rows), S)


def guidance_loss(watched, passages, chunk, rng):
    """The mean over repetitions of -log(attention of a guided head on the bytes that came next before).

    watched   of each layer: queries of the chunk, keys of the passages so far
    passages  [B, S + 1]  up to the end of the chunk
    """
    total = 0.0
    for layer, head, n in GUIDED:
        queries, keys = watched[layer]
        first = passages.shape[1] - 1 - chunk
        found = []
        for b, passage in enumerate(passages.numpy()):
            rows, look = repetitions(passage, first, n, rng)
            if len(rows):
                k = keys[b, head * keys.shape[1] // queries.shape[1]]                   # [S, D]
                logits = queries[b, head, rows - first] @ k.t() / math.sqrt(k.shape[-1])
                future = torch.arange(len(k))[None] > torch.as_tensor(rows)[:, None]
                log_p = logits.masked_fill(future, -math.inf).log_softmax(-1)
                found.append(log_p.masked_fill(~torch.as_tensor(look), -math.inf).logsumexp(-1))
        if found:
            total = total - torch.cat(found).mean()
    return total


@torch.no_grad()
def measure(net, text, context, count, window=0):
    """Mean bits of the bytes in the last half of passages of `context`, spread over the text."""
    total = 0.0
    for i in range(count):
        first = len(text) * i // count
        tokens = torch.as_tensor(ids(text[first:first + 2 * context], context + 1))[None]
        logits, _ = attention.forward(net, tokens[:, :-1], None, window)
        total += F.cross_entropy(logits[0, context // 2:], tokens[0, context // 2 + 1:]).item() / math.log(2)
    return total / count


def measurements(net, held_out):
    row = {}
    for context, count in TESTS:
        row[f"bits_{context}"] = np.mean([measure(net, t, context, count // 2) for t in held_out])
    for window in (256, 1024):
        bits = [measure(net, t, context, count // 2, window) for t in held_out]
        row[f"bits_{context}_window_{window}"] = np.mean(bits)
    return {name: round(float(bits), 4) for name, bits in row.items()}


def train(options):
    torch.set_num_threads(1)
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(-4, 0), libc.mallopt(-1, 2**31 - 1)    # keep freed memory, or every large block is mapped anew
    torch.manual_seed(options.seed)
    parts = [texts.split(texts.book(path)) for path in options.books]
    names = texts.Names([training for training, _ in parts])
    held_out = [text for _, text in parts]
    net = decoder.Decoder(CONFIG)
    matrices = [w for name, w in net.named_parameters() if w.dim() == 2 and "layers" in name]
    others = [w for name, w in net.named_parameters() if not (w.dim() == 2 and "layers" in name)]
    optimizers = [Muon(matrices, options.lr, DECAY),
                  torch.optim.AdamW(others, options.lr, (0.9, 0.95), weight_decay=0.0)]
    now = {"step": 0, "tokens": 0, "seconds": 0.0, "drawn": [0] * len(STAGES), "rows": []}
    os.makedirs(options.out, exist_ok=True)
    state = os.path.join(options.out, "state.pt")
    if os.path.exists(state):
        saved = torch.load(state)
        net.load_state_dict(saved["net"])
        now = saved["now"]
        for optimizer, s in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(s)
    sources = [Passages([t for t, _ in parts], names, *stage[1:], options.seed) for stage in STAGES]
    for source, drawn in zip(sources, now["drawn"]):
        source.drawn = drawn
    began, saved_at, measured_at = time.time() - now["seconds"], time.time(), time.time()
    past, stage, losses = None, None, []
    while now["seconds"] < options.minutes * 60:
        part = now["seconds"] / (options.minutes * 60)
        if stage != (stage := next(i for i, s in enumerate(STAGES) if part < s[0])):
            past = None
        fall = 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * part))
        for group in optimizers[0].param_groups + optimizers[1].param_groups:
            group["lr"] = options.lr * (min(1, (now["step"] + 1) / 100) * fall)
        optimizers[0].param_groups[0]["decay"] = DECAY * min(1, 8 * fall)
        chunk, first = sources[stage].next()
        guide = next(weight for until, weight in GUIDES if part < until)
        watched = [] if guide > 0 else None
        logits, past = attention.forward(net, chunk[:, :-1], None if first else past, watched=watched)
        language_loss = F.cross_entropy(logits.flatten(0, 1), chunk[:, 1:].flatten())
        guidance = 0.0
        if guide > 0:
            guidance = guidance_loss(watched, sources[stage].so_far(), chunk.shape[1] - 1,
                                     np.random.default_rng((options.seed, now["step"])))
        loss = language_loss + guide * guidance
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        losses.append(language_loss.item() / math.log(2))
        now.update(step=now["step"] + 1, tokens=now["tokens"] + chunk[:, 1:].numel(), seconds=time.time() - began,
                   drawn=[s.drawn for s in sources])
        if now["step"] % 50 == 0:
            print(f"step {now['step']} tokens {now['tokens']} seconds {now['seconds']:.0f} context {STAGES[stage][1]}"
                  f" training bits {np.mean(losses[-50:]):.4f} guidance {float(guidance):.3f}", flush=True)
        last = now["seconds"] >= options.minutes * 60
        if time.time() - measured_at > EVERY or last:
            row = {"step": now["step"], "seconds": round(now["seconds"]), "tokens": now["tokens"],
                   "context": STAGES[stage][1], "training_bits": round(float(np.mean(losses)), 4)}
            row.update(measurements(net, held_out))
            losses, measured_at = [], time.time()
            now["rows"].append(row)
            print(*(f"{k} {v}" for k, v in row.items()), flush=True)
        if time.time() - saved_at > 180 or last:
            torch.save({"net": net.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "now": now}, state)
            saved_at = time.time()
    decoder.save(net, options.out)
    tokenizer.save(options.out)
    with open(os.path.join(options.out, "curve.csv"), "w", newline="") as f:
        writer = csv.DictWriter(f, now["rows"][0].keys())
        writer.writeheader()
        writer.writerows(now["rows"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--minutes", type=float, default=80, help="wall time; contexts and learning rate follow it")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("books", nargs="+", help="files of Project Gutenberg")
    train(parser.parse_args())
