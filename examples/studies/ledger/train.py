# SPDX-License-Identifier: Apache-2.0
"""Trains a LEDGER checkpoint on one CPU thread, and writes it in Hugging Face layout.

    python3 train.py --out checkpoints/plain        language loss; some heads are guided at the start
    python3 train.py --out checkpoints/indexed --start checkpoints/plain --index 0.3 --steps 500 --lr 1e-3
    python3 train.py --out checkpoints/M --size M --start checkpoints/plain --tokens 5000 --steps 700 --lr 2e-3

OUT/state.pt is written every three minutes; the same command continues from it.
"""
import argparse
import csv
import ctypes
import math
import os
import time

import numpy as np
import torch
import torch.nn.functional as F

import evaluate
import files
import ledger
import model as decoder
from muon import Muon

# (registers, lines, answers) of each stage: dense look-ups first; the larger sizes start from a smaller one's checkpoint
SIZES = {"S": [(4, 24, 16), (6, 24, 16), (8, 24, 12), (12, 24, 8)], "M": [(24, 40, 8)], "L": [(64, 64, 8)]}
NAMES = {"S": 32, "M": 32, "L": 128}
SHORTEST = 24        # lines of the shortest problem
PASS = 0.95          # accuracy of fine fetches and of the chain that opens the next size and lowers the guidance
GUIDE, GUIDE_END = 0.5, 0.1   # weight of the guidance: until the first pass, until the second; then none
MASKED = 0.6         # with the index loss: share of steps that see only what a perfect zoom would leave; of these,
PIECES = 0.5         # share that see of the prompt only the piece that is needed
DECAY = 1e-3         # of the layers' matrices, per step
EVERY = 100          # steps between measurements


def guided_heads(batch):
    """What some heads are told to look at: (layer, head, from positions [N], to positions [B or 1, N])."""
    first, here = batch.tokens[0], np.arange(batch.tokens.shape[1])

    def latest(flag):         # the latest position up to p where flag holds
        return np.maximum.accumulate(np.where(flag, here, 0))[None, 1:]
    name = latest(first >= ledger.NAME_0)
    symbol = latest(((first >= ledger.INDEX_0) & (first < ledger.NAME_0)) | (first == ledger.ID["last"]))
    return [(0, 0, here[1:], here[None, :-1]), (0, 1, here[1:], name), (0, 2, here[1:], symbol),
            (1, 0, here[1:], batch.owner_at[None, 1:]),
            (2, 0, batch.fetch_at, batch.value_at), (2, 2, batch.fetch_at, batch.value_at)]


def guidance_loss(seen, batch):
    """The sum over the guided heads of -log(attention on the token told)."""
    total = 0.0
    for layer, head, start, to in guided_heads(batch):
        q, k = seen[layer]                                                          # [B, H, L, D], [B, G, L, D]
        asking, keys = q[:, head][:, start], k[:, head * k.shape[1] // q.shape[1]]
        logits = asking @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])             # [B, N, L]
        future = torch.arange(k.shape[2])[None] > torch.as_tensor(start)[:, None]
        log_p = logits.masked_fill(future, -math.inf).log_softmax(-1)
        total = total - log_p.gather(2, torch.as_tensor(to).expand(len(q), -1)[:, :, None]).mean()
    return total


def index_loss(seen, batch, layers=2):
    """Cross-entropy of the right segment by q . mean key / sqrt(D), for the heads of the last layers.

    Each pointer asks for the thought that it refers to, by its summary; each <thought> for its piece of the prompt."""
    pieces = evaluate.pieces(batch)
    spans, seen = np.concatenate([pieces, batch.summaries]), seen[-layers:]

    def loss(at, right):      # at [N], right [B or 1, N]
        log_p = evaluate.span_logits(seen, at, spans).log_softmax(-1)              # [layers, B, H, N, P + R]
        wanted = torch.as_tensor(right)[None, :, None, :, None].expand(*log_p.shape[:-1], 1)
        return -log_p.gather(-1, wanted).mean()
    return (loss(batch.fetch_at, len(pieces) + batch.sources)
            + loss(batch.thoughts[:, 0], np.repeat(evaluate.piece_of(batch)[None], len(batch.tokens), 0)))


def language_loss(net, states, batch, fetch_weight):
    """Cross-entropy of the scored tokens, fetched values weighted."""
    at = np.flatnonzero(batch.scored)
    weight = np.ones(batch.tokens.shape[1], np.float32)
    weight[batch.fetch_at + 1] = fetch_weight
    weight = torch.as_tensor(weight[at])
    logits = net.lm_head(states[:, at - 1]).transpose(1, 2)                         # [B, V, N]
    loss = F.cross_entropy(logits, torch.as_tensor(batch.tokens)[:, at], reduction="none")
    return (loss * weight).sum() / (weight.sum() * len(loss))


def train(options):
    torch.set_num_threads(1)
    libc = ctypes.CDLL("libc.so.6")
    libc.mallopt(-4, 0), libc.mallopt(-1, 2**31 - 1)    # keep freed memory, or every large block is mapped anew
    torch.manual_seed(options.seed)
    sizes = SIZES[options.size]
    largest = sizes[-1]
    config = dict(decoder.CONFIG, vocab_size=len(ledger.VOCAB), torch_dtype="bfloat16",
                  bos_token_id=ledger.ID["<bos>"], eos_token_id=ledger.ID["<eos>"])
    net = decoder.load(options.start) if options.start else decoder.Decoder(config)
    length = ledger.problems(np.random.default_rng(0), 1, *largest, NAMES[options.size]).tokens.shape[1]
    net.config["max_position_embeddings"] = max(net.config["max_position_embeddings"], 1 << (length - 1).bit_length())
    matrices = [w for name, w in net.named_parameters() if w.dim() == 2 and "layers" in name]
    others = [w for name, w in net.named_parameters() if not (w.dim() == 2 and "layers" in name)]
    optimizers = [Muon(matrices, options.lr, DECAY), torch.optim.AdamW(others, options.lr, (0.9, 0.95), weight_decay=0.0)]
    # stage: sizes 0 .. stage are open; guide: weight of the guidance
    now = {"step": 0, "tokens": 0, "seconds": 0.0, "stage": len(sizes) - 1 if options.start else 0,
           "guide": 0.0 if options.start else GUIDE, "rows": []}
    os.makedirs(options.out, exist_ok=True)
    state = os.path.join(options.out, "state.pt")
    if os.path.exists(state):
        saved = torch.load(state)
        net.load_state_dict(saved["net"])
        now = saved["now"]
        for optimizer, s in zip(optimizers, saved["optimizers"]):
            optimizer.load_state_dict(s)
    began, saved_at = time.time() - now["seconds"], time.time()
    while now["step"] < options.steps:
        step = now["step"]
        rng = np.random.default_rng((options.seed, step))
        fall = 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / options.steps))
        for group in optimizers[0].param_groups + optimizers[1].param_groups:
            group["lr"] = options.lr * (min(1, (step + 1) / 200) * fall)
        optimizers[0].param_groups[0]["decay"] = DECAY * min(1, 8 * fall)
        registers, lines, answers = sizes[now["stage"]]
        if rng.random() < 0.5:                          # half of the steps: any size up to this one
            registers = int(rng.integers(4, registers + 1))
            lines = int(rng.integers(SHORTEST, lines + 1))
        length = 12 + (19 + 2 * lines) * registers + 6 * answers      # about
        batch = ledger.problems(rng, max(1, round(options.tokens / length)), registers, lines, answers,
                                NAMES[options.size], listed=options.index > 0 and rng.random() < 0.5)
        masked = options.index > 0 and rng.random() < MASKED
        hidden = evaluate.zoomed(batch, True, rng.random() > PIECES) if masked else None
        states, seen = net(torch.as_tensor(batch.tokens), hidden)
        loss = language_loss(net, states, batch, 5.0 if now["guide"] > 0 else 2.0)
        if now["guide"] > 0:
            loss = loss + now["guide"] * guidance_loss(seen, batch)
        if options.index > 0:
            loss = loss + options.index * index_loss(seen, batch)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
        now.update(step=step + 1, tokens=now["tokens"] + batch.tokens.size, seconds=time.time() - began)
        if now["step"] % EVERY == 0:
            registers, lines, answers = sizes[now["stage"]]
            found = evaluate.evaluate(net, 10, registers, lines, answers, evaluate.HELD_OUT + now["step"], index=False)
            row = {"step": now["step"], "seconds": round(now["seconds"]), "tokens": now["tokens"], "registers": registers,
                   "lines": lines, "answers": answers, "guidance": now["guide"], "loss": round(float(loss), 4), **found}
            now["rows"].append(row)
            print(*(f"{k} {v}" for k, v in row.items()), flush=True)
            if found["fine"] > PASS and found["chain"] > PASS:
                now["stage"] = min(now["stage"] + 1, len(sizes) - 1)
                now["guide"] = GUIDE_END if now["guide"] > GUIDE_END else 0.0
        if time.time() - saved_at > 180 or now["step"] == options.steps:
            torch.save({"net": net.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "now": now}, state)
            saved_at = time.time()
    os.remove(state)
    decoder.save(net, options.out)
    files.save(options.out, options.size, *largest[:2], answers=3, names=NAMES[options.size])
    with open(os.path.join(options.out, "curve.csv"), "w", newline="") as f:
        writer = csv.DictWriter(f, now["rows"][0].keys())
        writer.writeheader()
        writer.writerows(now["rows"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("--size", choices=SIZES, default="S")
    parser.add_argument("--start", help="checkpoint to start from: no guidance, the largest size at once")
    parser.add_argument("--index", type=float, default=0.0, help="weight of the index loss")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=3000, help="tokens in a batch")
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())
