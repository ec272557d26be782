# SPDX-License-Identifier: Apache-2.0
"""Runs the study behind docs/results/reach.md, joins it in reach.json, fills in the tables, draws the figures.

    python3 reach.py --build BUILD --model qwen2.5-coder-0.5b=DIR --text WAR_AND_PEACE.txt [--only keys] [--most 4000]
    python3 reach.py --draw                                                    only tables and figures

BUILD is a Release build of the project, DIR what ../pretrained/get.py makes. Finished problems are kept in BUILD/reach:
it can be stopped at any time, and goes on. Loads come in rounds, each with more problems of all of them.
"""
import json
import math
import os
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../evaluate"))
from checkpoint_runs import expect_known, options_of, parsed, retrieved  # noqa: E402
from results_page import RESULTS, fill, load, markdown, measured_now, wilson, with_interval, write_whole  # noqa: E402

SEED, QUESTIONS = 77, 3
MODELS = {  # name: marks of notes
    "smollm2": "<repo_name>,<reponame>,<file_sep>,<filename>",
    "qwen2.5-coder-0.5b": "<|quad_start|>,<|quad_end|>,<|box_start|>,<|box_end|>",
    "qwen2.5-coder-1.5b": "<|quad_start|>,<|quad_end|>,<|box_start|>,<|box_end|>",
}
# task: what sizes are called, the option that names them, (size, tokens, share of the problems); the preset of voters
TASKS = {
    "keys": ("tokens", "--tokens", [(1000, 1000, 1), (2000, 2000, 1), (4000, 4000, 0.3), (8000, 8000, 0.3)],
             "sentence_voters"),
    "notes": ("notes", "--notes", [(12, 1100, 1), (24, 2150, 1), (48, 4300, 0.3), (96, 8600, 0.3)], "zoomr_voters"),
}
ROUNDS = (12, 60, 120, 200)
CONTROLS = ["full", "oracle", *(name + "@256" for name in (
    "window", "exact", "sentence_kv", "sentence_box", "quest", "snapkv"))]
UNGATED = "+head_posterior.gate=off"


def policies_of(task):
    return [*CONTROLS, TASKS[task][3], TASKS[task][3] + UNGATED]


def problems_of(most, share):
    """A multiple of the questions: all problems about a text."""
    return max(1, round(most * share) // QUESTIONS) * QUESTIONS


def measure(options, model, task, size, problems):
    rows, lines = retrieved(options, "reach", model, f"{task}_{size}", problems, [
        "--seed", str(SEED), "--tasks", task, TASKS[task][1], str(size), "--marks", MODELS[model],
        "--questions", str(QUESTIONS), "--policies", ",".join(policies_of(task))])
    return {**measured_now(), "told": told(lines), "rows": rows}


def measure_all(options):
    for most in ROUNDS:
        for model in options.models:
            for task in options.only:
                for size, tokens, share in TASKS[task][2]:
                    if tokens > options.most or most > options.problems:
                        continue
                    problems = problems_of(most, share)
                    print(f"{model}: {task} {size}, {problems} problems", flush=True)
                    found = measure(options, model, task, size, problems)
                    everything = load("reach.json", {})
                    everything.setdefault(model, {}).setdefault(task, {})[str(size)] = found
                    save(everything)


def told(lines):
    """How well a choice's entropy, and its agreeability, tell wrong answers: the share of pairs of a wrong and a right
    one in which the wrong one is less sure, ties by half; the mean agreeability of both."""
    groups = {}
    for line in lines:
        if "entropy" in line:
            groups.setdefault(line["policy"], []).append((line["answers"] == 1, line["entropy"], line["agreed"]))
    found = {}
    for policy, all_of in groups.items():
        right, wrong = ([one for one in all_of if one[0] is as_right] for as_right in (True, False))
        if not right or not wrong:
            continue
        pairs = [((w[1] > r[1]) + 0.5 * (w[1] == r[1]), (w[2] < r[2]) + 0.5 * (w[2] == r[2]))
                 for w in wrong for r in right]
        found[policy] = {"right": len(right), "wrong": len(wrong),
                         "auc_entropy": sum(pair[0] for pair in pairs) / len(pairs),
                         "auc_agreeability": sum(pair[1] for pair in pairs) / len(pairs),
                         "agreeability": [sum(one[2] for one in part) / len(part) for part in (right, wrong)]}
    return found


KEPT = ("policy", "group", "problems", "right", "right_interval", "entropy_bits", "attended_tokens_mean",
        "prompt_tokens_mean", "device_bytes_peak_mean")


def rounded(value):
    if isinstance(value, float):
        return round(value, 4) if value < 1000 else round(value)
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    return [rounded(one) for one in value] if isinstance(value, list) else value


def save(everything):
    """A row a line."""
    text = []
    for model, tasks in everything.items():
        for task, sizes in tasks.items():
            for size, found in sizes.items():
                rows = ",\n   ".join(json.dumps(rounded({key: row[key] for key in KEPT if key in row}))
                                     for row in found["rows"])
                head = {key: rounded(value) for key, value in found.items() if key != "rows"}
                text.append((model, task, f'  {json.dumps(size)}: {json.dumps(head)[:-1]}, "rows": [\n   {rows}]}}'))
    models = []
    for model, tasks in everything.items():
        parts = [f' {json.dumps(task)}: {{\n' + ",\n".join(one[2] for one in text if one[:2] == (model, task)) + "}"
                 for task in tasks]
        models.append(f"{json.dumps(model)}: {{\n" + ",\n".join(parts) + "}")
    write_whole(os.path.join(RESULTS, "reach.json"), "{" + ",\n".join(models) + "}\n")


def row_of(found, policy, question):
    for row in found["rows"]:
        later = row["group"].partition(", question ")[2]
        if row["policy"] == policy and (int(later) if later else 1) == question:
            return row
    return None


def joined(found, policy, questions):
    """Right answers to some of the questions: share, interval, trials; and what they attended and held."""
    rows = [row for row in (row_of(found, policy, question) for question in questions) if row]
    if not rows:
        return None
    trials = sum(row["problems"] for row in rows)
    right = sum(row["right"] * row["problems"] for row in rows) / trials
    return {"right": right, "interval": wilson(right, trials), "trials": trials,
            "attended": sum(row["attended_tokens_mean"] for row in rows) / len(rows),
            "bytes": sum(row["device_bytes_peak_mean"] for row in rows) / len(rows)}


FIRST, LATER = (1,), (2, 3)


def loads_table(sizes, task):
    """Of each policy: right answers to the first question, and to the later ones."""
    known = [str(size) for size, _, _ in TASKS[task][2] if str(size) in sizes]
    titles = ["policy", *(f"{int(size):,} {TASKS[task][0]}" for size in known)]
    rows = []
    for policy in policies_of(task):
        cells = []
        for size in known:
            first, later = (joined(sizes[size], policy, which) for which in (FIRST, LATER))
            cells.append("–" if first is None else f"{with_interval(first['right'], first['trials'])}; "
                         f"{with_interval(later['right'], later['trials'])}, {first['attended']:,.0f}")
        rows.append([f"`{policy}`", *cells])
    about = []
    for size in known:
        row = sizes[size]["rows"][0]
        about.append(f"{int(size):,}: {row['problems']} of {row['prompt_tokens_mean']:,.0f} tokens "
                     f"({sizes[size]['commit']}, {sizes[size]['date']})")
    return textwrap.fill(f"Problems: {', '.join(about)}.", 120) + "\n\n" + markdown(titles, rows)


def reach_table(tasks):
    """The largest load up to which nine tenths are right."""
    rows = []
    for task, sizes in tasks.items():
        known = [str(size) for size, _, _ in TASKS[task][2] if str(size) in sizes]
        for policy in policies_of(task):
            cells = []
            for which in (FIRST, LATER):
                last = None
                for size in known:
                    one = joined(sizes[size], policy, which)
                    if one is None or one["right"] < 0.9:
                        break
                    last = size, one
                if last is None:
                    cells += ["none", "", ""]
                else:
                    more = " or more" if last[0] == known[-1] else ""
                    one = last[1]
                    cells += [f"{int(last[0]):,}{more}", f"{one['attended']:,.0f}", f"{one['bytes'] / 2**20:.1f}"]
            rows.append([task, f"`{policy}`", *cells])
    titles = ["task", "policy", "reach, first question", "tokens", "MiB", "later questions", "tokens", "MiB"]
    return markdown(titles, rows)


def told_table(tasks):
    rows = []
    for task, sizes in tasks.items():
        for size, found in sizes.items():
            for policy, one in found.get("told", {}).items():
                rows.append([f"{task} {size}", f"`{policy}`", f"{one['right']}, {one['wrong']}",
                             f"{one['auc_entropy']:.2f}", f"{one['auc_agreeability']:.2f}",
                             " and ".join(f"{share:.3f}" for share in one["agreeability"])])
    return markdown(["problems", "policy", "right, wrong", "AUC of entropy", "AUC of agreeability",
                     "mean agreeability, right and wrong"], rows)


COLOURS = {  # light, dark
    "full": ("#444444", "#cccccc"), "exact@256": ("#999999", "#888888"), "sentence_kv@256": ("#1b7f3b", "#5fd38a"),
    "quest@256": ("#b8860b", "#e3b341"), "snapkv@256": ("#8250df", "#b594f7"), "voters": ("#c2255c", "#ff7eb0"),
    "voters" + UNGATED: ("#0969da", "#6cb6ff"),
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 330, 220, 48, 40, 46


def panel(x, y, title, sizes, task, which):
    """A chart of right answers against load, as SVG."""
    known = [(size, tokens) for size, tokens, _ in TASKS[task][2] if str(size) in sizes]
    low, high = math.log(known[0][1] / 1.2), math.log(max(known[-1][1], 2 * known[0][1]) * 1.2)
    across = lambda tokens: x + WIDTH * (math.log(tokens) - low) / (high - low)  # noqa: E731
    down = lambda share: y + HEIGHT * (1 - share)  # noqa: E731
    parts = [f'<text x="{x}" y="{y - 10}" class="title">{title}</text>']
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<line x1="{x}" x2="{x + WIDTH}" y1="{down(share):.1f}" y2="{down(share):.1f}" class="grid"/>'
                     f'<text x="{x - 6}" y="{down(share) + 4:.1f}" text-anchor="end">{100 * share:.0f}</text>')
    for size, tokens in known:
        parts.append(f'<text x="{across(tokens):.1f}" y="{y + HEIGHT + 16}" text-anchor="middle">{size:,}</text>')
    for number, name in enumerate(COLOURS):
        policy = name.replace("voters", TASKS[task][3])
        points = []
        for size, tokens in known:
            one = joined(sizes[str(size)], policy, which)
            if one is None:
                continue
            at = across(tokens) + 2 * (number - len(COLOURS) / 2)
            points.append(f"{at:.1f},{down(one['right']):.1f}")
            parts.append(f'<line class="s{number}" x1="{at:.1f}" x2="{at:.1f}" y1="{down(one["interval"][0]):.1f}" '
                         f'y2="{down(one["interval"][1]):.1f}" opacity="0.45"/>'
                         f'<circle class="p{number}" cx="{at:.1f}" cy="{down(one["right"]):.1f}" r="3"/>')
        if points:
            parts.append(f'<polyline class="s{number}" points="{" ".join(points)}"/>')
    return "\n".join(parts)


def draw(model, tasks):
    """Right answers against load, the first question and the later ones: reach-MODEL.svg."""
    style = ["text { font: 12px sans-serif; fill: #333 } .title { font-weight: bold } .grid { stroke: #ddd }",
             "polyline, line { fill: none; stroke-width: 1.8 } .page { fill: #fff }"]
    dark = ["text { fill: #ddd } .grid { stroke: #444 } .page { fill: #0d1117 }"]
    for number, (light, night) in enumerate(COLOURS.values()):
        style.append(f".s{number} {{ stroke: {light} }} .p{number} {{ fill: {light} }}")
        dark.append(f".s{number} {{ stroke: {night} }} .p{number} {{ fill: {night} }}")
    panels = []
    for line, (task, sizes) in enumerate(tasks.items()):
        for column, (title, which) in enumerate((("the first question", FIRST), ("the second and the third", LATER))):
            panels.append(panel(LEFT + column * (WIDTH + GAP), TOP + line * (HEIGHT + 2 * GAP),
                                f"{task}: {title}", sizes, task, which))
    bottom = TOP + len(tasks) * (HEIGHT + 2 * GAP) - GAP + 24
    legend = []
    for number, name in enumerate(COLOURS):
        x, y = LEFT + number % 4 * 180, bottom + number // 4 * 20
        legend.append(f'<circle class="p{number}" cx="{x}" cy="{y - 4}" r="4"/><text x="{x + 9}" y="{y}">{name}</text>')
    width, height = LEFT + 2 * WIDTH + GAP + 20, bottom + 40
    write_whole(os.path.join(RESULTS, f"reach-{model}.svg"), f"""<svg xmlns="http://www.w3.org/2000/svg" \
viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>{" ".join(style)} @media (prefers-color-scheme: dark) {{ {" ".join(dark)} }}</style>
<rect class="page" width="{width}" height="{height}"/>
<text x="{LEFT}" y="16">right, % (95 %), against the tokens of the prompt, or its notes: {model}</text>
{chr(10).join([*panels, *legend])}
</svg>
""")


if __name__ == "__main__":
    parser = options_of(MODELS, "novel that no weights were learnt on")
    parser.add_argument("--only", default=",".join(TASKS), help="tasks, separated by commas; default: all")
    parser.add_argument("--most", type=int, default=8600, help="tokens of a problem; default: all loads")
    parser.add_argument("--problems", type=int, default=ROUNDS[-1], help=f"of a load, of {ROUNDS}; default: the last")
    given = parsed(parser)
    given.only = given.only.split(",")
    expect_known(parser, given.models, MODELS)
    expect_known(parser, given.only, TASKS)
    if not given.draw:
        measure_all(given)
    results = load("reach.json", {})
    tables = {}
    for model, tasks in results.items():
        draw(model, tasks)
        tables[f"reach {model}"] = reach_table(tasks)
        tables[f"told {model}"] = told_table(tasks)
        for task, sizes in tasks.items():
            tables[f"{task} {model}"] = loads_table(sizes, task)
    fill("reach.md", tables)
