# SPDX-License-Identifier: Apache-2.0
"""Runs the study behind docs/results/presets.md: every preset at equal resident bytes. Joins it in presets.json, and
fills in the tables.

    python3 presets.py --build BUILD --model qwen2.5-coder-0.5b=DIR --text WAR_AND_PEACE.txt [--only needle,keys]
    python3 presets.py --draw                                                              only the tables

BUILD is a Release build of the project, DIR what ../pretrained/get.py makes. First budgets are found at which a preset
holds as many bytes as `sentence_voters`, which has none. Finished problems are kept in BUILD/presets: it can be stopped
at any time, and goes on. `calls` and the second passage of `perplexity` are of Python's own standard library.
"""
import json
import os
import sys
import sysconfig
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../evaluate"))
from checkpoint_runs import evaluated, expect_known, options_of, parsed, retrieved  # noqa: E402
from results_page import RESULTS, fill, load, markdown, measured_now, with_interval, write_whole  # noqa: E402

SEED, TOKENS, NOTES = 59, 2000, 24
MODELS = {"qwen2.5-coder-0.5b": "<|quad_start|>,<|quad_end|>,<|box_start|>,<|box_end|>"}
ON_HOST = "+placement.details_on_host=true"
# policy: what its budget is a multiple of
BUDGETED = {"window": 1, "random_eviction": 1, "snapkv": 1, "h2o": 1, "r_kv": 1, "sentence_kv": 1,
            "sentence_kv_published": 1, "sentence_box": 1, "quest": 16, "arkvale": 32}
TRIED = (128, 384)  # budgets whose bytes are measured
FIXED = ["full", "oracle", "exact@256", "sentence_voters"]
CHOOSES = "+zones.prompt=false"  # where the prompt is what is chosen from
OF_THOUGHTS = ["zoomr_voters", *(name + CHOOSES for name in (
    "zoomr_one_pass", "zoomr_second_pass", "zoomr_mass", "zoomr_focus", "summary_only"))]
TASKS = {"needle": ["--tokens", str(TOKENS)], "keys": ["--tokens", str(TOKENS)], "notes": ["--notes", str(NOTES)],
         "calls": ["--tokens", str(TOKENS), "--write", "40"]}
LIBRARY = sysconfig.get_paths()["stdlib"]
CODE = [os.path.join(LIBRARY, name) for name in
        ("argparse.py", "shutil.py", "subprocess.py", "tarfile.py", "zipfile.py", "optparse.py", "tempfile.py",
         "inspect.py", "logging/__init__.py", "smtplib.py", "http/client.py", "urllib/request.py", "difflib.py",
         "statistics.py")]


def spec(name, budget):
    return f"{name}@{budget}{ON_HOST if name == 'quest' else ''}"


def find_budgets(options, model):
    """The budget of each preset at which a prompt of keys leaves as many bytes as `sentence_voters` holds: bytes are a
    straight line of the budget, so two of them are measured."""
    specs = [spec(name, budget) for name in BUDGETED for budget in TRIED]
    rows, _ = retrieved(options, "presets", model, "budgets", 1, [
        "--seed", str(SEED), "--tasks", "keys", *TASKS["keys"], "--write", "3", "--policies",
        ",".join(["sentence_voters", *specs])])
    held = {row["policy"]: row["device_bytes_peak_mean"] for row in rows}
    wanted, budgets = held["sentence_voters"], {}
    for name, step in BUDGETED.items():
        low, high = (held[spec(name, budget)] for budget in TRIED)
        budget = TRIED[0] + (wanted - low) * (TRIED[1] - TRIED[0]) / (high - low)
        budgets[name] = max(step, round(budget / step) * step)
    return budgets


def policies_of(task, budgets):
    thoughts = OF_THOUGHTS if task == "notes" else []
    return [*FIXED, *(spec(name, budget) for name, budget in budgets.items()), *thoughts]


def measure(options, model, task, budgets):
    rows, _ = retrieved(options, "presets", model, task, options.problems, [
        "--seed", str(SEED), "--tasks", task, *TASKS[task], "--marks", MODELS[model], "--policies",
        ",".join(policies_of(task, budgets))], text=",".join(CODE) if task == "calls" else None)
    return {**measured_now(), "rows": rows}


def foretell(options, model, budgets):
    """Perplexity of each text: a passage of the novel and one of the library."""
    policies = [one for one in policies_of("keys", budgets) if one != "oracle"]
    found = {**measured_now()}
    for kind, text in (("novel", options.text), ("code", CODE[0])):
        found[kind], _ = evaluated(options, "presets", model, os.path.basename(text), [
            "perplexity", "--text", text, "--contexts", str(TOKENS), "--tokens", "256", "--passages",
            str(options.passages), "--seed", str(SEED), "--policies", ",".join(policies)])
    return found


KEPT = ("policy", "problems", "right", "active", "attended_tokens_mean", "device_bytes_peak_mean")
FORETOLD = ("policy", "settings", "budget", "passages", "bits_per_byte", "perplexity_beyond_full",
            "attended_tokens_mean", "device_bytes_peak")


def rounded(value):
    return float(f"{value:.5g}") if isinstance(value, float) else value


def save(everything):
    """A row a line."""
    models = []
    for model, parts in everything.items():
        lines = []
        for name, found in parts.items():
            if name == "budgets":
                lines.append(f'  "budgets": {json.dumps(found)}')
                continue
            head = {key: value for key, value in found.items() if key != "rows"}
            rows = ",\n   ".join(json.dumps(row) for row in found["rows"])
            lines.append(f'  {json.dumps(name)}: {json.dumps(head)[:-1]}, "rows": [\n   {rows}]}}')
        models.append(f" {json.dumps(model)}: {{\n" + ",\n".join(lines) + "}")
    write_whole(os.path.join(RESULTS, "presets.json"), "{\n" + ",\n".join(models) + "}\n")


def measure_all(options):
    everything = load("presets.json", {})
    for model in options.models:
        parts = everything.setdefault(model, {})
        budgets = parts["budgets"] = find_budgets(options, model)
        for task in options.only:
            print(f"{model}: {task}", flush=True)
            if task == "perplexity":
                told = foretell(options, model, budgets)
                for text in ("novel", "code"):
                    rows = [{key: rounded(row[key]) for key in FORETOLD} for row in told[text]["groups"]]
                    parts[f"perplexity, {text}"] = {"commit": told["commit"], "date": told["date"], "rows": rows}
            else:
                found = measure(options, model, task, budgets)
                parts[task] = {**found, "rows": [{key: rounded(row[key]) for key in KEPT} for row in found["rows"]]}
            save(everything)


def foretold(parts, text, policy):
    for row in parts.get(f"perplexity, {text}", {"rows": []})["rows"]:
        name = row["policy"] + (f"@{row['budget']}" if row["budget"] else "")
        if name + (f"+{row['settings']}" if row["settings"] else "") == policy:
            return row
    return None


def table(parts):
    """A policy a row: bytes of `keys`, right answers of each task, and how much worse texts are foretold."""
    tasks = [task for task in TASKS if task in parts]
    rows = []
    for policy in [*policies_of("keys", parts["budgets"]), *OF_THOUGHTS]:
        cells = []
        for task in tasks:
            row = next((row for row in parts[task]["rows"] if row["policy"] == policy), None)
            if row is None:
                cells.append("–")
                continue
            cells.append(f"{with_interval(row['right'], row['problems'])}; "
                         f"{row['device_bytes_peak_mean'] / 2**20:.1f}; {100 * row['active']:.0f}")
        for text in ("novel", "code"):
            row = foretold(parts, text, policy)
            cells.append("–" if row is None else f"{100 * row['perplexity_beyond_full']:+.1f}")
        rows.append([f"`{policy.removesuffix(ON_HOST).removesuffix(CHOOSES)}`", *cells])
    return markdown(["policy", *(f"{task}: right, MiB, active" for task in tasks), "novel", "code"], rows)


def about(parts):
    lines = []
    for name, found in parts.items():
        if name == "budgets":
            continue
        count = found["rows"][0].get("problems") or found["rows"][0]["passages"]
        lines.append(f"{name}: {count} ({found['commit']}, {found['date']})")
    return "Problems, and passages of each text: " + "; ".join(lines) + "."


if __name__ == "__main__":
    parser = options_of(MODELS, "novel that no weights were learnt on")
    parser.add_argument("--only", default=",".join([*TASKS, "perplexity"]),
                        help="tasks and perplexity, separated by commas; default: all")
    parser.add_argument("--problems", type=int, default=40, help="of each task")
    parser.add_argument("--passages", type=int, default=2, help="of each text")
    given = parsed(parser)
    given.only = given.only.split(",")
    expect_known(parser, given.models, MODELS)
    expect_known(parser, given.only, [*TASKS, "perplexity"])
    if not given.draw:
        measure_all(given)
    fill("presets.md", {f"{part} {model}": text for model, parts in load("presets.json", {}).items()
                        for part, text in (("presets", table(parts)), ("problems", textwrap.fill(about(parts), 120)))})
