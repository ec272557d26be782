# SPDX-License-Identifier: Apache-2.0
"""What zoomr-replay says of a trace against the rules of the presets in numpy (../fidelity/reference.py).

replay_reference_test.py PROGRAM            a random trace, written here: docs/replay.md in numpy alone
replay_reference_test.py PROGRAM TRACE...   one that is there, such as of record_transformers.py; its files must be F32

Of each layer and query head: how many tokens were attended, how many of the keys with the largest logits are among
them, and how many were not attended a token before must be equal, as whole numbers, over all queries together; the mean
and worst error of outputs and the captured mass within TOLERANCE.
"""
import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

try:
    import numpy as np
except ImportError:
    print("skipped: there is no numpy for", sys.executable)
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "fidelity"))
import reference as r  # noqa: E402

TOLERANCE = 1e-5
CASES = [  # a policy of the command line, and its rule
    ("full", r.Full, {}),
    ("window+zones.recent=40", r.Window, dict(recent=40)),
    ("quest+top_k.segments=5+zones.dense_layers=1", r.Quest, dict(pages=5, dense_layers=1)),
    ("snapkv+observation_window.tokens=80", r.SnapKv, dict(tokens=80)),
    ("h2o+accumulated_attention.tokens=64+accumulated_attention.recent=32", r.H2o, dict(tokens=64, recent=32)),
]
OF_SENTENCES = [  # these read the classes of tokens
    ("sentence_kv+zones.sinks=8+zones.recent=12+fill_budget.tokens=60+zones.open=52+observation_window.tokens=120",
     r.SentenceKv, dict(budget=60, sinks=8, recent=12, keep=120)),
]


def write_trace(path, first, prompt, tensors, **more):
    """A file of a trace: tensors by name, in any type of numpy that has a name here."""
    names = {"<f4": "F32", "<i4": "I32", "|u1": "U8"}
    q, k, v = (tensors[f"layers.0.{name}"] for name in "qkv")
    layers = sum(name.endswith(".q") for name in tensors)
    said = dict(zoomr_trace=1, layers=layers, heads=q.shape[1], kv_heads=k.shape[1], head_dim=k.shape[2],
                value_dim=v.shape[2], first=first, prompt=prompt, **more)
    header, end = {"__metadata__": {name: str(value) for name, value in said.items()}}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": names[x.dtype.str], "shape": x.shape, "data_offsets": [end, end + x.nbytes]}
        end += x.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for x in tensors.values():
            out.write(np.ascontiguousarray(x).tobytes())


def draw(folder, seed=3, tokens=420, prompt=160, layers=3, heads=4, kv_heads=2, dims=16, value_dims=24):
    """A random trace of two files, whose text has sentences."""
    random = np.random.default_rng(seed)
    row = lambda count, width: random.standard_normal((tokens, count, width)).astype("<f4")
    tensors = {}
    for layer in range(layers):
        tensors |= {f"layers.{layer}.q": 1.5 * row(heads, dims), f"layers.{layer}.k": row(kv_heads, dims) + 0.5,
                    f"layers.{layer}.v": row(kv_heads, value_dims)}
    tensors["token_classes"] = (random.random(tokens) < 0.1).astype("u1")
    names = [os.path.join(folder, f"trace-{i}.safetensors") for i in (1, 2)]
    for name, part in zip(names, (slice(0, 250), slice(250, tokens))):
        write_trace(name, part.start, prompt, {key: x[part].astype(x.dtype) for key, x in tensors.items()})
    return names


def read_trace(names):
    """As the reference has a problem: [pass, token, layer, head, dimension], a pass being like the other."""
    parts, said = {}, None
    for name in names:
        with open(name, "rb") as file:
            data = file.read()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        said = header.pop("__metadata__") if said is None else (header.pop("__metadata__"), said)[1]
        for key, place in header.items():
            begin, end = (8 + length + at for at in place["data_offsets"])
            if key == "token_classes" or key.startswith("layers."):
                kind = "u1" if place["dtype"] == "U8" else "<f4"
                parts.setdefault(key, []).append(np.frombuffer(data[begin:end], kind).reshape(place["shape"]))
    joined = {key: np.concatenate(of_files) for key, of_files in parts.items()}
    all_of = lambda name: np.stack([joined[f"layers.{i}.{name}"] for i in range(int(said["layers"]))], 1).astype(float)
    queries, keys, values = (all_of(name) for name in "qkv")
    dims = int(said["head_dim"])
    return SimpleNamespace(
        layers=int(said["layers"]), heads=int(said["heads"]), kv_heads=int(said["kv_heads"]),
        head_dim=float(said.get("scale", dims**-0.5)) ** -2,  # what logits are divided by, squared
        key_dims=dims, tokens=len(keys), prompt=int(said["prompt"]), kinds=joined.get("token_classes"),
        queries=(queries, queries), keys=(keys, keys), values=values)


def expected(problem, rule, fields):
    """Figures by name [layers, heads]: whole numbers are sums over all queries."""
    p, group = problem, problem.heads // problem.kv_heads
    shape = (p.layers, p.heads)
    values = np.repeat(p.values, group, axis=2)
    keys = np.repeat(p.keys[0], group, axis=2)
    out = {name: np.zeros(shape) for name in ("error", "worst_error", "captured")}
    out |= {name: np.zeros(shape, int) for name in ("attended", "hits", "earlier", "fresh")}
    doubtful, before, tops = 0, None, 0
    for t, passes in rule(p, **fields).run():
        attended, doubt, weights = passes[-1]
        doubtful += int(doubt.sum())
        logits = np.einsum("lhd,tlhd->lht", p.queries[0][t], keys[: t + 1]) / np.sqrt(p.head_dim)
        exact = r.softmax(logits)
        wanted = np.einsum("lht,tlhd->lhd", exact, values[: t + 1])
        made = np.einsum("lht,tlhd->lhd", weights[..., : t + 1], values[: t + 1])
        error = np.linalg.norm(made - wanted, axis=-1) / np.linalg.norm(wanted, axis=-1)
        out["error"] += error
        out["worst_error"] = np.maximum(out["worst_error"], error)
        out["captured"] += np.where(attended[..., : t + 1], exact, 0).sum(-1)
        out["attended"] += attended.sum(-1)
        top = min(64, t + 1)
        best = np.argpartition(logits, t + 1 - top, axis=-1)[..., t + 1 - top :]
        out["hits"] += np.take_along_axis(attended, best, -1).sum(-1)
        tops += top
        if before is not None:
            others = attended.copy()
            others[..., t] = False
            out["earlier"] += others.sum(-1)
            out["fresh"] += (others & ~before).sum(-1)
        before = attended.copy()
    return out, doubtful, tops


def compare(program, names):
    problem = read_trace(names)
    cases = CASES + (OF_SENTENCES if problem.kinds is not None else [])
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "replay.json")
        done = subprocess.run([program, *names, *(word for case in cases for word in ("--policy", case[0])),
                               "--json", path], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        with open(path, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
    queries, failed = problem.tokens - problem.prompt, 0
    assert [run["policy"] for run in runs] == [case[0] for case in cases]
    for run, (policy, rule, fields) in zip(runs, cases):
        wanted, doubtful, tops = expected(problem, rule, fields)
        heads = {name: np.array(rows) for name, rows in run["heads"].items()}
        apart = {"attended": heads["attended"] * queries - wanted["attended"],
                 "fresh": heads["churn"] * wanted["earlier"] - wanted["fresh"],
                 "error": heads["error"] - wanted["error"] / queries,
                 "worst_error": heads["worst_error"] - wanted["worst_error"],
                 "captured": heads["captured"] - wanted["captured"] / queries}
        if problem.prompt >= 64:  # then each query has as many keys with the largest logits
            apart["hits"] = heads["recall"] * tops - wanted["hits"]
        apart = {name: float(np.abs(by).max()) for name, by in apart.items()}
        limits = dict.fromkeys(("attended", "hits", "fresh"), 1e-3)  # whole numbers
        wrong = [name for name, by in apart.items() if not by <= limits.get(name, TOLERANCE)]
        failed += bool(wrong)
        print(policy, "differs in " + ", ".join(wrong) if wrong else "agrees", f"({doubtful} rows in doubt)",
              {name: f"{by:.1e}" for name, by in apart.items()})
    active = [run["policy"] for run in runs if run["active"] > 0]
    if len(active) != len(runs) - 1:
        sys.exit(f"a policy has left out nothing: active are {active}")
    return failed


def main():
    with tempfile.TemporaryDirectory() as folder:
        if compare(sys.argv[1], sys.argv[2:] or draw(folder)):
            sys.exit(1)


main()
