# SPDX-License-Identifier: Apache-2.0
"""Makes a Hugging Face directory of a GGUF file: config.json, generation_config.json, model.safetensors,
tokenizer.json, tokenizer_config.json. get.py calls it in an environment that has the packages of requirements.txt.

    python3 convert.py FILE.gguf DIR [--float32] [--with FILE ...]

What llama.cpp's converter has done to a checkpoint is undone: rows of q and k in another order (Llama), norms that have
1 added (Gemma 3). Matrices of 16 bits stay as they are. Quantised ones are widened to float16, which rounds each weight
by at most one part in 2,048, or exactly to float32.
"""
import argparse
import json
import pathlib
import shutil
import struct
import sys
import tempfile

import numpy as np

import configuration
from gguf_file import Refused


def fail(sentence):
    print(f"convert.py: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def progress(done, total, what):
    """One line that is written again, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def in_halves(rows, heads):
    """Rows of q or k, [heads * head_dim, hidden]: llama.cpp has the two halves of a head's dimensions in turns."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def widened(data, kind):
    """Numbers of a tensor in float32, by its rows; the package gguf knows the quantised ones."""
    if kind == "F32":
        return data.view(np.float32)
    if kind == "F16":
        return data.view(np.float16).astype(np.float32)
    if kind == "BF16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    from gguf import GGMLQuantizationType, dequantize
    with np.errstate(all="ignore"):     # what is not finite is refused by its tensor's name
        return dequantize(data, GGMLQuantizationType[kind]).astype(np.float32, copy=False)


def weights_of(file, tensor, config):
    """A tensor in float32, as the checkpoint had it."""
    with open(tensor.path, "rb") as f:
        f.seek(tensor.begin)
        data = np.frombuffer(f.read(tensor.size), np.uint8)
    if data.size != tensor.size:
        file.refuse(f"the file became shorter while it was read, within the tensor {tensor.name}")
    weights = widened(data.reshape(*tensor.shape[:-1], -1), tensor.kind)
    if not np.isfinite(weights).all():
        file.refuse(f"the tensor {tensor.name} has a NaN or an infinity")
    if file.family == "llama" and tensor.name.endswith("attn_q.weight"):
        return in_halves(weights, config["num_attention_heads"])
    if file.family == "llama" and tensor.name.endswith("attn_k.weight"):
        return in_halves(weights, config["num_key_value_heads"])
    if file.family == "gemma3" and tensor.name.endswith("norm.weight"):
        return weights - 1
    return weights


def stored_type(tensor, float32):
    if tensor.kind in ("F32", "F16", "BF16"):
        return tensor.kind
    return "F32" if float32 else "F16"


def stored(file, tensor, weights, kind):
    if kind == "BF16":      # which numpy does not know; no bit is lost, since the file has no more
        return (np.ascontiguousarray(weights).view(np.uint32) >> 16).astype(np.uint16)
    with np.errstate(over="ignore"):
        narrowed = np.ascontiguousarray(weights, {"F32": np.float32, "F16": np.float16}[kind])
    if not np.isfinite(narrowed).all():
        file.refuse(f"the tensor {tensor.name} has weights up to {np.abs(weights).max():.3g}, which float16 cannot "
                    f"hold; use --float32")
    return narrowed


def write_weights(directory, float32, path):
    """model.safetensors, one tensor after the other: a header, then what it describes."""
    file, header, tensors, end = directory.file, {"__metadata__": {"format": "pt"}}, [], 0
    for name, stored_name in directory.names.items():
        tensor = file.tensors[name]
        kind = stored_type(tensor, float32)
        begin, end = end, end + int(np.prod(tensor.shape, dtype=object)) * (4 if kind == "F32" else 2)
        header[stored_name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": [begin, end]}
        tensors.append((tensor, kind))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for done, (tensor, kind) in enumerate(tensors):
            progress(done, len(tensors), "tensors")
            weights = weights_of(file, tensor, directory.config)
            f.write(stored(file, tensor, weights, kind).data)       # tofile would lose a failure's reason
        progress(len(tensors), len(tensors), "tensors")


def write_json(value, path, indent=1):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(options):
    directory = configuration.describe(options.file)
    options.directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory.parent, prefix=f"{options.directory.name}.") as temporary:
        made = pathlib.Path(temporary) / "made"
        made.mkdir()
        write_json(directory.config, made / "config.json")
        write_json(directory.generation, made / "generation_config.json")
        write_json(directory.words, made / "tokenizer.json", indent=None)
        write_json(directory.words_config, made / "tokenizer_config.json")
        for paper in options.papers:
            shutil.copy(paper, made)
        write_weights(directory, options.float32, made / "model.safetensors")
        made.rename(options.directory)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", metavar="FILE.gguf", type=pathlib.Path)
    parser.add_argument("directory", metavar="DIR", type=pathlib.Path, help="to be made, or empty")
    parser.add_argument("--float32", action="store_true", help="quantised weights as float32, exactly, not as float16")
    parser.add_argument("--with", dest="papers", action="append", default=[], type=pathlib.Path, metavar="FILE",
                        help="to be copied into DIR: a licence")
    given = parser.parse_args()
    try:
        convert(given)
    except Refused as refused:
        fail(refused)
    except OSError as wrong:
        fail(f"{wrong.filename or given.directory}: {wrong.strerror or wrong}")
