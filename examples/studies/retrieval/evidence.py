# SPDX-License-Identifier: Apache-2.0
"""Runs the studies of SmolLM2 behind docs/results, joins them in pretrained.json, fills in tables, draws the figure.

    python3 evidence.py --build BUILD --model DIR --learn MIDDLEMARCH.txt [--weights all,notes]     learns weights
    python3 evidence.py --build BUILD --model DIR --text WAR_AND_PEACE.txt [--only notes_12,keys]   measures with them
    python3 evidence.py --build BUILD --model DIR --prose MIDDLEMARCH.txt                            the other novel
    python3 evidence.py --build BUILD --model DIR --lora MERGED --text WAR_AND_PEACE.txt             after a LoRA
    python3 evidence.py --draw                                                        only tables and figure

BUILD is a Release build of the project; DIR is what ../pretrained/get.py smollm2 makes, MERGED what
../pretrained/lora.py makes of it. Finished parts are kept in BUILD/pretrained: it can be stopped at any time. Weights
stay there too. Those of all tasks, which is not DIR/voters.json, are what policies without another name are measured
with.
"""
import argparse
import concurrent.futures
import json
import math
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../evaluate"))
from results_page import RESULTS, fill, load as known, markdown, measured_now, write_whole  # noqa: E402

PAGES = ("smollm2.md", "several.md", "voters.md", "needle.md", "perplexity.md", "lora.md")

MARKS = "<repo_name>,<reponame>,<file_sep>,<filename>"

# Which problems weights are learnt on: tasks, tokens.
WEIGHTS = {
    "all": ("notes,chain,keys,needle", "700,1500,2500"),
    "notes": ("notes", "700,1500,2500"),
    "sentences": ("keys,needle", "700,1500,2500"),
    "short": ("notes,chain,keys,needle", "700"),
    "repeated": ("repeated", "700"),
    "long": ("notes,chain,keys,needle,keys@4000,keys@7500,needle@7500", "700,1500,2500"),
}
LEARNT_SEED, LEARNT_PROBLEMS = 11, 14

CONTROLS = ["full", "oracle", "random"]
VOTERS = "zoomr_voters"
SHARE = "+top_p.share=0.7"
SEVERAL = "+top_p.share=0.9999999+top_p.segments=8"
ROUNDED = "+voter_keys=q8_0"
SENTENCE_KV = ["sentence_kv@128", "sentence_kv_published@128", "sentence_box@128"]


def with_weights(policy, *names):
    return [f"{policy}+voters={name}" for name in names]


NOTE_VOTERS = with_weights(VOTERS, "notes") + with_weights(VOTERS + SHARE, "notes")
NOTE_VOTERS.append(NOTE_VOTERS[-1] + ROUNDED)

# name: (tasks, size, problems, policies); +voters=NAME are weights of WEIGHTS, the others those of all
STUDIES = {
    "notes_24": ("notes", "--notes 24", 200, [*CONTROLS, VOTERS, VOTERS + SHARE, *NOTE_VOTERS]),
    "notes_12": ("notes", "--notes 12", 200,
                 [*CONTROLS, "zoomr_one_pass+zones.prompt=false", VOTERS, VOTERS + SHARE, VOTERS + "+top_p.share=0.5",
                  *NOTE_VOTERS]),
    "needle": ("needle", "--tokens 1024", 200, ["full", "oracle", *SENTENCE_KV, "sentence_voters"]),
    "keys": ("keys", "--tokens 1024", 200,
             [*CONTROLS, "quest@256", "sentence_box@256", "sentence_voters", "sentence_voters" + SHARE]),
    "chain": ("chain", "--notes 12", 80,
              ["full", "oracle", VOTERS, VOTERS + "+top_p.share=0.999", VOTERS + "+head_posterior.queries=8",
               *with_weights(VOTERS, "long"), *with_weights(VOTERS + "+head_posterior.queries=8", "long", "notes")]),
    "values": ("values", "--tokens 1024", 40,
               ["full", "oracle", "sentence_voters", "sentence_voters" + SEVERAL]),
    "longer": ("keys,needle", "--tokens 2048", 40,
               ["full", "oracle", "quest@256", *SENTENCE_KV[:2], "sentence_voters",
                *with_weights("sentence_voters", "long")]),
    "long": ("keys,needle", "--tokens 4096", 16,
             ["full", "oracle", "quest@256", "sentence_voters", *with_weights("sentence_voters", "long")]),
    "longest": ("keys,needle", "--tokens 8000", 8,
                ["full", "oracle", "quest@256", "sentence_voters", "sentence_voters" + ROUNDED,
                 *with_weights("sentence_voters", "long")]),
    # Of the first of these problems more.
    "notes_more": ("notes", "--notes 12", 40,
                   [VOTERS + ROUNDED, VOTERS + SHARE + ROUNDED,
                    *with_weights(VOTERS, "notes", "sentences", "short", "repeated", "long"),
                    *with_weights(VOTERS + SHARE, "long")]),
    "keys_more": ("keys", "--tokens 1024", 40,
                  ["window@512", "sentence_kv@256", "exact@256", "random_eviction@256",
                   "sentence_voters" + ROUNDED,
                   *with_weights("sentence_voters", "notes", "sentences", "short", "repeated", "long")]),
}
# Before and after a LoRA: the presets that choose by summaries, the prompt segmented too.
BY_SUMMARIES = [f"zoomr_{preset}+zones.prompt=false"
                for preset in ("one_pass", "mass", "focus", "focus+boundaries.at_most=1")]
STUDIES["untrained_notes_12"] = ("notes", "--notes 12", 24, ["full", "oracle", *BY_SUMMARIES, VOTERS])
LORA = {
    "lora_notes_12": STUDIES["untrained_notes_12"],
    "lora_notes_24": ("notes", "--notes 24", 24, ["full", "oracle", BY_SUMMARIES[0], VOTERS]),
    "lora_keys": ("keys", "--tokens 1024", 12, ["full", "oracle", "sentence_voters"]),
    "lora_needle": ("needle", "--tokens 1024", 12, ["full", "oracle", "sentence_voters"]),
}
STUDIES.update(LORA)
# Of the novel that weights were learnt on, other problems.
OTHER = {
    "other_notes_12": ("notes", "--notes 12", 40, ["full", "oracle", VOTERS]),
    "other_keys": ("keys", "--tokens 1024", 40, ["full", "oracle", "sentence_voters"]),
    "other_needle": ("needle", "--tokens 1024", 40, ["full", "oracle", "sentence_voters"]),
}
STUDIES.update(OTHER)
SEED = 77
NOTES = ("notes_12", "notes_24")
LENGTHS = ("keys", "needle", "longer", "long", "longest")

# What is drawn, and stands in the table of lengths. Okabe and Ito's: told apart by everybody, and in print.
COLOURS = {"full": "black", "oracle": "#7F7F7F", "quest@256": "#E69F00", "sentence_voters": "#0072B2"}

# Perplexity: one passage, of which the last tokens are foretold one by one.
CONTEXT = 8192
BOXES = [f"{policy}@{budget}" for budget in (512, 256, 1024) for policy in ("window", "quest", "arkvale", "sentence_box")]
WIDER = ["sentence_voters+zones.recent=256", "sentence_voters+zones.recent=448",
         "sentence_voters+zones.recent=256+top_p.share=0.99+top_p.segments=12"]
# name: (which text, tokens foretold, policies)
FORETOLD = {
    "perplexity": ("text", 512,
                   ["full", *BOXES, "exact@512", "exact@256", "exact@1024", "sentence_kv@512", "snapkv@512", "h2o@512",
                    "sentence_voters", *WIDER]),
    "perplexity_other": ("prose", 256,
                         ["full", "window@512", "quest@512", "arkvale@512", "sentence_box@512", "window@256",
                          "sentence_box@256", "window@1024", "sentence_box@1024", "snapkv@512", "sentence_voters",
                          WIDER[0]]),
}


def kept(options, name):
    folder = os.path.join(options.build, "pretrained")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, name)


def run(options, name, *arguments, threads=1):
    """What zoomr-eval prints."""
    environment = dict(os.environ, OPENBLAS_NUM_THREADS=str(threads))
    with open(kept(options, f"{name}.out"), "w+") as out, open(kept(options, f"{name}.log"), "w+") as log:
        status = subprocess.call([os.path.join(options.build, "bin/zoomr-eval"), *arguments], env=environment,
                                 stdout=out, stderr=log)
        log.seek(0)
        out.seek(0)
        if status:
            sys.exit(f"evidence.py: {name} failed with {status}: {log.read()[-1000:]}")
        return out.read()


def novel_of(name):
    """Which option names the text of a study."""
    return FORETOLD[name][0] if name in FORETOLD else "prose" if name in OTHER else "text"


def voters(options, weights):
    return kept(options, f"voters.{weights}.json")


def learn(options, weights):
    tasks, tokens = WEIGHTS[weights]
    print(f"weights of {weights}", flush=True)
    run(options, f"weights_{weights}", "heads", "--model", options.model, "--text", options.learn, "--seed",
        str(LEARNT_SEED), "--tasks", tasks, "--tokens", tokens, "--marks", MARKS, "--problems", str(LEARNT_PROBLEMS),
        "--resume", kept(options, "heads.jsonl"), "--out", voters(options, weights), threads=options.jobs)
    with open(voters(options, weights)) as file:
        return {**measured_now(), **json.load(file)}


def measure(options, name):
    tasks, size, problems, policies = STUDIES[name]
    model = options.lora if name in LORA else options.model
    named = [weights for weights in WEIGHTS if any(f"+voters={weights}" in policy for policy in policies)]
    weights = [voters(options, "all"), *(f"{one}={voters(options, one)}" for one in named)]
    text = run(options, name, "retrieval", "--model", model, "--text", getattr(options, novel_of(name)), "--seed",
               str(SEED), "--tasks", tasks, *size.split(), "--marks", MARKS, "--problems", str(problems), "--policies",
               ",".join(policies), "--voters", ",".join(weights), "--json", "--resume", kept(options, f"{name}.jsonl"))
    return {**measured_now(), "rows": json.loads(text)["rows"]}


def foretell(options, name):
    _, scored, policies = FORETOLD[name]
    text = run(options, name, "perplexity", "--model", options.model, "--text", getattr(options, novel_of(name)),
               "--seed", str(SEED), "--contexts", str(CONTEXT), "--tokens", str(scored), "--voters",
               voters(options, "all"), "--passages", "1", "--policies", ",".join(policies), "--json", "--resume",
               kept(options, f"{name}.jsonl"))
    kept_keys = ("tokens", "bits", "block_bits", "attended_mean", "device_peak")
    found = {}
    for row in json.loads(text)["rows"]:
        policy = row["policy"] + (f"@{row['budget']}" if row["budget"] else "")
        policy = "+".join([policy, *row["settings"].split()])
        found[policy] = {"policy": policy, **{k: row[k] for k in kept_keys}}
    return {**measured_now(), "rows": [found[policy] for policy in policies if policy in found]}


def lines_wanted(name):
    """Of the file of what is done, when all is."""
    if name in FORETOLD:
        return len(FORETOLD[name][2]) + 1
    tasks, _, problems, policies = STUDIES[name]
    return len(tasks.split(",")) * problems * len(policies)


def lines_done(options, name):
    try:
        with open(kept(options, f"{name}.jsonl"), "rb") as f:
            return sum(1 for _ in f)
    except FileNotFoundError:
        return 0


def measure_all(options, chosen):
    """So many studies at once, each with one thread; what they say is saved as it comes."""
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        running = {pool.submit(foretell if name in FORETOLD else measure, options, name): name for name in chosen}
        while running:
            done, _ = concurrent.futures.wait(running, timeout=2, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                name = running.pop(one)
                everything = load()
                place = everything if name in FORETOLD else everything["studies"]
                place[name] = one.result()
                save(everything)
                print(f"\r{name}: done".ljust(100), flush=True)
            if sys.stderr.isatty():
                left = [f"{name} {100 * lines_done(options, name) // lines_wanted(name)} %" for future, name in
                        running.items() if future.running()]
                print("\r" + ", ".join(left).ljust(100), end="", file=sys.stderr, flush=True)


def load():
    return known("pretrained.json", {"weights": {}, "studies": {}})


def save(document):
    write_whole(os.path.join(RESULTS, "pretrained.json"), json.dumps(document, indent=1) + "\n")


def percent(share, unit=" %"):
    return f"{100 * share:.{0 if share in (0, 1) else 1}f}{unit}"


NAMES = {"oracle": "what is needed, always read (`oracle`)", "random": "two segments at random"}


def weights_of(policy):
    """The name behind +voters=, or nothing."""
    return policy.partition("+voters=")[2].partition("+")[0]


def name_of(policy):
    name = NAMES.get(policy, f"`{policy}`")
    return f"**{name}**" if "voters" in policy else name


def kind(row):
    """Of problems: how many of which, and how long they are."""
    return f"{row['problems']} of {row['group']}, {row['prompt_tokens_mean']:,.0f} tokens"


def cell_of(row):
    """Right, and all answers where some have several; what choices found; tokens attended; MiB."""
    low, high = row["right_interval"]
    parts = [f"{percent(row['right'], '')} ({100 * low:.0f} – {100 * high:.0f})"]
    if abs(row["answers"] - row["right"]) > 1e-9:
        parts[0] += f", answers {percent(row['answers'], '')}"
    if "found" in row and row["policy"] != "oracle":
        parts.append(f"found {percent(row['found'], '')}")
    return "; ".join([*parts, f"{row['attended_tokens_mean']:,.0f}", f"{row['device_bytes_peak_mean'] / 2**20:.1f}"])


def commits_of(parts):
    """When: of studies, or of weights."""
    return "; ".join(dict.fromkeys(f"commit {part['commit']}, {part['date']}" for part in parts)).capitalize() + "."


def cross(cells, corner):
    """A table of (title of the line, title of the column, what stands there)."""
    lines, columns = (list(dict.fromkeys(cell[axis] for cell in cells)) for axis in (0, 1))
    there = {(line, column): text for line, column, text in cells}
    return markdown([corner, *columns],
                    [[line, *(there.get((line, column), "") for column in columns)] for line in lines])


def policies_table(studies, names, take=lambda row: not weights_of(row["policy"]), dropped="", before=()):
    """Policies, without an option that is in all of them, against problems. Of some studies those rows, of which some
    studies are of before something."""
    known = {name: studies[name] for name in names if name in studies}
    cells = [(name_of(row["policy"].replace(dropped, "")), f"{'before: ' if name in before else ''}{kind(row)}",
              cell_of(row)) for name, study in known.items() for row in study["rows"] if take(row)]
    return cells and f"{commits_of(known.values())}\n\n{cross(cells, 'policy')}"


def lengths_table(studies):
    """Problems of some lengths against policies."""
    known = [studies[name] for name in LENGTHS if name in studies]
    rows = [row for study in known for row in study["rows"] if row["policy"] in COLOURS]
    rows.sort(key=lambda row: (row["group"].split()[0], row["prompt_tokens_mean"], list(COLOURS).index(row["policy"])))
    return rows and f"{commits_of(known)}\n\n" + cross(
        [(kind(row), name_of(row["policy"]), cell_of(row)) for row in rows], "problems")


def weights_table(weights):
    """Tasks, and what weights, against tokens. Of problems that were not learnt on."""
    cells = []
    for name in ("all", "long"):
        for row in weights[name]["not_learnt_on"]:
            task, tokens = row["group"].split()
            cells.append((f"{task}, weights of {name}", int(tokens),
                          f"{percent(row['first'])}, {percent(row['in_set'])}, {row['set']:.1f}"))
    columns = sorted({cell[1] for cell in cells})
    cells.sort(key=lambda cell: columns.index(cell[1]))
    table = cross([(line, f"{tokens:,} tokens", text) for line, tokens, text in cells], "problems")
    return f"{commits_of([weights['all'], weights['long']])}\n\n{table}"


def transfer_table(studies):
    """Problems, and what policy, against what its weights were learnt on: where other weights than those of all were
    tried."""
    names = ["all", "notes", "sentences", "short", "repeated", "long"]
    known = [study for name, study in studies.items() if name not in (*NOTES, *OTHER, *LORA)]
    cells = []
    for study in known:
        for row in study["rows"]:
            weights, (low, high) = weights_of(row["policy"]) or "all", row["right_interval"]
            policy = row["policy"].replace(f"+voters={weights}", "")
            if "found" in row:
                cells.append((f"{row['problems']} of {row['group']}, `{policy}`", weights,
                              f"{percent(row['right'], '')} ({100 * low:.0f} – {100 * high:.0f}); "
                              f"{percent(row['found'], '')}"))
    tried = {line for line, weights, _ in cells if weights != "all"}
    cells.sort(key=lambda cell: names.index(cell[1]))
    cells = [cell for cell in cells if cell[0] in tried]
    return cells and f"{commits_of(known)}\n\n{cross(cells, 'problems, policy')}"


def beyond_full(row, full):
    """How much larger the perplexity of a token is than with full, and its 95 % interval over blocks of tokens."""
    blocks = [a - b for a, b in zip(row["block_bits"], full["block_bits"])]
    count, mean = len(blocks), sum(blocks) / len(blocks)
    deviation = math.sqrt(sum((block - mean) ** 2 for block in blocks) / (count - 1))
    half = (1.96 + 2.46 / (count - 1)) * deviation / math.sqrt(count)  # Student's t
    return [2 ** (bits * count / row["tokens"]) - 1 for bits in (mean, mean - half, mean + half)]


def perplexity_table(found):
    full = next(row for row in found["rows"] if row["policy"] == "full")
    rows = []
    for row in found["rows"]:
        beyond, low, high = (f"{100 * share:+.1f}" for share in beyond_full(row, full))
        rows.append([f"`{row['policy']}`", f"{2 ** (row['bits'] / row['tokens']):.2f}",
                     "–" if row is full else f"{beyond} ({low} – {high})", f"{row['attended_mean']:,.0f}",
                     f"{row['device_peak'] / 2**20:.1f} MiB"])
    blocks = len(full["block_bits"])
    return (f"{full['tokens']} tokens after {CONTEXT - full['tokens']:,}, {blocks} blocks; commit {found['commit']}, "
            f"{found['date']}.\n\n"
            + markdown(["policy", "perplexity", "beyond full, % (95 %)", "attended", "device"], rows))


def tables_of(document):
    studies = document["studies"]

    def rounded(row):
        return ROUNDED in row["policy"] and not weights_of(row["policy"])

    def is_needle_beside_kv(row):
        return (row["group"].startswith("needle")
                and row["policy"] in ("full", "oracle", *SENTENCE_KV, "sentence_voters"))

    tables = {name: policies_table(studies, [name]) for name in ("chain", "values")}
    tables["notes"] = policies_table(studies, NOTES, lambda row: True)
    tables["keys"] = policies_table(studies, ("keys", "keys_more"),
                                    lambda row: not weights_of(row["policy"]) and not rounded(row))
    tables["other"] = policies_table(studies, OTHER)
    tables["lengths"] = lengths_table(studies)
    tables["rounded"] = policies_table(studies, ("notes_more", "keys_more", "longest"), rounded, ROUNDED)
    tables["sentence_kv"] = policies_table(studies, ("needle", "longer"), is_needle_beside_kv)
    tables["lora"] = policies_table(studies, ("untrained_notes_12", *LORA), before=["untrained_notes_12"])
    tables["transfer"] = transfer_table(studies)
    if {"all", "long"} <= document["weights"].keys():
        tables["weights"] = weights_table(document["weights"])
    tables.update((name, perplexity_table(document[name])) for name in FORETOLD if name in document)
    return {name: table for name, table in tables.items() if table}  # what has no rows yet stays as it is


def draw(document):
    """Right answers against the prompt's length: pretrained.svg and pretrained.png."""
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    plt.rcParams["svg.hashsalt"] = "zoomr"
    figure, panels = plt.subplots(1, 2, figsize=(10, 4), sharey=True)
    rows = [row for name in LENGTHS if name in document["studies"] for row in document["studies"][name]["rows"]]
    for axes, task, title in zip(panels, ("keys", "needle"), ("one of four keys", "one needle")):
        for number, (policy, colour) in enumerate(COLOURS.items()):
            points = sorted((row["prompt_tokens_mean"], 100 * row["right"], [100 * x for x in row["right_interval"]])
                            for row in rows if row["policy"] == policy and row["group"].split()[0] == task)
            if not points:
                continue
            x, y, interval = zip(*points)
            error = [[v - low for v, (low, _) in zip(y, interval)], [high - v for v, (_, high) in zip(y, interval)]]
            axes.errorbar([v * (1 + 0.012 * number) for v in x], y, error, marker="soD^"[number], markersize=4, capsize=2,
                          color=colour, label=policy, linewidth=2.5 if "voters" in policy else 1.2)
        axes.set(xscale="log", ylim=(-3, 103), title=title, xlabel="tokens of the prompt")
        axes.set_xticks([1000, 2000, 4000, 8000], ["1,000", "2,000", "4,000", "8,000"])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("right, % (95 %)")
    if panels[0].has_data():
        panels[0].legend(fontsize=8)
    figure.suptitle("SmolLM2-135M: reading less answers more")
    figure.tight_layout()
    figure.savefig(os.path.join(RESULTS, "pretrained.svg"), metadata={"Date": None})
    figure.savefig(os.path.join(RESULTS, "pretrained.png"), dpi=110)


def names(text, known):
    chosen = text.split(",")
    unknown = [name for name in chosen if name not in known]
    if unknown:
        sys.exit(f"evidence.py: there is no {unknown[0]}; there are {', '.join(known)}")
    return chosen


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", help="directory of a Release build")
    parser.add_argument("--model", help="directory of the checkpoint")
    parser.add_argument("--lora", help="directory of the checkpoint with a LoRA: what is measured, beside no other")
    parser.add_argument("--learn", help="novel that weights are learnt on")
    parser.add_argument("--weights", default=",".join(WEIGHTS), help="which, separated by commas; default: all")
    parser.add_argument("--text", help="another novel: what is measured")
    parser.add_argument("--prose", help="the other novel, of which less is measured")
    parser.add_argument("--only", default=",".join([*STUDIES, *FORETOLD]),
                        help="studies, separated by commas; default: all")
    parser.add_argument("--jobs", type=int, default=2, help="studies at once, each on one core; default: 2")
    parser.add_argument("--draw", action="store_true", help="run nothing")
    given = parser.parse_args()
    if not given.draw and not (given.build and given.model and (given.learn or given.text or given.prose)):
        parser.error("name --build, --model, and --learn, --text or --prose; or give --draw")
    if given.learn:
        for chosen in names(given.weights, WEIGHTS):
            table = learn(given, chosen)
            everything = load()
            everything["weights"][chosen] = table
            save(everything)
    measure_all(given, [name for name in names(given.only, [*STUDIES, *FORETOLD])
                        if not given.draw and getattr(given, novel_of(name)) and bool(given.lora) == (name in LORA)])
    everything = load()
    draw(everything)
    tables = tables_of(everything)
    for page in PAGES:
        fill(page, tables)
