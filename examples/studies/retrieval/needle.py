# SPDX-License-Identifier: Apache-2.0
"""Runs the study behind docs/results/needle.md, joins it in needle.json, fills in the tables, draws the heat maps.

    python3 needle.py --build BUILD --model qwen2.5-coder-0.5b=DIR --text WAR_AND_PEACE.txt [--tokens 1000,2000]
    python3 needle.py --draw                                                  only tables and figures

BUILD is a Release build of the project, DIR what ../pretrained/get.py makes. Finished problems are kept in
BUILD/needle: it can be stopped at any time, and goes on.
"""
import json
import os
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../evaluate"))
from checkpoint_runs import expect_known, options_of, parsed, retrieved  # noqa: E402
from results_page import RESULTS, fill, load, markdown, measured_now, wilson, write_whole  # noqa: E402

SEED, DEPTHS = 97, 5
MODELS = ("smollm2", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b")
LENGTHS = (1000, 2000, 4000, 8000)
POLICIES = ("full", "sentence_kv@128", "snapkv@128", "quest@128", "window@128")


def measure(options, model, tokens):
    rows, lines = retrieved(options, "needle", model, tokens, options.problems, [
        "--seed", str(SEED), "--tasks", "needle", "--tokens", str(tokens), "--policies", ",".join(POLICIES)])
    rows = {row["policy"]: row for row in rows}
    answers = {policy: {} for policy in POLICIES}  # by problem: depth, and whether it is right
    for line in lines:
        if line["policy"] in answers and line["number"] < options.problems:
            answers[line["policy"]][line["number"]] = [round(line["place"], 3), int(line["answers"] == 1)]
    found = {policy: {"attended": rows[policy]["attended_tokens_mean"], "bytes": rows[policy]["device_bytes_peak_mean"],
                      "answers": list(answers[policy].values())} for policy in POLICIES}
    return {**measured_now(), "prompt": rows["full"]["prompt_tokens_mean"], "policies": found}


def save(everything):
    """A policy a line."""
    models = []
    for model, lengths in everything.items():
        parts = []
        for tokens, found in lengths.items():
            head = {key: value for key, value in found.items() if key != "policies"}
            rows = ",\n".join(f"   {json.dumps(policy)}: {json.dumps({**row, 'answers': sorted(row['answers'])})}"
                              for policy, row in found["policies"].items())
            parts.append(f'  {json.dumps(tokens)}: {json.dumps(head)[:-1]}, "policies": {{\n{rows}}}}}')
        models.append(f" {json.dumps(model)}: {{\n" + ",\n".join(parts) + "}")
    write_whole(os.path.join(RESULTS, "needle.json"), "{\n" + ",\n".join(models) + "}\n")


def right(answers):
    return sum(one[1] for one in answers) / len(answers)


def table(lengths):
    """Right answers, tokens and bytes by length."""
    rows = []
    for policy in POLICIES:
        cells, every = [], []
        for tokens in lengths:
            one = lengths[tokens]["policies"][policy]
            every += one["answers"]
            cells.append(f"{100 * right(one['answers']):.0f}; {one['attended']:,.0f}; {one['bytes'] / 2**20:.1f}")
        low, high = wilson(right(every), len(every))
        rows.append([f"`{policy}`", *cells, f"{100 * right(every):.1f} ({100 * low:.0f} – {100 * high:.0f})"])
    about = ", ".join(f"{int(tokens):,}: {len(found['policies']['full']['answers'])} ({found['commit']}, "
                      f"{found['date']})" for tokens, found in lengths.items())
    return textwrap.fill(f"Problems: {about}.", 120) + "\n\n" + markdown(
        ["policy", *(f"{int(tokens):,} tokens" for tokens in lengths), "all (95 %)"], rows)


CELL, LEFT, TOP = 44, 74, 60


def draw(model, lengths):
    """A heat map for each policy: depth against length."""
    panel = max(len(lengths) * CELL, 110) + 24
    width = LEFT + len(POLICIES) * panel
    height = TOP + DEPTHS * CELL + 40
    parts = []
    for number, policy in enumerate(POLICIES):
        x = LEFT + number * panel
        parts.append(f'<text x="{x}" y="{TOP - 12}" class="title">{policy}</text>')
        for column, tokens in enumerate(lengths):
            answers = lengths[tokens]["policies"][policy]["answers"]
            at = x + column * CELL
            parts.append(f'<text x="{at + CELL / 2}" y="{TOP + DEPTHS * CELL + 16}" text-anchor="middle">'
                         f'{int(tokens) // 1000} K</text>')
            for depth in range(DEPTHS):
                some = [one for one in answers if min(int(one[0] * DEPTHS), DEPTHS - 1) == depth]
                y = TOP + depth * CELL
                if not some:
                    parts.append(f'<rect class="none" x="{at}" y="{y}" width="{CELL - 2}" height="{CELL - 2}"/>')
                    continue
                found = f"{sum(one[1] for one in some)}/{len(some)}"
                parts.append(f'<rect x="{at}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" '
                             f'fill="hsl({round(120 * right(some))} 55% 62%)"/><text class="cell" '
                             f'x="{at + CELL / 2 - 1}" y="{y + CELL / 2 + 3}" text-anchor="middle">{found}</text>')
    for depth in range(DEPTHS):
        parts.append(f'<text x="{LEFT - 8}" y="{TOP + depth * CELL + CELL / 2 + 3}" text-anchor="end">'
                     f'{100 * depth // DEPTHS} – {100 * (depth + 1) // DEPTHS} %</text>')
    style = ("text { font: 12px sans-serif; fill: #333 } .title { font-weight: bold } .cell { fill: #222; font-size: "
             "11px } .none { fill: #ddd } .page { fill: #fff }")
    dark = "text { fill: #ddd } .cell { fill: #222 } .none { fill: #333 } .page { fill: #0d1117 }"
    write_whole(os.path.join(RESULTS, f"needle-{model}.svg"), f"""<svg xmlns="http://www.w3.org/2000/svg" \
viewBox="0 0 {width} {height}" width="{width}" height="{height}">
<style>{style} @media (prefers-color-scheme: dark) {{ {dark} }}</style>
<rect class="page" width="{width}" height="{height}"/>
<text x="8" y="20">right answers by the needle's depth in the text and by the tokens of the prompt: {model}</text>
{chr(10).join(parts)}
</svg>
""")


if __name__ == "__main__":
    parser = options_of(MODELS, "novel")
    parser.add_argument("--tokens", default=",".join(map(str, LENGTHS)), help="of the problems; default: %(default)s")
    parser.add_argument("--problems", type=int, default=20, help="of a length")
    given = parsed(parser)
    expect_known(parser, given.models, MODELS)
    for length in map(int, given.tokens.split(",")):
        for name in given.models:
            print(f"{name}: {length} tokens, {given.problems} problems", flush=True)
            result = measure(given, name, length)
            results = load("needle.json", {})
            results.setdefault(name, {})[str(length)] = result
            results[name] = dict(sorted(results[name].items(), key=lambda item: int(item[0])))
            save(results)
    results = load("needle.json", {})
    tables = {}
    for name, by_length in results.items():
        draw(name, by_length)
        tables[f"needle {name}"] = table(by_length)
    fill("needle.md", tables)
