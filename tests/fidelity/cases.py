# SPDX-License-Identifier: Apache-2.0
"""Which presets are compared, with which fields, and the wrong rules that must be noticed.

Budgets are smaller than the presets' own, so that problems of some hundred tokens have something to choose; that the
presets' own are those of the papers is `PUBLISHED`.
"""
import dataclasses

import numpy as np

import reference as r


@dataclasses.dataclass
class Case:
    name: str
    preset: str
    fields: dict  # of the preset
    method: type
    rule: dict  # of the reference, the same in its words


UNLIMITED = 2**31 - 1
SENTENCES = {"zones.sinks": 8, "zones.recent": 12, "fill_budget.tokens": 60, "zones.open": 52}
SENTENCES_RULE = dict(budget=60, sinks=8, recent=12)

CASES = [
    Case("full", "full", {}, r.Full, {}),
    Case("window", "window", {"zones.recent": 40}, r.Window, dict(recent=40)),
    Case("zoomr_one_pass", "zoomr_one_pass", {"zones.recent": 16}, r.Zoomr, dict(recent=16)),
    Case("zoomr_second_pass", "zoomr_second_pass", {"zones.recent": 16}, r.Zoomr,
         dict(recent=16, timing="second pass")),
    Case("zoomr_mass", "zoomr_mass", {"zones.recent": 16}, r.ZoomrMass, dict(recent=16)),
    Case("zoomr_focus", "zoomr_focus", {"zones.recent": 16}, r.ZoomrFocus, dict(recent=16)),
    Case("zoomr_focus at_most=1", "zoomr_focus", {"zones.recent": 16, "boundaries.at_most": 1}, r.ZoomrFocus,
         dict(recent=16, always=True)),
    Case("sentence_kv r=2", "sentence_kv", SENTENCES | {"observation_window.tokens": 120}, r.SentenceKv,
         SENTENCES_RULE | dict(keep=120)),
    Case("sentence_kv r=inf", "sentence_kv", SENTENCES | {"observation_window.tokens": UNLIMITED}, r.SentenceKv,
         SENTENCES_RULE | dict(keep=UNLIMITED)),
    Case("sentence_kv_published", "sentence_kv_published", SENTENCES | {"observation_window.tokens": 120}, r.SentenceKv,
         SENTENCES_RULE | dict(keep=120, everything_until=1)),
    Case("quest", "quest", {"top_k.segments": 5, "zones.dense_layers": 1}, r.Quest,
         dict(pages=5, dense_layers=1)),
    Case("arkvale", "arkvale", {"top_k.segments": 3, "zones.dense_layers": 1}, r.ArkVale,
         dict(pages=3, dense_layers=1)),
    Case("snapkv", "snapkv", {"observation_window.tokens": 80}, r.SnapKv, dict(tokens=80)),
    Case("h2o", "h2o", {"accumulated_attention.tokens": 64, "accumulated_attention.recent": 32}, r.H2o,
         dict(tokens=64, recent=32)),
    Case("h2o every=1", "h2o", {"accumulated_attention.tokens": 200, "accumulated_attention.recent": 16,
                                "accumulated_attention.every": 1}, r.H2o, dict(tokens=200, recent=16, every=1)),
    Case("r_kv", "r_kv", {"redundancy_aware.tokens": 64, "redundancy_aware.every": 32}, r.RKv,
         dict(tokens=64, every=32)),
]

# Of the papers and released codes, or decided: fields of the presets as they are.
PUBLISHED = {
    "window": {"zones.sinks": 4},
    "zoomr_one_pass": {"head_votes.k": 2, "top_k.segments": 2, "boundaries.second_pass": 0, "thoughts.own_cue": 0,
                       "zones.sinks": 4, "zones.recent": 64, "zones.prompt": 1, "zones.own_summary": 1},
    "zoomr_second_pass": {"head_votes.k": 2, "top_k.segments": 2, "boundaries.second_pass": 1,
                          "thoughts.own_cue": 0, "zones.sinks": 4, "zones.recent": 64, "zones.prompt": 1,
                          "zones.own_summary": 1},
    "zoomr_mass": {"top_k.segments": 2, "boundaries.second_pass": 1, "thoughts.own_cue": 0},
    "zoomr_focus": {"top_k.segments": 1, "boundaries.second_pass": 0, "thoughts.own_cue": 1},
    "sentence_kv": {"fill_budget.tokens": 1024, "observation_window.tokens": 3 * 1024, "observation_window.queries": 32,
                    "observation_window.pooling": 7, "zones.sinks": 32, "zones.recent": 32, "fill_budget.cut": 1,
                    "every_token.everything_until": 0},
    "sentence_kv_published": {"fill_budget.tokens": 1024, "observation_window.tokens": 3 * 1024, "zones.sinks": 32,
                              "zones.recent": 32, "every_token.everything_until": 1},
    "quest": {"fixed_pages.longest": 16, "top_k.segments": 64, "zones.dense_layers": 2, "zones.sinks": 0,
              "zones.recent": 1},
    "arkvale": {"fixed_pages.longest": 32, "top_k.segments": 32 - 1 - 2, "zones.dense_layers": 2,
                "zones.sinks": 32, "zones.recent": 64},
    "snapkv": {"observation_window.queries": 32, "observation_window.pooling": 7, "zones.sinks": 0},
    "h2o": {"accumulated_attention.tokens": 1024, "accumulated_attention.recent": 512},
    "r_kv": {"redundancy_aware.tokens": 1024, "redundancy_aware.every": 128, "redundancy_aware.queries": 8,
             "redundancy_aware.pooling": 7, "redundancy_aware.attention": 0.07, "redundancy_aware.similar": 0.5},
}


def by_mean(logits, axis):
    return np.mean(logits, axis=axis)


# Of a case, a wrong rule, and how it is said.
PLANTED = [
    ("full", dict(temperature=1.01), "logits off by one percent"),
    ("window", dict(recent=39), "a window one token shorter"),
    ("window", dict(sinks=3), "one sink less"),
    ("zoomr_one_pass", dict(cue="markers too"), "the mean counts a summary's markers"),
    ("zoomr_one_pass", dict(cue="own"), "thoughts found by their own keys"),
    ("zoomr_one_pass", dict(mean=np.sum), "sum of keys instead of their mean"),
    ("zoomr_one_pass", dict(ties="high"), "equal votes go to the later thought"),
    ("zoomr_one_pass", dict(late=1), "votes serve one token later still"),
    ("zoomr_one_pass", dict(timing="same pass"), "votes serve the delimiter's own pass"),
    ("zoomr_one_pass", dict(votes=1), "one vote for each head"),
    ("zoomr_one_pass", dict(votes=3), "three votes for each head"),
    ("zoomr_one_pass", dict(thoughts=3), "three thoughts instead of two"),
    ("zoomr_one_pass", dict(layers=slice(0, 1)), "only the first layer votes"),
    ("zoomr_one_pass", dict(voters="kv_heads"), "a vote for each KV head instead of each head"),
    ("zoomr_one_pass", dict(summaries=False), "summaries are not attended"),
    ("zoomr_one_pass", dict(own_summary=False), "a chosen thought's summary is not attended"),
    ("zoomr_one_pass", dict(open_thought=False), "the open thought only as far as the window"),
    ("zoomr_one_pass", dict(boundary=r.SUMMARY_END), "votes at the ends of summaries instead of sentences"),
    ("zoomr_second_pass", dict(timing="one pass"), "one pass instead of two"),
    ("zoomr_mass", dict(long=False), "the number of tokens does not count"),
    ("zoomr_mass", dict(timing="one pass"), "not asked again"),
    ("zoomr_focus", dict(cue="summary"), "thoughts found by their summaries"),
    ("zoomr_focus", dict(late=True), "the choice is one pass late"),
    ("zoomr_focus at_most=1", dict(late=True), "the choice is one token late"),
    ("zoomr_focus at_most=1", dict(always=False), "chosen at sentence ends only"),
    ("sentence_kv r=2", dict(means="all"), "mean over all tokens of a sentence instead of those retained"),
    ("sentence_kv r=2", dict(mean=np.sum), "sum of keys instead of their mean"),
    ("sentence_kv r=2", dict(cut=False), "the last sentence is left out instead of cut"),
    ("sentence_kv r=2", dict(backwards=True), "the last sentence's last tokens instead of its first"),
    ("sentence_kv r=2", dict(own_query=False), "the running mean leaves out the current token"),
    ("sentence_kv r=2", dict(query="last"), "the last query instead of the running mean"),
    ("sentence_kv r=2", dict(over=np.max), "the largest of a KV head's queries instead of their mean"),
    ("sentence_kv r=2", dict(slack=1), "a budget one token larger"),
    ("sentence_kv r=2", dict(keep=119), "one token less is retained"),
    ("sentence_kv r=2", dict(first="retained"), "the first retained tokens instead of the first ones"),
    ("sentence_kv r=2", dict(generated=False), "generated sentences are never chosen"),
    ("sentence_kv r=2", dict(observing=dict(pooling=5)), "neighbours within 2 instead of 3"),
    ("sentence_kv r=2", dict(observing=dict(queries=31)), "31 observed queries"),
    ("sentence_kv r=2", dict(everything_until=1), "everything is attended just after a delimiter"),
    ("sentence_kv_published", dict(delimiter_own_pass=False), "everything only at the token after a delimiter"),
    ("quest", dict(pages=6), "one page more"),
    ("quest", dict(over_group=by_mean), "the mean over a KV head's queries instead of the best"),
    ("quest", dict(low=by_mean, high=by_mean), "mean keys instead of their box"),
    ("quest", dict(dense_layers=0), "no dense layer"),
    ("arkvale", dict(digest="box"), "the box of the keys instead of the cuboid mean"),
    ("arkvale", dict(pages=4), "the sink page outside of the budget"),
    ("arkvale", dict(window_pages=1), "one window page"),
    ("arkvale", dict(over_heads=np.max), "the best head decides instead of the mean"),
    ("snapkv", dict(pooling=5), "neighbours within 2 instead of 3"),
    ("snapkv", dict(queries=31), "31 observed queries"),
    ("snapkv", dict(over_group=by_mean), "the mean over a KV head's queries instead of the largest"),
    ("snapkv", dict(total=np.max), "the largest attention instead of the sum"),
    ("h2o", dict(prompt_counts=False), "attention in the prompt does not count"),
    ("h2o every=1", dict(decoding_counts=False), "attention while decoding does not count"),
    ("h2o", dict(own_counts=False), "attention to oneself does not count"),
    ("h2o", dict(over=np.max), "the largest of a KV head's queries instead of the sum"),
    ("h2o", dict(every=17), "evicted one token later"),
    ("r_kv", dict(group="softmax"), "softmax before the maximum over a KV head's queries"),
    ("r_kv", dict(leave_out=False), "observed tokens in the softmax"),
    ("r_kv", dict(attention=0.1), "the paper's lambda instead of the code's"),
    ("r_kv", dict(spare="none without"), "a key without a repeat spares nothing"),
    ("r_kv", dict(spare="first"), "the first of repeated keys is spared"),
    ("r_kv", dict(queries=9), "nine observed queries"),
    ("r_kv", dict(pooling=5), "neighbours within 2 instead of 3"),
]
