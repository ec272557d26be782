# SPDX-License-Identifier: Apache-2.0
"""Builds the adaptor for engines on ggml against ggml, as the Python package llama-cpp-python ships its source, and
runs ggml/ggml_test.cpp, and ggml/few.c with few types and policies. Nothing of ggml is in this repository: the package
is fetched from the package index into CACHE, once. Exit code 77 where the index cannot be reached, 1 then too if the
environment has CI.

    python3 ggml_engine_test.py REPOSITORY CACHE
"""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"     # with ggml 0.25.3
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
INSIDE = "vendor/llama.cpp/ggml/"
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit("and CI is set, where the test must run" if os.environ.get("CI") else SKIPPED)


def python_with_pip(folder):
    """Of a virtual environment: the system's Python may have no pip."""
    environment = pathlib.Path(folder) / "environment"
    venv.create(environment, with_pip=True)
    return environment / "bin" / "python"


def fetched(folder):
    """The archive of the package's source. pip runs the package's build system to read its metadata, no more."""
    done = subprocess.run([python_with_pip(folder), "-m", "pip", "download", "--disable-pip-version-check", "--no-deps",
                           "--no-cache-dir", "--retries=1", "--timeout=20", f"--no-binary={PACKAGE}",
                           f"--dest={folder}", f"{PACKAGE}=={VERSION}"], capture_output=True, text=True)
    archives = list(pathlib.Path(folder).glob("*.tar.gz"))
    if done.returncode != 0 or len(archives) != 1:
        skip(f"{PACKAGE} {VERSION} cannot be had from the package index: {' '.join(done.stderr.split())[-400:]}")
    if hashlib.sha256(archives[0].read_bytes()).hexdigest() != SHA256:
        sys.exit(f"{archives[0].name} has another SHA-256 than it should have")
    return archives[0]


def ggml(cache):
    """The folder of ggml's source."""
    folder = cache / f"{PACKAGE}-{VERSION}"
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as temporary:
        made = pathlib.Path(temporary) / "made"
        with tarfile.open(fetched(temporary)) as archive:
            for member in archive:
                _, _, path = member.name.partition("/" + INSIDE)
                if path and member.isfile() and ".." not in path.split("/"):
                    to = made / path
                    to.parent.mkdir(parents=True, exist_ok=True)
                    with archive.extractfile(member) as source, open(to, "wb") as copy:
                        shutil.copyfileobj(source, copy)
        made.rename(folder)
    return folder


def run(*command):
    """Its output is shown where it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed with {done.returncode}:\n{done.stdout[-20000:]}")
    return done.stdout


def main(repository, cache):
    here = pathlib.Path(__file__).resolve().parent / "ggml"
    source, build = ggml(cache), cache / "build"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []

    def configure(folder, *options):
        return subprocess.run(["cmake", "-S", here, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release",
                               f"-DGGML={source}", f"-DZOOMR={repository}", *options], capture_output=True, text=True)

    def build_and_run(folder, name, *options):
        done = configure(folder, *options)
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)
        run("cmake", "--build", folder, "--target", name, "-j2")
        print(run(folder / name))

    build_and_run(build, "ggml_test")
    few = cache / "few"
    build_and_run(few, "ggml_few", "-DZOOMR_GGML_TYPES=f16", "-DZOOMR_GGML_POLICIES=quest", "-DZOOMR_NATIVE=ON")
    for option, sentence in (("-DZOOMR_GGML_TYPES=q5_0", "ZOOMR_GGML_TYPES has q5_0"),
                             ("-DZOOMR_GGML_POLICIES=quest2", "has quest2, which is no policy")):
        done = configure(few, option)
        if done.returncode == 0 or sentence not in " ".join(done.stderr.split()):
            sys.exit(f"{option} is not refused: {done.stderr}")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve())
