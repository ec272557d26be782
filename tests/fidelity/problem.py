# SPDX-License-Identifier: Apache-2.0
"""Draws the problems that the driver and the reference are both given."""
import dataclasses

import numpy as np

from reference import DELIMITER, PLAIN, SUMMARY_BEGIN, SUMMARY_END, THOUGHT_BEGIN, THOUGHT_END

KINDS = [PLAIN, DELIMITER, THOUGHT_BEGIN, THOUGHT_END, SUMMARY_BEGIN, SUMMARY_END]


@dataclasses.dataclass
class Problem:
    layers: int
    heads: int
    kv_heads: int
    head_dim: int  # dimensions beyond key_dims are 0
    key_dims: int
    units: int  # position p is unit p mod units of the values
    tokens: int
    prompt: int
    chunk: int
    ids: np.ndarray  # [tokens] the vocabulary is [kind][8]
    queries: np.ndarray  # [pass, tokens, layers, heads, key_dims]
    keys: np.ndarray  # [pass, tokens, layers, kv_heads, key_dims]

    @property
    def kinds(self):
        return [KINDS[i // 8] for i in self.ids]

    def written(self):
        """As the driver reads it."""
        classes = np.repeat(KINDS, 8)
        header = [self.layers, self.heads, self.kv_heads, self.head_dim, self.key_dims, self.units, self.tokens,
                  self.prompt, self.chunk, len(classes)]
        return b"".join(np.ascontiguousarray(part, kind).tobytes() for part, kind in [
            (header, "<i4"), (classes, "<i4"), (self.ids, "<i4"), (self.queries, "<f4"), (self.keys, "<f4")])


def words(random, least, most, ends):
    """Plain words, some of which end a sentence."""
    return [DELIMITER if random.random() < ends else PLAIN for _ in range(random.integers(least, most + 1))]


def text_of(random, tokens, prompt):
    """Kinds of tokens: a prompt of sentences, then thoughts with and without markers, summaries, and text alone."""
    kinds = words(random, prompt, prompt, 0.08)
    while len(kinds) < tokens:
        text = words(random, 3, 24, 0.15)
        summary = [SUMMARY_BEGIN] + words(random, 1, 5, 0.1) + [SUMMARY_END]
        form = random.integers(8)
        if form < 4:
            kinds += [THOUGHT_BEGIN] + text + [THOUGHT_END] + summary
        elif form < 6:
            kinds += text + summary  # no markers of thoughts
        elif form == 6:
            kinds += [THOUGHT_BEGIN] + text + [THOUGHT_END, SUMMARY_BEGIN, SUMMARY_END]  # an empty summary
        else:
            kinds += [THOUGHT_BEGIN] + text + [THOUGHT_END]  # none
            kinds += [THOUGHT_BEGIN] + words(random, 3, 9, 0.15) + [THOUGHT_END] + summary
    return kinds[:tokens]


def draw(seed, exact=False, layers=2, key_dims=16, tokens=480, repeats=0.05):
    """Random numbers rounded to float, so that both sides have the same ones; some keys repeat earlier ones.

    @param exact  a unit of the values for each position: slower, and nothing can hide
    """
    heads, kv_heads = [(4, 2), (4, 4), (6, 2), (4, 1)][seed % 4]
    prompt, chunk = 160 - 7 * (seed % 3), 64 - 5 * (seed % 5)
    head_dim, units = (240, 480) if exact else (64, 64)
    random = np.random.default_rng(seed)
    kinds = text_of(random, tokens, prompt)
    ids = np.array([8 * KINDS.index(kind) + random.integers(8) for kind in kinds])
    keys = random.standard_normal((2, tokens, layers, kv_heads, key_dims)) + 0.5 * random.standard_normal(
        (1, 1, layers, kv_heads, key_dims))
    for t in np.flatnonzero(random.random(tokens) < repeats)[1:]:
        keys[:, t] = keys[:, random.integers(t)] + 0.2 * keys[:, t]
    queries = random.standard_normal((2, tokens, layers, heads, key_dims))
    queries *= 1.5 * np.sqrt(head_dim / key_dims)  # logits of some units, after the division by the root of head_dim
    single = lambda values: values.astype("<f4").astype(float)
    return Problem(layers, heads, kv_heads, head_dim, key_dims, units, tokens, prompt, chunk, ids, single(queries),
                   single(keys))
