# SPDX-License-Identifier: Apache-2.0
"""Runs every study behind docs/results/evidence.md, joins them in evidence.json, and draws the figure.

    python3 evidence.py --build BUILD [--jobs 2] [--only headline,sweeps]     runs what is missing, then joins
    python3 evidence.py --build BUILD --draw                                  only tables and figure

BUILD is a Release build of the project; finished parts are kept in BUILD/evidence, so that it can be stopped at any time.
"""
import argparse
import datetime
import json
import os
import platform
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.normpath(os.path.join(HERE, "../../.."))
RESULTS = os.path.join(ROOT, "docs/results")
BEST = "zoomr_focus"

ALL = "observed_attention.tokens=unlimited"                # r = infinity
SENTENCES = "sentences.longest=12+pooled_score.over_group=max+" + ALL
# For long prompts: 156 attended tokens are 1/16 of the context, 344 of a window have the bytes of sentence_box@156.
LONG = ["full", "sentence_box@156", f"sentence_kv@156+{SENTENCES}", "quest@156", "quest@156+fixed_pages.longest=32",
        "arkvale@156+zones.dense_layers=0", "shadowkv@156", "infllm@156+fixed_pages.longest=32", "snapkv@156", "snapkv@344",
        "h2o@344", "window@156", "window@344"]


def each(policy, field, values):
    return [f"{policy}+{field}={value}" for value in values]


# name: (what it shows, checkpoint, problems, of these also written freely, policies, more options)
STUDIES = {
    "headline": ("every policy at its own size, trained for zooming", "indexed-m", 500, 40,
                 ["full", BEST, "oracle", "zoomr", "window@28", "summaries_apart"], []),
    "plain": ("the same on the plainly trained model", "plain-m", 200, 0, ["full", BEST, "zoomr", "zoomr_mass", "oracle"], []),
    "more": ("the other policies", "indexed-m", 100, 0,
             ["zoomr_mass", "summary_only", "random_c", "window@360", "quest@360", "zoomr_box"], []),
    "sweeps": ("one option at a time, plainly trained", "plain-m", 40, 0,
               each("zoomr", "head_votes.k", [1, 3, 4]) + each("zoomr", "best_segments.segments", [1, 3, 4])
               + ["zoomr", "zoomr+boundaries.ask_again=true", "zoomr+thoughts.own_cue=true",
                  "zoomr+boundaries.ask_again=true+thoughts.own_cue=true",
                  "zoomr_mass", "zoomr_mass+boundaries.ask_again=false", "zoomr_mass+thoughts.own_cue=true",
                  "zoomr_mass+thoughts.own_cue=true+best_segments.segments=1", "zoomr_box", "random_c"]
               + each("zoomr_mass+head_mass.per=layer", "best_segments.segments", [1, 2])
               + each(BEST, "head_mass.per", ["kv_head"]) + each(BEST, "best_segments.segments", [2, 4])
               + each(BEST, "zones.recent", [1, 8, 96, 192]), []),
    "segments": ("the prompt as segments too", "indexed-m", 100, 0,
                 [f"{name}+zones.prompt=false" for name in (BEST, "zoomr_mass", "zoomr")], ["--delimiters", "; <thought>"]),
    "pointers": ("a refresh at each pointer's end too", "indexed-m", 100, 0, [BEST, "zoomr_mass", "zoomr"],
                 ["--delimiters", "; ]"]),
    "mass": ("the attention mass that is captured", "plain-m", 4, 0,
             ["full", BEST, "zoomr_mass", "zoomr", "random_c", "quest@360", f"sentence_kv@360+{SENTENCES}"], ["--audit"]),
    "permuted": ("each line of a thought shows another line's value", "indexed-m", 40, 0, ["full", BEST],
                 ["--task", "permuted"]),
    "memory": ("accuracy against bytes", "indexed-m", 40, 0,
               ["full"] + [f"window@{n}" for n in (64, 128, 512, 1024)] + [f"quest@{n}" for n in (64, 128, 512)]
               + [f"sentence_kv@{n}+{SENTENCES}" for n in (96, 160, 320, 640)]
               + each("zoomr", "best_segments.segments", [1, 2, 4, 8])
               + each("zoomr_mass", "best_segments.segments", [1, 4]) + each(BEST, "best_segments.segments", [2, 4])
              + [f"sentence_box@{n}" for n in (96, 160, 320, 640)] + [f"h2o@{n}" for n in (256, 512, 1024)]
              + [f"r_kv@{n}" for n in (512, 1024)] + [f"raas@{n}" for n in (256, 512)]
              + ["lightthinker", "infllm@256+fixed_pages.longest=32", "shadowkv@256"], []),
    "turns": ("long prompts: the trace is the prompt, questions come one by one", "plain-m", 100, 0,
              LONG + ["sentence_box@156+pooled_score.per=layer", "sentence_box@156+sentences.longest=8",
                      "sentence_kv@156+sentences.longest=24", "sentence_kv@156+sentences.longest=24+" + ALL,
                      "sentence_kv_published@156+sentences.longest=24+" + ALL],
              ["--task", "turns", "--delimiters", "; </thought> </summary>"]),
    "listed": ("long prompts: the questions are in the prompt", "indexed-m", 40, 0,
               LONG, ["--task", "single,multi_query,multi_value", "--delimiters", "; </thought> </summary>"]),
}


# small enough for a test: it fails when a policy gets worse than its interval here
STUDIES["reduced"] = ("a small one, which a test repeats", "indexed", 12, 0,
                      ["full", BEST, "zoomr", "zoomr_mass", "quest@128", "sentence_kv@128", "sentence_box@128", "oracle"], [])


def command(name, options, resume):
    _, checkpoint, problems, free, policies, more = STUDIES[name]
    return ["ledger", "--model", f"examples/decode/ledger/checkpoints/{checkpoint}", "--problems", str(problems),
            "--free-problems", str(free), "--policies", ",".join(policies), "--jobs", str(options.jobs), "--resume", resume,
            "--json", *more]


def run(name, options):
    """Runs what is missing of a study; returns its runs."""
    program = os.path.join(options.build, "bin/zoomr-eval")
    resume = os.path.join(options.build, "evidence", f"{name}.jsonl")
    os.makedirs(os.path.dirname(resume), exist_ok=True)
    print(f"{name}: {STUDIES[name][0]}", flush=True)
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="1")
    done = subprocess.run([program, *command(name, options, resume)], cwd=ROOT, env=environment, check=True,
                          stdout=subprocess.PIPE)
    return json.loads(done.stdout)["runs"]


def join(found):
    """Writes evidence.json: what was found replaces what stood there, study by study."""
    path = os.path.join(RESULTS, "evidence.json")
    document = {"best": BEST, "studies": {}}
    if os.path.exists(path):
        with open(path) as f:
            document["studies"] = json.load(f)["studies"]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    for name, runs in found.items():
        what, checkpoint, problems, free, _, more = STUDIES[name]
        document["studies"][name] = {
            "what": what, "checkpoint": checkpoint, "problems": problems, "free_problems": free, "options": more,
            "commit": commit.stdout.strip(), "date": datetime.date.today().isoformat(), "machine": platform.machine(),
            "runs": runs}
    document["studies"] = {name: document["studies"][name] for name in STUDIES if name in document["studies"]}
    with open(path, "w") as f:
        f.write(json.dumps(document, indent=1) + "\n")
    return document


def percent(run, key, interval=False):
    if key not in run:
        return "–"
    text = f"{100 * run[key]:.1f}"
    return text + " ({:.1f} – {:.1f})".format(*(100 * x for x in run[key + "_interval"])) if interval else text


def tables(document):
    """Prints a Markdown table for each study."""
    for name, study in document["studies"].items():
        full = next((r["resident_bytes_peak"] for r in study["runs"] if r["policy"] == "full"), None)
        if full is None:
            full = next(r["resident_bytes_peak"] for r in document["studies"]["headline"]["runs"] if r["policy"] == "full")
        print(f"\n### {name}: {study['what']} (`{study['checkpoint']}`, {study['problems']} problems)\n")
        print("| policy | task | fine % (95 %) | coarse | answers | fine, free | exact | found | attended | peak KiB | full/peak |")
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        for r in study["runs"]:
            cells = [f"`{r['policy']}`", r["task"], percent(r, "fine_accuracy", True), percent(r, "coarse_accuracy"),
                     percent(r, "answer_accuracy", "turns" == r["task"] or "m" == r["task"][0] or "single" == r["task"]),
                     percent(r, "fine_accuracy_free"), percent(r, "exact_match"), percent(r, "found"),
                     f"{r['attended_tokens_mean']:.0f}", f"{r['resident_bytes_peak'] / 1024:.0f}",
                     f"{full / r['resident_bytes_peak']:.2f}"]
            print("| " + " | ".join(cells) + " |")


def draw(document):
    """Accuracy against bytes, one curve for each policy: evidence.svg and evidence.png."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    curves = {}
    full = None
    for name in ("headline", "more", "memory"):
        for r in document["studies"].get(name, {"runs": []})["runs"]:
            if "fine_accuracy" not in r:
                continue
            if r["policy"] == "full":
                full = full or r
                continue
            curve = r["policy"].split("@")[0].split("+")[0]
            curves.setdefault(curve, {})[r["resident_bytes_peak"]] = (100 * r["fine_accuracy"],
                                                                      [100 * x for x in r["fine_accuracy_interval"]])
    plt.rcParams["svg.hashsalt"] = "zoomr"
    figure, axes = plt.subplots(figsize=(8, 4.8))
    for curve, points in sorted(curves.items()):
        x = sorted(points)
        y = [points[b][0] for b in x]
        error = [[y[i] - points[b][1][0] for i, b in enumerate(x)], [points[b][1][1] - y[i] for i, b in enumerate(x)]]
        axes.errorbar([b / full["resident_bytes_peak"] for b in x], y, error, marker="o", markersize=4, capsize=2,
                      linewidth=2.5 if curve == BEST else 1.2, label=curve)
    axes.axhline(100 * full["fine_accuracy"], color="black", linewidth=0.8, linestyle="--", label="full")
    axes.set(xscale="log", xlabel="resident bytes at the peak, as a share of the full cache's", ylim=(-3, 103),
             ylabel="fine fetches right, % (95 % intervals)", title="LEDGER M: accuracy against memory")
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1.0], ["1/20", "1/10", "1/5", "1/2", "1"])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.tight_layout()
    figure.savefig(os.path.join(RESULTS, "evidence.svg"), metadata={"Date": None})
    figure.savefig(os.path.join(RESULTS, "evidence.png"), dpi=110)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", default=",".join(STUDIES), help="studies, separated by commas")
    parser.add_argument("--draw", action="store_true", help="run nothing")
    given = parser.parse_args()
    given.build = os.path.abspath(given.build)
    for study in [] if given.draw else given.only.split(","):
        join({study: run(study, given)})
    with open(os.path.join(RESULTS, "evidence.json")) as f:
        everything = json.load(f)
    tables(everything)
    draw(everything)
