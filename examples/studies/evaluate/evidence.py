# SPDX-License-Identifier: Apache-2.0
"""Runs every study behind PAGES of docs/results, joins them in evidence.json, fills in the tables, draws the figure.

    python3 evidence.py --build BUILD [--jobs 2] [--only headline,sweeps]       runs what is missing of LEDGER
    python3 evidence.py --build BUILD --only turns --rows arkvale@156           only rows whose policies begin so
    python3 evidence.py --build BUILD --texts A.heldout.txt B.heldout.txt       the perplexity of long text
    python3 evidence.py --draw                                                  only tables and figure

BUILD is a Release build of the project. Finished parts are kept in BUILD/evidence: it can be stopped at any time. A row
that was measured later than its study says so itself (`commit`, `date`).
"""
import argparse
import json
import math
import os
import platform
import subprocess
import sys

import results_page
from results_page import RESULTS, ROOT

PAGES = ["evidence.md", "ledger-votes.md", "ledger-bytes.md", "ledger-prompts.md", "long-text.md"]
BEST = "zoomr_focus"
FOLLOW = BEST + "+boundaries.at_most=1"                    # choosing at every token
TIMINGS = ["zoomr_one_pass", "zoomr_second_pass"]          # when a vote takes effect, the paper leaves open

ALL = "observation_window.tokens=unlimited"                # r = infinity
SENTENCES = "sentences.longest=12+pooled_score.over_group=max+" + ALL
# For long prompts: 156 attended tokens are 1/16 of the context; @456 and @370 have the device bytes of sentence_box@156.
LONG = ["full", "sentence_box@156", f"sentence_kv@156+{SENTENCES}", "quest@156", "quest@156+fixed_pages.longest=32",
        "arkvale@156+zones.dense_layers=0", "snapkv@156", "snapkv@456", "h2o@370", "window@156", "window@456"]


def each(policy, field, values):
    return [f"{policy}+{field}={value}" for value in values]


# name: (what it shows, checkpoint, problems, of these also written freely, policies, more options)
STUDIES = {
    "headline": ("every policy at its own size, trained for zooming", "indexed-m", 500, 40,
                 ["full", BEST, FOLLOW, "oracle", "zoomr_one_pass", "window@28", "summaries_apart"], []),
    "plain": ("the same on the plainly trained model", "plain-m", 200, 0,
              ["full", BEST, FOLLOW, *TIMINGS, "zoomr_mass", "oracle"], []),
    "timing": ("published votes, asked again or used one token late", "plain,indexed,plain-m,indexed-m", 40, 0,
               [*TIMINGS, "random_c"], []),
    "more": ("the other policies", "indexed-m", 100, 0,
             ["zoomr_second_pass", "zoomr_mass", "summary_only", "random_c", "window@360", "quest@360", "zoomr_box", "zoomr_cover"], []),
    "sweeps": ("one option at a time, plainly trained", "plain-m", 40, 0,
               each("zoomr_one_pass", "head_votes.k", [1, 3, 4]) + each("zoomr_one_pass", "top_k.segments", [1, 3, 4])
               + ["zoomr_one_pass", "zoomr_second_pass", "zoomr_one_pass+thoughts.own_cue=true",
                  "zoomr_second_pass+thoughts.own_cue=true",
                  "zoomr_mass", "zoomr_mass+boundaries.second_pass=false", "zoomr_mass+thoughts.own_cue=true",
                  "zoomr_mass+thoughts.own_cue=true+top_k.segments=1", "zoomr_box", "random_c"]
               + each("zoomr_mass+head_mass.per=layer", "top_k.segments", [1, 2])
               + each(BEST, "head_mass.per", ["kv_head"]) + each(BEST, "top_k.segments", [2, 4])
               + each(BEST, "zones.recent", [1, 8, 96, 192]) + ["zoomr_cover", FOLLOW], []),
    "segments": ("the prompt as segments too", "indexed-m", 100, 0,
                 [f"{name}+zones.prompt=false" for name in (BEST, "zoomr_mass", "zoomr_one_pass")], ["--delimiters", "; <thought>"]),
    "pointers": ("a refresh at each pointer's end too", "indexed-m", 100, 0, [BEST, "zoomr_mass", "zoomr_one_pass"],
                 ["--delimiters", "; ]"]),
    "mass": ("the attention mass that is captured", "plain-m", 4, 0,
             ["full", BEST, "zoomr_mass", "zoomr_one_pass", "random_c", "quest@360", f"sentence_kv@360+{SENTENCES}"], ["--audit"]),
    "permuted": ("each line of a thought shows another line's value", "indexed-m", 40, 0, ["full", BEST],
                 ["--task", "permuted"]),
    "memory": ("accuracy against bytes", "indexed-m", 40, 0,
               ["full"] + [f"window@{n}" for n in (64, 128, 512, 1024)] + [f"quest@{n}" for n in (64, 128, 512)]
               + [f"sentence_kv@{n}+{SENTENCES}" for n in (96, 160, 320, 640)]
               + each("zoomr_one_pass", "top_k.segments", [1, 2, 4, 8])
               + each("zoomr_second_pass", "top_k.segments", [2])
               + each("zoomr_mass", "top_k.segments", [1, 4]) + each(BEST, "top_k.segments", [2, 4])
              + [f"sentence_box@{n}" for n in (96, 160, 320, 640)] + ["h2o@512", "h2o@1024", "r_kv@512"], []),
    "turns": ("long prompts: the trace is the prompt, questions come one by one", "plain-m", 100, 0,
              LONG + ["sentence_box@156+pooled_score.per=layer+pooled_score.over_group=mean",
                      "sentence_box@156+sentences.longest=16", "sentence_kv@156+sentences.longest=24",
                      "sentence_kv@156+sentences.longest=24+" + ALL,
                      "sentence_kv_published@156+sentences.longest=24+" + ALL],
              ["--task", "turns", "--delimiters", "; </thought> </summary>"]),
    "listed": ("long prompts: the questions are in the prompt", "indexed-m", 40, 0,
               LONG, ["--task", "single,multi_query,multi_value", "--delimiters", "; </thought> </summary>"]),
}


# small enough for a test: it fails when a policy gets worse than its interval here
STUDIES["reduced"] = ("a small one, which a test repeats", "indexed", 12, 0,
                      ["full", BEST, FOLLOW, *TIMINGS, "zoomr_mass", "quest@128", "sentence_kv@128",
                       "sentence_box@128", "oracle"], [])


PASSAGES = 4    # of each text; of another seed than those on which numbers of policies were chosen
TEXT_POLICIES = ["full"] + [f"{name}@{n}" for n in (256, 512, 1024)
                            for name in ("window", "sentence_box", "sentence_kv", "quest")]
TEXT_POLICIES += ["window@2048", "window@4096", "sentence_box@1024+sentences.longest=16",
                  "sentence_box@1024+pooled_score.per=layer+pooled_score.over_group=mean", f"sentence_kv@1024+{ALL}",
                  f"sentence_kv@1024+zones.recent=512+sentences.longest=8+pooled_score.over_group=max+{ALL}",
                  f"sentence_kv_published@1024+{ALL}", "snapkv@1024", "arkvale@1024+zones.dense_layers=0"]


def begins(policy, rows):
    """No rows are named, or this policy is one of them, with any settings."""
    return not rows or any(policy == row or policy.startswith((row + "+", row + "@")) for row in rows)


def command(name, options, resume):
    _, checkpoints, problems, free, policies, more = STUDIES[name]
    models = ",".join(f"examples/studies/ledger/checkpoints/{checkpoint}" for checkpoint in checkpoints.split(","))
    chosen = [policy for policy in policies if begins(policy, options.rows)]
    return ["ledger", "--model", models, "--problems", str(problems), "--free-problems", str(free), "--policies",
            ",".join(chosen), "--jobs", str(options.jobs), "--resume", resume, "--json", *more]


def run(name, options):
    """Runs what is missing of a study, or of some of its rows; returns their runs."""
    program = os.path.join(options.build, "bin/zoomr-eval")
    resume = os.path.join(options.build, "evidence", f"{name}.jsonl")
    os.makedirs(os.path.dirname(resume), exist_ok=True)
    print(f"{name}: {STUDIES[name][0]}", flush=True)
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([program, *command(name, options, resume)], cwd=ROOT, env=environment, check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)["runs"]


def measured_now():
    return {**results_page.measured_now(), "machine": platform.machine()}


def run_perplexity(options):
    """All policies, or some, in all contexts on all passages; the file of rows keeps what is finished."""
    resume = os.path.join(options.build, "evidence", "perplexity.jsonl")
    os.makedirs(os.path.dirname(resume), exist_ok=True)
    texts = ",".join(map(os.path.abspath, options.texts))
    chosen = [policy for policy in TEXT_POLICIES if begins(policy, options.rows)]
    windows = {"window@" + policy.split("@")[1].split("+")[0] for policy in chosen if "@" in policy}
    policies = [policy for policy in TEXT_POLICIES if policy in chosen or policy == "full" or policy in windows]
    command = ["perplexity", "--model", "examples/studies/bytes/checkpoint", "--text", texts, "--contexts", "4096,16384",
               "--passages", str(PASSAGES), "--seed", "2", "--policies",
               ",".join(policies), "--resume", resume, "--json"]
    done = subprocess.run([os.path.join(options.build, "bin/zoomr-eval"), *command], cwd=ROOT, check=True,
                          env=dict(os.environ, OPENBLAS_NUM_THREADS="1"), stdout=subprocess.PIPE)
    found = json.loads(done.stdout)
    return {"what": "long text after a dense prompt", "checkpoint": "bytes", **measured_now(), "groups": found["groups"]}


def place_of(run):
    """Which row of a study, or of the perplexity's groups."""
    return tuple(run.get(key) for key in ("policy", "settings", "budget", "context", "task", "checkpoint"))


def number_in(policies, policy):
    """Its place among them; behind all where it is no longer run, but was measured."""
    return policies.index(policy) if policy in policies else len(policies)


def joined(old, new, order):
    """The old rows, of which those that were run again, or are new, say when; in the order that `order` gives."""
    again = {place_of(row): {**row, **measured_now()} for row in new}
    rows = [again.pop(place_of(row), row) for row in old] + list(again.values())
    return sorted(rows, key=order)


def load():
    return results_page.load("evidence.json", {"best": BEST, "studies": {}})


def save(document):
    document["best"] = BEST
    document["studies"] = {name: document["studies"][name] for name in STUDIES if name in document["studies"]}
    results_page.write_whole(os.path.join(RESULTS, "evidence.json"), json.dumps(document, indent=1) + "\n")


def percent(run, key, interval=True):
    if key not in run:
        return "–"
    text = f"{100 * run[key]:.1f}"
    return text + " ({:.1f} – {:.1f})".format(*(100 * x for x in run[key + "_interval"])) if interval else text


def cell(run, key, interval):
    return percent(run, key, interval) if interval is not None else f"{run[key]:.0f}"


WORDS = [("+fixed_pages.longest=32+zones.sinks=4+zones.recent=56", ", blocks of 32, window 56"),
         ("+" + SENTENCES, ", r = ∞, sentences ≤ 12, best head"), ("+" + ALL, ", r = ∞"),
         ("+pooled_score.over_group=max", ", best head"),
         ("+sentences.longest=", ", sentences ≤ "), ("+fixed_pages.longest=", ", pages of "),
         ("+pooled_score.per=layer+pooled_score.over_group=mean", ", mean of the layer's heads"),
         ("+zones.dense_layers=0", ""),
         ("+boundaries.at_most=1", ", at every token"),
         ("+boundaries.second_pass=true", ", asked again"), ("+boundaries.second_pass=false", ", not asked again"),
         ("+thoughts.own_cue=true", ", by own keys"), ("+head_votes.k=", ", k = "), ("+top_k.segments=", ", c = "),
         ("+head_mass.per=layer", ", each layer alone"), ("+head_mass.per=kv_head", ", each KV head alone"),
         ("+on_drift.cosine=", ", cosine "), ("+zones.recent=", ", window "), ("+zones.prompt=false", ", prompt as segments"), ("+zones.open=", ", open ")]


def label(policy):
    """`name@budget` and its settings in words."""
    for setting, words in WORDS:
        policy = policy.replace(setting, words)
    name, *rest = policy.split(", ")
    return ", ".join([f"`{name}`", *rest])


def kib(count):
    return f"{count / 1024:,.0f}"


def device_and_host(run):
    """KiB on the device at the peak, and on the host: all details, where the device cannot hold them."""
    peak, details = run["resident_bytes_peak"], run["bytes"]["details"]
    return kib(peak), kib(details) if details > peak else "–"


def rows_of(lines):
    """Markdown from rows of cells, the first of them the heads."""
    lines = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join(lines[:1] + ["|" + "---|" * (lines[0].count("|") - 1)] + lines[1:])


def ledger_table(study, full):
    runs = study["runs"]
    if "fine_accuracy" not in runs[0]:
        lines = [["policy", "task", "answers % (95 %)", "attended", "device KiB", "host KiB", "full : device"]]
        for r in runs:
            if r["policy"] == "full":
                full = r["resident_bytes_peak"]    # with the questions of this task
            lines.append([label(r["policy"]), f"`{r['task']}`", percent(r, "answer_accuracy"),
                          f"{r['attended_tokens_mean']:.0f}", *device_and_host(r), f"{full / r['resident_bytes_peak']:.2f}"])
        return rows_of(lines)
    columns = [("fine % (95 %)", "fine_accuracy", True), ("coarse", "coarse_accuracy", False),
               ("answers", "answer_accuracy", False), ("exact, forced", "exact_forced", False),
               ("fine, free (95 %)", "fine_accuracy_free", True), ("exact, free (95 %)", "exact_match", True),
               ("found", "found", False), ("zooms", "zooms_mean", None), ("mass captured", "captured_mass_mean", False)]
    columns = [c for c in columns if any(c[1] in r for r in runs)]
    several = len({r["checkpoint"] for r in runs}) > 1    # and so of several sizes
    lines = [["model"] * several + ["policy", *(c[0] for c in columns), "attended", "device KiB", "host KiB"]
             + ["full : device"] * (not several)]
    for r in runs:
        lines.append([f"`{r['checkpoint']}`"] * several
                     + [label(r["policy"]), *(cell(r, key, interval) for _, key, interval in columns),
                        f"{r['attended_tokens_mean']:.0f}", *device_and_host(r)]
                     + [f"{full / r['resident_bytes_peak']:.2f}"] * (not several))
    return rows_of(lines)


def text_policy(group):
    """As TEXT_POLICIES names it."""
    settings = "".join("+" + setting for setting in group["settings"].split())
    return group["policy"] + (f"@{group['budget']}" if group["budget"] else "") + settings


def perplexity_table(study):
    lines = [["policy", "bits/byte", "perplexity/word", "perplexity beyond full, % (95 %)", "gap closed, %", "attended",
              "device KiB", "host KiB"]]
    for g in study["groups"]:
        if g["context"] != study["shown"]:
            continue
        name = text_policy(g)
        beyond = 100 * g["perplexity_beyond_full"]
        width = 100 * math.log(2) * g["bits_per_byte_beyond_full_95"]
        run = {"resident_bytes_peak": g["device_bytes_peak"], "bytes": g["bytes"]}
        closed = "–" if g["gap_closed"] is None or g["policy"] == "window" else f"{100 * g['gap_closed']:.0f}"
        dearer = "–" if g["policy"] == "full" else f"{beyond:+.2f} ({beyond - width:+.2f} – {beyond + width:+.2f})"
        lines.append([label(name), f"{g['bits_per_byte']:.4f}", f"{g['perplexity_per_word']:.0f}", dearer, closed,
                      f"{g['attended_tokens_mean']:.0f}", *device_and_host(run)])
    return rows_of(lines)


def dated(extent, study, rows):
    """How much was measured, at which commit and when; also of rows that were run again. rows: (policy, row)."""
    again = dict.fromkeys(f"{label(policy)}: {row['commit']}, {row['date']}" for policy, row in rows if "date" in row)
    return "; ".join([f"{extent}, commit {study['commit']}, {study['date']}", *again]) + ".\n\n"


def extent_of(study):
    return f"{study['problems']} problems" + f", {study['free_problems']} of them free too" * (study["free_problems"] > 0)


def tables_of(document):
    """Markdown of each table, by the name that pages have for it."""
    studies = document["studies"]
    full = next(r["resident_bytes_peak"] for r in studies["headline"]["runs"] if r["policy"] == "full")
    tables = {name: dated(extent_of(study), study, [(r["policy"], r) for r in study["runs"]]) + ledger_table(study, full)
              for name, study in studies.items()}
    for context in {g["context"] for g in document.get("perplexity", {"groups": []})["groups"]}:
        study = dict(document["perplexity"], shown=context)
        shown = [g for g in study["groups"] if g["context"] == context]
        tables[f"perplexity-{context}"] = dated(f"{shown[0]['passages']} passages", study,
                                                [(text_policy(g), g) for g in shown]) + perplexity_table(study)
    return tables


# The figure: at most eight curves each, BEST in all of them.
PANELS = {
    "thoughts are found again": ["zoomr_mass", "zoomr_follow", "zoomr_box", "zoomr_cover", "zoomr_one_pass",
                                 "zoomr_second_pass"],
    "sentences or pages are found again": ["sentence_box", "quest", "shadowkv", "infllm"],
    "tokens are evicted for good": ["sentence_kv", "h2o", "r_kv", "raas", "window"],
    "summaries alone, and controls": ["summary_only", "lightthinker", "summaries_apart", "oracle", "random_c"],
}
# Okabe and Ito's: told apart by everybody, and in print.
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#7F7F7F"]


def curves_of(document):
    """Points (bytes, accuracy, interval) of each policy, whatever its budget; and the run of full attention."""
    curves, full = {}, None
    for name in ("headline", "more", "memory"):
        for r in document["studies"].get(name, {"runs": []})["runs"]:
            if "fine_accuracy" not in r:
                continue
            if r["policy"] == "full":
                full = full or r
                continue
            curve = r["policy"].split("@")[0].split("+")[0]
            point = (r["resident_bytes_peak"], 100 * r["fine_accuracy"], [100 * x for x in r["fine_accuracy_interval"]])
            curves.setdefault(curve, []).append(point)
    missing = sorted(set(curves) - {BEST}.union(*PANELS.values()))
    if missing:
        sys.exit(f"PANELS has no place for {', '.join(missing)}")
    return curves, full


def label_ends(axes, ends):
    """Names curves where they end, so that no two names touch. ends: (x, y, name, colour)."""
    ends = sorted(ends, key=lambda end: end[1])
    heights = [y for _, y, _, _ in ends]
    for i in range(1, len(ends)):
        heights[i] = max(heights[i], heights[i - 1] + 6)
    heights[-1] = min(heights[-1], 104)
    for i in reversed(range(len(ends) - 1)):
        heights[i] = min(heights[i], heights[i + 1] - 6)
    for (x, y, name, colour), height in zip(ends, heights):
        axes.annotate(name, (x, y), (1.06, height), textcoords=("axes fraction", "data"), color=colour, fontsize=8,
                      va="center", annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.6})


def draw(document):
    """Accuracy against bytes, one curve for each policy: evidence.svg and evidence.png."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    curves, full = curves_of(document)
    plt.rcParams["svg.hashsalt"] = "zoomr"
    figure, grid = plt.subplots(2, 2, figsize=(10.5, 7.6), sharex=True, sharey=True)
    for axes, (title, names) in zip(grid.flat, PANELS.items()):
        ends = []
        for number, name in enumerate([BEST] + [n for n in names if n in curves]):
            x, y, interval = zip(*sorted(curves[name]))
            x = [b / full["resident_bytes_peak"] for b in x]
            error = [[v - low for v, (low, _) in zip(y, interval)], [high - v for v, (_, high) in zip(y, interval)]]
            colour = "black" if name == BEST else COLOURS[number - 1]
            axes.errorbar(x, y, error, marker="soD^vPX"[number], markersize=4, capsize=2, color=colour,
                          linewidth=2.5 if name == BEST else 1.2, zorder=3 if name == BEST else 2)
            ends.append((x[-1], y[-1], name, colour))
        axes.axhline(100 * full["fine_accuracy"], color="black", linewidth=0.8, linestyle="--")
        axes.set(xscale="log", ylim=(-3, 106), title=title)
        axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0], ["1/20", "1/10", "1/5", "1/2", "1"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        label_ends(axes, ends)
    grid[0][0].annotate("full", (0.045, 100), (0, -9), textcoords="offset points", fontsize=8)
    for axes in grid[1]:
        axes.set_xlabel("resident bytes at the peak, as a share of the full cache's")
    for axes in grid[:, 0]:
        axes.set_ylabel("fine fetches right, % (95 %)")
    figure.suptitle("LEDGER M: accuracy against memory")
    figure.tight_layout()
    figure.savefig(os.path.join(RESULTS, "evidence.svg"), metadata={"Date": None})
    figure.savefig(os.path.join(RESULTS, "evidence.png"), dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", help="directory of a Release build")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", help="studies of LEDGER, separated by commas; default: all")
    parser.add_argument("--rows", type=lambda text: text.split(","), default=[],
                        help="policies, separated by commas: only their rows are run, the others stay")
    parser.add_argument("--texts", nargs="+", help="held-out texts: measures their perplexity, not LEDGER")
    parser.add_argument("--draw", action="store_true", help="run nothing")
    given = parser.parse_args()
    if not given.draw and not given.build:
        parser.error("--build is missing: name the directory of a Release build, or give --draw")
    given.build = os.path.abspath(given.build or ".")
    everything = load()
    if given.draw:
        pass
    elif given.texts:
        found = run_perplexity(given)
        everything = load()
        if given.rows:
            changed = [g for g in found["groups"] if begins(g["policy"], given.rows)]
            found = {**everything["perplexity"],
                     "groups": joined(everything["perplexity"]["groups"], changed,
                                      lambda g: (g["context"], number_in(TEXT_POLICIES, text_policy(g))))}
        everything["perplexity"] = found
    else:
        for name in (given.only.split(",") if given.only else STUDIES):
            what, checkpoint, problems, free, _, more = STUDIES[name]
            if given.rows and not any(begins(policy, given.rows) for policy in STUDIES[name][4]):
                continue
            runs = run(name, given)
            everything = load()
            if given.rows and name in everything["studies"]:
                study = everything["studies"][name]
                tasks = list(dict.fromkeys(row["task"] for row in study["runs"]))
                models = checkpoint.split(",")
                study["runs"] = joined(study["runs"], runs, lambda row: (models.index(row["checkpoint"]), tasks.index(row["task"]),
                                                                         number_in(STUDIES[name][4], row["policy"])))
                save(everything)
                continue
            everything["studies"][name] = {"what": what, "checkpoint": checkpoint, "problems": problems, "free_problems": free,
                                           "options": more, **measured_now(), "runs": runs}
            save(everything)
    save(everything)
    for page in PAGES:
        results_page.fill(page, tables_of(everything))
    draw(everything)
