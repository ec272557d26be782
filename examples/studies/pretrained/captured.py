# SPDX-License-Identifier: Apache-2.0
"""What a summary of a piece of text finds: the attention that is captured with one budget. So a score can be judged
before it is written for the cache.

    python3 captured.py --model DIR --text WAR_AND_PEACE.txt [--layers 2,9,16,23,28]

Keys, values and the last queries of some layers are those of one dense pass. For each KV head and query the pieces of
the text are ranked, and whole pieces fill a budget of 512 tokens. Of these, 4 sinks and the last 256 are always read,
as `sentence_box` does. Captured is the share of the query heads' attention on what is read. The error is the length of
the difference of outputs, as a part of the output's.

    mean      s q m                                     s: the model's scale, m: mean key
    spread    s q m + sum (s q_d v_d)^2 / 2 + ln n      v: standard deviation, n: tokens. If keys were normal, the ln of
                                                        the piece's attention
    box       the largest product with any key in the box of all keys
    cuboid    the same of a box around the middle of that one, as wide as keys lie from it on the average
    exact     the piece's attention

Of the query heads of one KV head the largest score decides, or the mean of their softmaxes over the pieces. It needs
torch and transformers, 4 GB, and some minutes.
"""
import argparse
import pathlib

import torch

BUDGET, SINKS, RECENT = 512, 4, 256
SIZES = {"8": 8, "16": 16, "sentence": 256}
POOLS = {"largest score": lambda scores: scores.max(0).values, "mean mass": lambda scores: scores.softmax(-1).mean(0)}


def dense_pass(directory, text, tokens, queries, layers):
    """Texts of the tokens, and {layer: (q of the last ones [N, queries, D], k [G, tokens, D], v [G, tokens, D])}."""
    from tokenizers import Tokenizer
    from transformers import AttentionInterface, AutoModelForCausalLM
    kept, block = {}, 512

    def attention(module, query, key, value, attention_mask, scaling, **unused):
        if module.layer_idx in layers:
            kept[module.layer_idx] = [x[0].float() for x in (query[:, :, -queries:], key, value)]
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
        out = []
        for begin in range(0, tokens, block):
            end = min(begin + block, tokens)
            scores = query[:, :, begin:end] * scaling @ key[:, :, :end].transpose(2, 3)
            future = torch.ones(end - begin, end, dtype=torch.bool).triu(begin + 1)
            out.append(scores.masked_fill_(future, float("-inf")).softmax(-1) @ value[:, :, :end])
        return torch.cat(out, 2).transpose(1, 2).contiguous(), None

    AttentionInterface.register("kept", attention)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, attn_implementation="kept")
    tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    text = text[len(text) * 2 // 5:][:8 * tokens].replace("\n", " ")
    ids = tokenizer.encode(text, add_special_tokens=False).ids[:tokens]
    with torch.no_grad():
        model.model(input_ids=torch.tensor([ids]), attention_mask=torch.zeros(1, 1, 1, 1), use_cache=False)
    return [tokenizer.decode([i]) for i in ids], kept


def cut(texts, longest):
    """[tokens] number of each token's piece: it ends with a sentence, or is full."""
    piece, begin, numbers = 0, 0, []
    for at, text in enumerate(texts):
        numbers.append(piece)
        if text.strip()[-1:] in tuple(".!?") or at + 1 - begin >= longest:
            piece, begin = piece + 1, at + 1
    return torch.tensor(numbers)


class Pieces:
    """What is kept of the pieces of one KV head's keys."""

    def __init__(self, numbers, keys):
        self.count = int(numbers[-1]) + 1
        self.tokens = torch.bincount(numbers).float()

        def mean(rows):
            return torch.zeros(self.count, rows.shape[1]).index_add_(0, numbers, rows) / self.tokens[:, None]
        self.mean = mean(keys)
        self.deviation = (mean((keys - self.mean[numbers]) ** 2)).sqrt()
        self.low, self.high = (torch.stack([side(keys[numbers == i]) for i in range(self.count)])
                               for side in (lambda x: x.amin(0), lambda x: x.amax(0)))
        self.middle = (self.low + self.high) / 2
        self.distance = mean((keys - self.middle[numbers]).abs())

    def scores(self, query, scale):
        """{rule: [heads, pieces]} as logits."""
        plus, minus = query.clamp(min=0), query.clamp(max=0)
        mean = scale * query @ self.mean.T
        return {"mean": mean,
                "spread": mean + ((scale * query) ** 2 @ (self.deviation ** 2).T) / 2 + self.tokens.log(),
                "box": scale * (plus @ self.high.T + minus @ self.low.T),
                "cuboid": scale * (query @ self.middle.T + query.abs() @ self.distance.T)}


def judged(numbers, pieces, query, key, value, at, sums):
    """Adds what each rule captures of one token's attention, and its error."""
    scale, seen, group = query.shape[1] ** -0.5, at + 1, query.shape[0]
    shares = (scale * query @ key[:seen].T).softmax(-1)
    out = shares @ value[:seen]
    always = torch.zeros(seen, dtype=torch.bool)
    always[:SINKS] = always[seen - RECENT:] = True
    ends = pieces.tokens.cumsum(0)
    allowed = (ends <= seen - RECENT) & (ends - pieces.tokens >= SINKS)
    rules = pieces.scores(query, scale)
    rules["exact"] = torch.zeros(group, pieces.count).index_add_(1, numbers[:seen], shares).clamp_min(1e-30).log()
    for rule, scores in rules.items():
        for pool, pooled in POOLS.items():
            order = pooled(scores.masked_fill(~allowed, -1e9)).argsort(descending=True)
            fits = allowed[order] & (pieces.tokens[order].cumsum(0) <= BUDGET - SINKS - RECENT)
            taken = torch.zeros(pieces.count, dtype=torch.bool)
            taken[order[fits]] = True
            read = shares * (always | taken[numbers[:seen]])
            captured = read.sum(1)
            error = (read / captured[:, None] @ value[:seen] - out).norm(dim=1) / out.norm(dim=1)
            row = sums.setdefault((rule, pool), [0.0, 0.0, 0])
            row[0] += captured.mean().item()
            row[1] += error.mean().item()
            row[2] += 1


def table(texts, kept, queries, every):
    print("| pieces | rule | " + " | ".join(f"captured, error; {pool}" for pool in POOLS) + " |")
    print("|---|---|" + "---|" * len(POOLS))
    for size, longest in SIZES.items():
        numbers, sums = cut(texts, longest), {}
        for query, key, value in kept.values():
            group = query.shape[0] // key.shape[0]
            for head in range(key.shape[0]):
                pieces = Pieces(numbers, key[head])
                for i in range(0, queries, every):
                    judged(numbers, pieces, query[head * group:(head + 1) * group, i], key[head], value[head],
                           len(texts) - queries + i, sums)
        for rule in dict.fromkeys(rule for rule, _ in sums):
            cells = [f"{100 * a / n:.1f} %, {b / n:.3f}" for a, b, n in (sums[rule, pool] for pool in POOLS)]
            print(f"| {size} | {rule} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=pathlib.Path, required=True, help="Hugging Face directory of a Llama")
    parser.add_argument("--text", type=pathlib.Path, required=True, help="prose")
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--queries", type=int, default=512, help="the last ones, of which every 56th is asked")
    parser.add_argument("--layers", default="2,5,9,12,16,19,23,25,28")
    options = parser.parse_args()
    torch.set_num_threads(1)
    layers = [int(layer) for layer in options.layers.split(",")]
    texts, kept = dense_pass(options.model, options.text.read_text(), options.tokens, options.queries, layers)
    table(texts, kept, options.queries, 56)
