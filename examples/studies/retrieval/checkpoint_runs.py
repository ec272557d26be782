# SPDX-License-Identifier: Apache-2.0
"""Runs of `zoomr-eval retrieval` on several checkpoints, for pages of docs/results."""
import argparse
import json
import os
import subprocess
import sys


def options_of(models, text):
    """A parser of what such a study takes; `text` says which novel it needs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", help="directory of a Release build")
    parser.add_argument("--model", action="append", default=[],
                        help="NAME=DIR of a checkpoint, of " + ", ".join(models))
    parser.add_argument("--text", help=text)
    parser.add_argument("--draw", action="store_true", help="run nothing")
    return parser


def parsed(parser):
    """What was asked for, with `models`: the directory of each name."""
    given = parser.parse_args()
    if not given.draw and not (given.build and given.model and given.text):
        parser.error("name --build, --model and --text; or give --draw")
    given.models = dict(one.split("=", 1) for one in given.model if "=" in one)
    return given


def expect_known(parser, names, known):
    for name in names:
        if name not in known:
            parser.error(f"there is no {name}; there are {', '.join(known)}")


def evaluated(options, study, model, name, command):
    """The document of one evaluation, and the lines of what it keeps in BUILD/study/model/name.jsonl, whose finished
    parts are not done again. `command` is what zoomr-eval is told but for the model."""
    folder = os.path.join(options.build, study, model)
    os.makedirs(folder, exist_ok=True)
    kept = os.path.join(folder, f"{name}.jsonl")
    program, directory = os.path.join(options.build, "bin/zoomr-eval"), options.models[model]
    done = subprocess.run([program, *command, "--model", directory, "--json", "--resume", kept],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{study}.py: {model}, {name} failed with {done.returncode}")
    with open(kept) as f:
        return json.loads(done.stdout), [json.loads(line) for line in f]


def retrieved(options, study, model, name, problems, arguments, text=None):
    """The rows of an evaluation of retrieval, and its answers; `text` in place of that of the options."""
    document, lines = evaluated(options, study, model, name, [
        "retrieval", "--text", text or options.text, "--problems", str(problems), *arguments])
    return document["rows"], lines
