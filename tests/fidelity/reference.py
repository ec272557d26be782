# SPDX-License-Identifier: Apache-2.0
"""The rules of the main presets, written from papers and released code, in numpy and double precision.

Nothing here was written from the headers: where both agree, two readings of a method agree. Each class is one method.
What a paper and its code leave open was decided for zoomr (docs/policies.md, docs/design.md); such a line says
"Decided". Arrays are [token, layer, head, dimension]; a row is one layer and query head; `t` is the position of the
query. A set that hangs on a gap smaller than what float can resolve is marked as doubtful.

The keyword arguments of each class are its rule. Their defaults are right; planted.py passes wrong ones.
"""
import numpy as np

PLAIN, DELIMITER, THOUGHT_BEGIN, THOUGHT_END, SUMMARY_BEGIN, SUMMARY_END = 0, 1, 2, 4, 8, 16

# Two scores that differ by less than this share of the largest may be ordered otherwise by a sum of floats in another
# order: 2^-24 for each rounding, some ten of them.
RESOLVED = 3e-6


def softmax(logits, axis=-1):
    weights = np.exp(logits - logits.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def best(scores, count, ties="low"):
    """The `count` best of `scores` (ids ascending), and whether the cut hangs on less than what floats resolve.

    Decided: equal scores go to the lower id. Equal here is equal there: both sides compute the same number.
    """
    ids = np.arange(len(scores))
    order = np.lexsort((ids if ties == "low" else -ids, -scores))
    if count >= len(scores):
        return np.sort(order), False
    if count <= 0:
        return order[:0], False
    chosen, rest, at = order[:count], order[count:], scores[order[count - 1]]
    near = np.abs(scores - at) < RESOLVED * max(np.abs(scores).max(), 1e-30)
    doubtful = (near[rest] & (scores[rest] < at)).any()
    doubtful |= scores[rest[0]] == at and (near[chosen] & (scores[chosen] > at)).any()
    return np.sort(chosen), bool(doubtful)


def max_pool(values, width):
    """The largest of `width` neighbours, stride 1, nothing beyond the ends."""
    half = width // 2
    return np.array([values[max(0, i - half) : i + half + 1].max() for i in range(len(values))])


class Reference:
    """What all methods share: dense causal attention to the prompt, then one token at a time."""

    temperature = 1.0

    def __init__(self, problem):
        self.p = problem
        self.keys = problem.keys[0].copy()  # committed; of a token that is passed again, those of its second pass
        self.group = problem.heads // problem.kv_heads

    def row_logits(self, layer, head, queries, tokens):
        """[queries, tokens] logits of some queries [queries, dims] of one head over some tokens' keys."""
        return queries @ self.keys[tokens, layer, head // self.group].T / np.sqrt(self.p.head_dim)

    def heads_of(self, kv_head):
        return range(kv_head * self.group, (kv_head + 1) * self.group)

    def run(self):
        """For each token after the prompt, for each of its passes: attended and doubtful rows, and weights."""
        p = self.p
        self.end_of_prompt()
        for t in range(p.prompt, p.tokens):
            passes = []
            for number in range(2 if self.asks_again(t) else 1):
                self.keys[t] = p.keys[number][t]
                self.query = p.queries[number][t]
                attended = np.zeros((p.layers, p.heads, p.tokens), bool)
                doubtful = np.zeros((p.layers, p.heads), bool)
                (self.attend_again if number else self.attend)(t, attended, doubtful)
                passes.append((attended, doubtful, self.weights(t, attended)))
            self.commit(t, passes[-1][2])
            yield t, passes

    def weights(self, t, attended):
        keys = np.repeat(self.keys[: t + 1], self.group, axis=2)
        logits = np.einsum("lhd,tlhd->lht", self.query, keys) / np.sqrt(self.p.head_dim) / self.temperature
        made = np.zeros(attended.shape)
        made[..., : t + 1] = softmax(np.where(attended[..., : t + 1], logits, -np.inf))
        return made

    def end_of_prompt(self):
        pass

    def asks_again(self, t):
        return False

    def attend(self, t, attended, doubtful):
        raise NotImplementedError

    def attend_again(self, t, attended, doubtful):
        raise NotImplementedError

    def commit(self, t, weights):
        pass


class Full(Reference):
    def __init__(self, problem, temperature=1.0):
        super().__init__(problem)
        self.temperature = temperature

    def attend(self, t, attended, doubtful):
        attended[..., : t + 1] = True


class Window(Reference):
    """StreamingLLM (arXiv 2309.17453): the first tokens and a sliding window, which counts the query's own token.

    Decided: positions stay what they were; the paper counts them inside the cache.
    """

    def __init__(self, problem, sinks=4, recent=1020):
        super().__init__(problem)
        self.sinks, self.recent = sinks, recent

    def attend(self, t, attended, doubtful):
        attended[..., : min(self.sinks, t + 1)] = True
        attended[..., max(0, t + 1 - self.recent) : t + 1] = True


def thoughts_of(problem):
    """(begin, split, end, summary's cue, own cue, closed_at) of each thought after the prompt.

    A summary follows the text since the last one; the markers of a thought are optional. Details are [begin, split),
    the summary with its markers is [split, end); what a thought is found by leaves markers out. Decided: a thought
    without a summary, or with an empty one, is found by its own keys; that none comes is seen at the token after the
    thought's end, or where another thought begins.
    """
    made, begin, split, ended = [], problem.prompt, None, False

    def close(split, end, cue, at):
        own = (begin + (problem.kinds[begin] == THOUGHT_BEGIN), split - (problem.kinds[split - 1] == THOUGHT_END))
        made.append((begin, split, end, cue if cue and cue[1] > cue[0] else own, own, at))

    for t in range(problem.prompt, problem.tokens):
        kind = problem.kinds[t]
        if (ended and kind != SUMMARY_BEGIN) or (kind == THOUGHT_BEGIN and t > begin):
            close(t, t, None, t)
            begin = t
        ended = kind == THOUGHT_END
        if kind == SUMMARY_BEGIN:
            split = t
        elif kind == SUMMARY_END:
            close(split, t + 1, (split + 1, t), t)
            begin = t + 1
    return made


class Zoomr(Reference):
    """ZoomR (arXiv 2604.10898): thoughts by the mean keys of their summaries; every head of every layer votes.

    The paper leaves open when a vote counts: `timing` is "one pass" (it serves the tokens after the delimiter) or
    "second pass" (the delimiter is passed once more). Decided: every summary is attended, a chosen thought's own too;
    prompt and open thought are; a thought of which nothing lies between prompt and window is nobody's candidate.
    """

    def __init__(self, problem, sinks=4, recent=64, votes=2, thoughts=2, timing="one pass", cue="summary", mean=np.mean,
                 ties="low", late=0, layers=slice(None), summaries=True, own_summary=True, open_thought=True,
                 boundary=DELIMITER, voters="heads"):
        super().__init__(problem)
        self.sinks, self.recent, self.votes, self.thoughts = sinks, recent, votes, thoughts
        self.timing, self.cue, self.mean, self.ties, self.late = timing, cue, mean, ties, late
        self.layers, self.summaries, self.own_summary = layers, summaries, own_summary
        self.open_thought, self.boundary, self.voters = open_thought, boundary, voters
        self.made = thoughts_of(problem)
        self.means = {}
        self.served = [(0, ([], False))]  # from which token on, which thoughts and whether that is doubtful

    def closed(self, t):
        """Thoughts that the tokens before t have closed."""
        return [i for i, thought in enumerate(self.made) if thought[5] < t]

    def zones(self, t):
        """[0, front) and [back, t] are always attended."""
        closed = self.closed(t)
        open_begin = self.made[closed[-1]][2] if closed else self.p.prompt
        recent = t + 1 - self.recent
        return max(self.sinks, self.p.prompt), min(recent, open_begin) if self.open_thought else recent

    def candidates(self, t):
        front, back = self.zones(t)
        return [i for i in self.closed(t) if min(self.made[i][1], back) > max(self.made[i][0], front)]

    def mean_key(self, i):
        """[layers, kv_heads, dims] of what a thought is found by."""
        if i not in self.means:
            begin, split, end, cue, own, _ = self.made[i]
            markers_too = (split, end) if end > split else (begin, split)
            tokens = {"summary": cue, "own": own, "markers too": markers_too}[self.cue]
            self.means[i] = self.mean(self.keys[slice(*tokens)], axis=0)
        return self.means[i]

    def scores(self, candidates):
        """[layers, heads, candidates] inner products of the query with mean keys."""
        means = np.repeat(np.stack([self.mean_key(i) for i in candidates]), self.group, axis=2)
        return np.einsum("lhd,slhd->lhs", self.query, means)

    def choose(self, t):
        """One set for all layers and heads: the thoughts with the most votes."""
        candidates = self.candidates(t)
        if not candidates:
            return [], False
        scores = self.scores(candidates)[self.layers]
        rows = scores.reshape(-1, len(candidates))
        if self.voters == "kv_heads":
            by_group = scores.reshape(scores.shape[0], -1, self.group, len(candidates))
            rows = by_group.mean(axis=2).reshape(-1, len(candidates))
        counts, doubtful = np.zeros(len(candidates)), False
        for row in rows:
            voted, close = best(row, self.votes)
            counts[voted] += 1
            doubtful |= close
        chosen, _ = best(counts, self.thoughts, self.ties)  # counts: exact on both sides
        return [candidates[i] for i in chosen], doubtful

    def cover(self, t, chosen, attended):
        front, back = self.zones(t)
        attended[..., : min(front, t + 1)] = True
        attended[..., max(0, back) : t + 1] = True
        for i in self.closed(t):
            begin, split, end = self.made[i][:3]
            if i in chosen:
                attended[..., begin:split] = True
            if self.summaries and (self.own_summary or i not in chosen):
                attended[..., split:end] = True

    def attend(self, t, attended, doubtful):
        if self.p.kinds[t] == self.boundary:
            begin = {"same pass": t, "one pass": t + 1, "second pass": t + 1}[self.timing] + self.late
            self.chosen = self.choose(t)
            self.served.append((begin, self.chosen))
        chosen, doubtful[:] = [choice for begin, choice in self.served if begin <= t][-1]
        self.cover(t, chosen, attended)

    def asks_again(self, t):
        return self.timing == "second pass" and self.p.kinds[t] == self.boundary

    def attend_again(self, t, attended, doubtful):
        chosen, doubtful[:] = self.chosen
        self.cover(t, chosen, attended)


class ZoomrMass(Zoomr):
    """ZoomR with heads weighted: each head's softmax over the thoughts, q·k/√d plus the logarithm of the number of
    tokens of a thought, is what attention it would pay; these are added up. Decided throughout: no paper."""

    def __init__(self, problem, timing="second pass", long=True, **rule):
        super().__init__(problem, timing=timing, **rule)
        self.long = long

    def masses(self, t, candidates):
        front, back = self.zones(t)
        tokens = [min(self.made[i][1], back) - max(self.made[i][0], front) for i in candidates]
        logits = self.scores(candidates) / np.sqrt(self.p.head_dim)
        return softmax(logits + np.log(tokens) if self.long else logits)

    def choose(self, t):
        candidates = self.candidates(t)
        if not candidates:
            return [], False
        chosen, close = best(self.masses(t, candidates).sum(axis=(0, 1)), self.thoughts)
        return [candidates[i] for i in chosen], close


class ZoomrFocus(ZoomrMass):
    """The same for each layer alone, which can then choose in the delimiter's own pass; thoughts by their own keys. With
    `always` each token chooses."""

    def __init__(self, problem, thoughts=1, cue="own", late=False, always=False, **rule):
        super().__init__(problem, timing="one pass", thoughts=thoughts, cue=cue, **rule)
        self.wait, self.always = late, always
        self.by_layer = [([], False)] * problem.layers

    def attend(self, t, attended, doubtful):
        before = self.by_layer
        if self.always or self.p.kinds[t] == self.boundary:
            candidates = self.candidates(t)
            mass = self.masses(t, candidates).sum(axis=1) if candidates else None
            found = [best(mass[layer], self.thoughts) if candidates else ([], False) for layer in range(self.p.layers)]
            self.by_layer = [([candidates[i] for i in chosen], close) for chosen, close in found]
        for layer, (chosen, close) in enumerate(before if self.wait else self.by_layer):
            self.cover(t, chosen, attended[layer : layer + 1])
            doubtful[layer] = close


def observed(reference, layer, kv_head, queries=32, pooling=7, over_group=np.max, total=np.sum):
    """[prompt - queries] what the prompt's last queries pay to each token before them (SnapKV, arXiv 2404.14469).

    The released code of SnapKV and SentenceKV: a softmax for each query over what it sees, summed over the queries,
    the observed tokens left out, then a maximum over neighbours. Decided: the maximum over the heads of a KV head.
    """
    p, first = reference.p, reference.p.prompt - queries
    seen = np.arange(p.prompt)[None, :] <= np.arange(first, p.prompt)[:, None]
    paid = []
    for head in reference.heads_of(kv_head):
        logits = reference.row_logits(layer, head, p.queries[0][first : p.prompt, layer, head], slice(0, p.prompt))
        weights = softmax(np.where(seen, logits, -np.inf))
        paid.append(max_pool(total(weights[:, :first], axis=0), pooling))
    return over_group(paid, axis=0)


class Keeping(Reference):
    """What a prompt keeps: `kept` [layers, kv_heads, tokens], which later tokens join."""

    def keep(self, tokens, sinks, queries=32, **rule):
        p = self.p
        self.kept = np.zeros((p.layers, p.kv_heads, p.tokens), bool)
        self.unsure = np.zeros((p.layers, p.kv_heads), bool)
        for layer in range(p.layers):
            for kv_head in range(p.kv_heads):
                lane = self.kept[layer, kv_head]
                lane[: p.prompt] = p.prompt <= tokens
                if p.prompt <= tokens:
                    continue
                lane[:sinks] = True  # Decided: sinks are safe; in the released code of SentenceKV they are not
                lane[p.prompt - queries : p.prompt] = True
                paid = observed(self, layer, kv_head, queries, **rule)[sinks:]
                found, self.unsure[layer, kv_head] = best(paid, tokens - sinks - queries)
                lane[sinks + found] = True

    def attend(self, t, attended, doubtful):
        self.kept[..., t] = True
        attended[:] = np.repeat(self.kept, self.group, axis=1)
        attended[..., t + 1 :] = False
        doubtful[:] = np.repeat(self.unsure, self.group, axis=1)


class SnapKv(Keeping):
    """SnapKV (arXiv 2404.14469, released code with its maximum pooling): of the prompt, what its last queries look at,
    those queries' tokens included in the number; everything after it."""

    def __init__(self, problem, tokens=1024, **rule):
        super().__init__(problem)
        self.tokens, self.rule = tokens, rule

    def end_of_prompt(self):
        self.keep(self.tokens, 0, **self.rule)


class SentenceKv(Keeping):
    """SentenceKV (arXiv 2504.00970 and its released code): whole sentences by the mean of their retained keys, asked by
    the mean of the queries of the sentence being written, until the budget is full; the last one is cut.

    Decided: for each KV head, whose query is the mean over its heads; the sinks are the first tokens of the text; the
    open sentence is attended as far as the budget goes. `everything_until` = 1 is the released code: everything is
    attended while the open sentence has at most one token, and at a delimiter it has none.
    """

    def __init__(self, problem, budget=1024, keep=3072, sinks=32, recent=32, everything_until=-1, means="retained",
                 cut=True, own_query=True, mean=np.mean, delimiter_own_pass=True, query="mean", over=np.mean,
                 slack=0, backwards=False, generated=True, first="of the text", observing=None):
        super().__init__(problem)
        self.budget, self.keep_tokens, self.sinks, self.recent = budget, keep, sinks, recent
        self.everything_until, self.of_means, self.cut, self.own_query = everything_until, means, cut, own_query
        self.mean, self.delimiter_own_pass, self.of_query, self.over = mean, delimiter_own_pass, query, over
        self.slack, self.backwards, self.generated = slack, backwards, generated
        self.first, self.observing = first, observing or {}

    def end_of_prompt(self):
        p = self.p
        self.keep(self.keep_tokens, self.sinks if self.first == "of the text" else 0, **self.observing)
        self.sentences, self.begin, self.means = [], 0, []
        for t in range(p.prompt):
            if p.kinds[t] == DELIMITER or t == p.prompt - 1:  # the rest is a last sentence
                self.close(t)

    def close(self, t):
        self.sentences.append((self.begin, t + 1))
        tokens = np.arange(self.begin, t + 1)
        means = np.full((self.p.layers, self.p.kv_heads, self.p.key_dims), np.nan)  # nan: nothing is left of it
        for layer in range(self.p.layers):
            for kv_head in range(self.p.kv_heads):
                of = tokens if self.of_means == "all" else tokens[self.kept[layer, kv_head, tokens]]
                if self.kept[layer, kv_head, tokens].any():
                    means[layer, kv_head] = self.mean(self.keys[of, layer, kv_head], axis=0)
        self.means.append(means)
        self.begin = t + 1

    def attend(self, t, attended, doubtful):
        p = self.p
        self.kept[..., t] = True
        ends = p.kinds[t] == DELIMITER
        in_open = 0 if ends and self.delimiter_own_pass else t + 1 - self.begin
        doubtful[:] = np.repeat(self.unsure, self.group, axis=1)
        if in_open <= self.everything_until:
            attended[:] = np.repeat(self.kept, self.group, axis=1)
            attended[..., t + 1 :] = False
            return
        asked = p.queries[0][self.begin : t + 1] if self.own_query or t == self.begin else p.queries[0][self.begin : t]
        asking = asked.mean(axis=0) if self.of_query == "mean" else asked[-1]
        front = self.sinks
        back = t + 1 - max(self.recent, min(t + 1 - self.begin, self.budget - self.sinks))
        for layer in range(p.layers):
            for kv_head in range(p.kv_heads):
                lane = self.kept[layer, kv_head]
                zone = np.zeros(p.tokens, bool)
                zone[: front if self.first == "of the text" else np.flatnonzero(lane)[front]] = True
                zone[max(back, 0) : t + 1] = True
                taken, close = self.fill(layer, kv_head, asking, lane & ~zone, t, self.budget - (lane & zone).sum())
                for head in self.heads_of(kv_head):
                    attended[layer, head] = lane & zone | taken
                    attended[layer, head, t + 1 :] = False
                    doubtful[layer, head] |= close

    def commit(self, t, weights):
        if self.p.kinds[t] == DELIMITER:
            self.close(t)

    def fill(self, layer, kv_head, asking, eligible, t, room):
        """Whole sentences, best first, of what lies between the zones; the last is cut at its end."""
        taken, room = np.zeros(self.p.tokens, bool), room + self.slack
        last = self.p.tokens if self.generated else self.p.prompt
        left = [i for i, (begin, end) in enumerate(self.sentences) if eligible[begin:end].any() and begin < last]
        query = self.over(asking[layer, list(self.heads_of(kv_head))], axis=0)
        scores = np.array([query @ self.means[i][layer, kv_head] for i in left])
        order = np.argsort(-scores, kind="stable")
        resolved = RESOLVED * max(np.abs(scores).max(), 1e-30) if len(left) else 0
        for place, at in enumerate(order):
            begin, end = self.sentences[left[at]]
            tokens = begin + np.flatnonzero(eligible[begin:end])
            if len(tokens) > room:
                if self.cut:
                    taken[tokens[len(tokens) - room :] if self.backwards else tokens[:room]] = True
                near = scores[order[max(0, place - 1) : place + 2]]
                return taken, bool((np.abs(np.diff(near)) < resolved).any())
            taken[tokens] = True
            room -= len(tokens)
        return taken, False


class Paging(Reference):
    """Pages of a fixed number of tokens; the one being filled is attended."""

    def __init__(self, problem, page, pages, sinks=0, dense_layers=0):
        super().__init__(problem)
        self.page, self.pages, self.sinks, self.dense = page, pages, sinks, dense_layers

    def zones(self, t):
        return self.sinks, t // self.page * self.page

    def attend(self, t, attended, doubtful):
        p = self.p
        front, back = self.zones(t)
        full = [i for i in range(t // self.page) if min((i + 1) * self.page, back) > max(i * self.page, front)]
        for layer in range(p.layers):
            if layer < self.dense:
                attended[layer, :, : t + 1] = True
                continue
            attended[layer, :, :front] = attended[layer, :, max(0, back) : t + 1] = True
            attended[layer, :, t + 1 :] = False
            for heads, scores in self.scored(layer, full) if full else []:
                chosen, close = best(scores, self.pages)
                for i in chosen:
                    attended[layer, heads, full[i] * self.page : (full[i] + 1) * self.page] = True
                doubtful[layer, heads] = close

    def page_keys(self, layer, kv_head, pages):
        """[pages, page, dims]"""
        return np.stack([self.keys[i * self.page : (i + 1) * self.page, layer, kv_head] for i in pages])

    def scored(self, layer, pages):
        """(heads that share a choice, their scores of the pages)"""
        raise NotImplementedError


def box_bound(query, low, high):
    """The largest product that a key inside of a box can have with a query."""
    return np.maximum(query * low, query * high).sum(axis=-1)


class Quest(Paging):
    """Quest (arXiv 2406.10774): pages of 16 by the box of their keys, the first two layers dense.

    The released kernel counts the page being filled among its budget of K: K - 1 others. Decided: K is said without it;
    the heads of a KV head share a choice, where the best one decides.
    """

    def __init__(self, problem, page=16, pages=64, dense_layers=2, over_group=np.max, low=np.min, high=np.max):
        super().__init__(problem, page, pages, dense_layers=dense_layers)
        self.over_group, self.low, self.high = over_group, low, high

    def scored(self, layer, pages):
        for kv_head in range(self.p.kv_heads):
            keys = self.page_keys(layer, kv_head, pages)
            low, high = self.low(keys, axis=1), self.high(keys, axis=1)
            heads = list(self.heads_of(kv_head))
            yield heads, self.over_group([box_bound(self.query[layer, h], low, high) for h in heads], axis=0)


class ArkVale(Paging):
    """ArkVale (NeurIPS 2024, released code): pages of 32 by their cuboid mean, the box about the centre of the keys'
    box whose half widths are the mean distances from it. One choice for a layer, by the mean over its heads; the first
    layers dense; a sink page and two window pages (the one being filled is the second) are part of the budget."""

    def __init__(self, problem, page=32, pages=29, dense_layers=2, sink_pages=1, window_pages=2, digest="cuboid mean",
                 over_heads=np.mean):
        super().__init__(problem, page, pages, sinks=sink_pages * page, dense_layers=dense_layers)
        self.window_pages, self.digest, self.over_heads = window_pages, digest, over_heads

    def zones(self, t):
        return self.sinks, (t // self.page + 1 - self.window_pages) * self.page

    def scored(self, layer, pages):
        scores = []
        for head in range(self.p.heads):
            keys = self.page_keys(layer, head // self.group, pages)
            low, high = keys.min(axis=1), keys.max(axis=1)
            if self.digest == "cuboid mean":
                centre = (low + high) / 2
                spread = np.abs(keys - centre[:, None]).mean(axis=1)
                low, high = centre - spread, centre + spread
            scores.append(box_bound(self.query[layer, head], low, high))
        yield slice(None), self.over_heads(scores, axis=0)


class Evicting(Reference):
    """Gives tokens up at the end of the prompt and after every `every` tokens: `held` [layers, kv_heads, tokens]."""

    def __init__(self, problem, tokens, every):
        super().__init__(problem)
        self.tokens, self.every = tokens, every
        self.held = np.zeros((problem.layers, problem.kv_heads, problem.tokens), bool)
        self.held[..., : problem.prompt] = True
        self.unsure = np.zeros((problem.layers, problem.kv_heads), bool)

    def end_of_prompt(self):
        self.give_up(self.p.prompt)

    def attend(self, t, attended, doubtful):
        self.held[..., t] = True
        attended[:] = np.repeat(self.held, self.group, axis=1)
        doubtful[:] = np.repeat(self.unsure, self.group, axis=1)

    def commit(self, t, weights):
        if (t + 1 - self.p.prompt) % self.every == 0:
            self.give_up(t + 1)

    def give_up(self, end):
        for layer in range(self.p.layers):
            for kv_head in range(self.p.kv_heads):
                lane = np.flatnonzero(self.held[layer, kv_head])
                if len(lane) > self.tokens:
                    keep, close = self.keep(layer, kv_head, lane, end)
                    self.held[layer, kv_head] = False
                    self.held[layer, kv_head, keep] = True
                    self.unsure[layer, kv_head] |= close  # whatever follows hangs on it


class H2o(Evicting):
    """H2O (arXiv 2306.14048): the last tokens, and of those before the ones that have got most attention so far, from
    the queries of the prompt too; what has been evicted does not come back. Published: at every token; Decided: every
    16; one set for a KV head, by the sum over its heads."""

    def __init__(self, problem, tokens=1024, recent=512, every=16, over=np.sum, prompt_counts=True, own_counts=True,
                 decoding_counts=True):
        super().__init__(problem, tokens, every)
        self.recent, self.over, self.prompt_counts, self.own_counts = recent, over, prompt_counts, own_counts
        self.decoding_counts = decoding_counts
        self.paid = np.zeros(self.held.shape)

    def end_of_prompt(self):
        p = self.p
        seen = np.tri(p.prompt, dtype=bool)
        for layer in range(p.layers if self.prompt_counts else 0):
            for kv_head in range(p.kv_heads):
                heads = self.heads_of(kv_head)
                tokens = slice(0, p.prompt)
                logits = [self.row_logits(layer, h, p.queries[0][tokens, layer, h], tokens) for h in heads]
                weights = self.over(softmax(np.where(seen, logits, -np.inf)), axis=0)
                own = 0 if self.own_counts else weights.diagonal()
                self.paid[layer, kv_head, tokens] = weights.sum(axis=0) - own
        super().end_of_prompt()

    def commit(self, t, weights):
        if not self.own_counts:
            weights = weights.copy()
            weights[..., t] = 0
        shape = (self.p.layers, self.p.kv_heads, self.group, self.p.tokens)
        if self.decoding_counts:
            self.paid += self.over(weights.reshape(shape), axis=2)
        super().commit(t, weights)

    def keep(self, layer, kv_head, lane, end):
        older, last = lane[: len(lane) - self.recent], lane[len(lane) - self.recent :]
        found, close = best(self.paid[layer, kv_head, older], self.tokens - self.recent)
        return np.concatenate([older[found], last]), close


class RKv(Evicting):
    """R-KV (arXiv 2505.24133 and its released code): what the last queries look at, less what is said twice.

    The maximum over the heads of a KV head is taken of logits, the softmax leaves the observed tokens out, then the
    mean over the queries and a maximum over neighbours. A key's redundancy is its mean cosine with all keys, made a
    softmax; each row spares one, the last key that it resembles, and key 0 if there is none (the code's largest
    index of nothing). The last `queries` tokens stay.
    """

    def __init__(self, problem, tokens=1024, every=128, queries=8, pooling=7, attention=0.07, similar=0.5,
                 spare="last", group="logits", leave_out=True):
        super().__init__(problem, tokens, every)
        self.queries, self.pooling, self.attention, self.similar = queries, pooling, attention, similar
        self.spare, self.of_group, self.leave_out = spare, group, leave_out

    def keep(self, layer, kv_head, lane, end):
        asked = range(end - self.queries, end)
        count = len(lane) - self.queries
        heads = self.heads_of(kv_head)
        logits = np.array([self.row_logits(layer, h, self.p.queries[0][asked, layer, h], lane) for h in heads])
        logits = np.where(lane[None, :] <= np.array(asked)[:, None], logits, -np.inf)
        if self.of_group == "logits":
            paid = softmax(logits.max(axis=0)[:, :count] if self.leave_out else logits.max(axis=0)).mean(axis=0)[:count]
            paid = max_pool(paid, self.pooling)
        else:
            paid = np.max([max_pool(softmax(one)[:, :count].mean(axis=0), self.pooling) for one in logits], axis=0)
        redundancy, unsure = self.redundancy(self.keys[lane, layer, kv_head])
        score = self.attention * paid - (1 - self.attention) * redundancy[:count]
        found, close = best(score, self.tokens - self.queries)
        return np.concatenate([lane[found], lane[count:]]), close or unsure

    def redundancy(self, keys):
        unit = keys / (np.linalg.norm(keys, axis=1, keepdims=True) + 1e-8)
        cosine = unit @ unit.T
        np.fill_diagonal(cosine, 0)
        alike, unsure = cosine > self.similar, (np.abs(cosine - self.similar) < 1e-6).any()
        for row in range(len(keys)):
            ids = np.flatnonzero(alike[row])
            if self.spare == "last":
                cosine[row, ids[-1] if len(ids) else 0] = 0
            elif len(ids):
                cosine[row, ids[-1] if self.spare == "none without" else ids[0]] = 0
        return softmax(cosine.mean(axis=0)), bool(unsure)
