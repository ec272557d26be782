# SPDX-License-Identifier: Apache-2.0
"""Compares the presets with an independent reference (reference.py) over random problems.

fidelity_test.py DRIVER            every preset, ZOOMR_FIDELITY_SEEDS problems (2); ZOOMR_FIDELITY_EXACT=1: a unit of
                                   the values for each position, so that outputs show every single weight
fidelity_test.py DRIVER --notices  every wrong rule of cases.py must make a difference

Each step, layer and head must attend the same tokens, by the trace and by which outputs are not 0. Where the cut
between chosen and not chosen hangs on less than floats resolve (reference.RESOLVED), a difference is a close call:
counted, and limited. Outputs must agree within TOLERANCE.
"""
import os
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("skipped: there is no numpy for", sys.executable)
    sys.exit(77)

from cases import CASES, PLANTED, PUBLISHED
from problem import draw

# Logits of up to some 10 units carry errors of 2^-24 for each, a weight that relative error, a row sums some hundred.
TOLERANCE = 5e-6
# Close calls of all rows; a lane that goes on as it does after one counts once.
MOST_CLOSE = 1e-3
# Rows in doubt, which a difference would excuse.
MOST_DOUBTFUL = 0.1


def run_driver(driver, case, problem):
    """For each token after the prompt and each of its passes: weights [layers, heads, units], marks [.., tokens]."""
    fields = [f"{name}={value}" for name, value in case.fields.items()]
    done = subprocess.run([driver, case.preset, *fields], input=problem.written(), capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{case.name}: the driver failed: {done.stderr.decode()}")
    layers, heads, tokens = problem.layers, problem.heads, problem.tokens
    runs, at, results = problem.units // problem.head_dim, 0, []
    layer_type = np.dtype([("weights", "<f4", (heads, problem.head_dim)), ("marks", "u1", (heads, tokens))])
    for run in range(runs):
        shown = slice(run * problem.head_dim, (run + 1) * problem.head_dim)
        for step in range(tokens - problem.prompt):
            passes = int(np.frombuffer(done.stdout, "<i4", 1, at)[0])
            at += 4
            if run == 0:
                results.append([(np.zeros((layers, heads, problem.units)), None) for _ in range(passes)])
            for number in range(passes):
                row = np.frombuffer(done.stdout, layer_type, layers, at)
                at += row.nbytes
                results[step][number][0][..., shown] = row["weights"]
                results[step][number] = (results[step][number][0], row["marks"] != 0)
    assert at == len(done.stdout), f"{case.name}: the driver wrote more than the steps' results"
    return results


class Verdict:
    """What a comparison has found."""

    def __init__(self):
        self.rows = self.differing = self.close = self.doubtful = 0
        self.error, self.first = 0.0, ""

    def compare(self, problem, results, reference, enough=None):
        """Adds a problem; with `enough`, ends when so many rows differ."""
        units = np.arange(problem.tokens) % problem.units
        shown = (units[:, None] == np.arange(problem.units)).astype(float)
        off = np.zeros((problem.layers, problem.heads), bool)  # lanes that differ since a close call
        for (t, passes), given in zip(reference.run(), results):
            if len(passes) != len(given):
                self.differing += problem.layers * problem.heads
                self.first = self.first or f"position {t}: {len(given)} passes instead of {len(passes)}"
                continue
            for (attended, doubtful, weights), (outputs, marks) in zip(passes, given):
                same = (marks == attended).all(axis=-1) & ((outputs != 0) == (attended @ shown > 0)).all(axis=-1)
                error = np.abs(outputs - weights @ shown).max(axis=-1)
                wrong = ~same & ~doubtful | same & (error > TOLERANCE)
                self.rows += same.size
                self.doubtful += int(doubtful.sum())
                self.close += int((~same & doubtful & ~off).sum())
                off = ~same & doubtful
                self.differing += int(wrong.sum())
                self.error = max(self.error, error[same].max(initial=0))
                if wrong.any() and not self.first:
                    self.first = self.describe(problem, t, attended, marks, error, *np.argwhere(wrong)[0])
            if enough is not None and self.differing >= enough:
                return

    def describe(self, problem, t, attended, marks, error, layer, head):
        missing = np.flatnonzero(attended[layer, head] & ~marks[layer, head])
        extra = np.flatnonzero(~attended[layer, head] & marks[layer, head])
        return (f"position {t}, layer {layer}, head {head}: missing {missing.tolist()}, extra {extra.tolist()}, "
                f"output off by {error[layer, head]:.1e}")

    def good(self):
        excused = self.close <= max(1, MOST_CLOSE * self.rows) and self.doubtful <= MOST_DOUBTFUL * self.rows
        return self.rows > 0 and self.differing == 0 and excused


def check_fields(driver):
    """The presets' own budgets are the published ones."""
    wrong, preset, fields = 0, "", {}
    for line in subprocess.run([driver, "fields"], capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("["):
            preset = line[1:-1]
        else:
            name, value = line.split("=")
            fields[preset, name] = float(value)
    for preset, expected in PUBLISHED.items():
        for name, value in expected.items():
            given = fields.get((preset, name))
            if given is None or abs(given - value) > 1e-6:
                print(f"{preset}: {name} is {given}, published or decided is {value}")
                wrong += 1
    return wrong == 0


def compare_all(driver):
    seeds = int(os.environ.get("ZOOMR_FIDELITY_SEEDS", "2"))
    exact = os.environ.get("ZOOMR_FIDELITY_EXACT", "0") != "0"
    good = check_fields(driver)
    for case in CASES:
        verdict = Verdict()
        for seed in range(seeds):
            problem = draw(seed, exact)
            verdict.compare(problem, run_driver(driver, case, problem), case.method(problem, **case.rule))
            if verdict.first:
                break
        print(f"{case.name:22} {verdict.rows:9} rows  {verdict.differing:5} differ  {verdict.close:3} close calls  "
              f"{verdict.doubtful:6} doubtful  outputs within {verdict.error:.1e}", flush=True)
        if verdict.first:
            print(f"  seed {seed}, {verdict.first}")
        good &= verdict.good()
    return good


def notice_all(driver):
    """Where one problem does not show a wrong rule, a second may: of groups of three heads instead of two."""
    good, known = True, {}
    for name, rule, what in PLANTED:
        case = next(case for case in CASES if case.name == name)
        verdict = Verdict()
        for seed in (0, 2):
            if (name, seed) not in known:
                problem = draw(seed)
                known[name, seed] = problem, run_driver(driver, case, problem)
            problem, result = known[name, seed]
            verdict.compare(problem, result, case.method(problem, **case.rule | rule), enough=1)
            if verdict.differing:
                break
        noticed = verdict.differing > 0
        print(f"{name:22} {'noticed' if noticed else 'MISSED'}: {what}: {verdict.first}"[:160], flush=True)
        good &= noticed
    print(f"{len(PLANTED)} wrong rules")
    return good


if __name__ == "__main__":
    run = notice_all if "--notices" in sys.argv else compare_all
    sys.exit(0 if run(sys.argv[1]) else 1)
