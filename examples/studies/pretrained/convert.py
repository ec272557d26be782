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
from gguf import GGMLQuantizationType, GGUFReader, dequantize

import tokenizer

FAMILIES = {  # architecture of the GGUF file: architecture and model type in config.json
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
    "gemma3": ("Gemma3ForCausalLM", "gemma3_text"),
}
MODEL = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
QK_NORMS = {"attn_q_norm.weight": "self_attn.q_norm.weight", "attn_k_norm.weight": "self_attn.k_norm.weight"}
LAYERS = {  # names in a layer, by architecture
    "llama": LAYER | {"ffn_norm.weight": "post_attention_layernorm.weight"},
    "qwen2": LAYER | {"ffn_norm.weight": "post_attention_layernorm.weight"}
    | {f"attn_{m}.bias": f"self_attn.{m}_proj.bias" for m in "qkv"},
    "qwen3": LAYER | QK_NORMS | {"ffn_norm.weight": "post_attention_layernorm.weight"},
    "gemma3": LAYER | QK_NORMS | {"post_attention_norm.weight": "post_attention_layernorm.weight",
                                  "ffn_norm.weight": "pre_feedforward_layernorm.weight",
                                  "post_ffw_norm.weight": "post_feedforward_layernorm.weight"},
}
WINDOWS = {"attention.sliding_window", "attention.sliding_window_pattern", "rope.freq_base_swa",
           "final_logit_softcapping"}                                       # Gemma 3 alone has these
KNOWN = {"block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
         "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
         "attention.layer_norm_rms_epsilon", "rope.freq_base", "rope.dimension_count", "rope.scaling.type",
         "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.finetuned"}
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MISSING = object()


def fail(sentence):
    print(f"convert.py: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def progress(done, total, what):
    """One line that is written again, on a terminal alone."""
    if sys.stderr.isatty():
        print(f"\r{what}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


class Gguf:
    """A GGUF file: tensors, and fields by name."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            if f.read(4) != b"GGUF":
                fail(f"{path} is no GGUF file")
        try:
            reader = GGUFReader(path)
            self.fields = {name: field.contents() for name, field in reader.fields.items()}
        except (ValueError, IndexError, KeyError, TypeError, OverflowError) as wrong:
            fail(f"{path} is a GGUF file that cannot be read: {wrong}")
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.family = self.field("general.architecture")

    def field(self, name, otherwise=MISSING):
        value = self.fields.get(name, otherwise)
        if value is MISSING:
            fail(f"{self.path}: {name} is missing")
        return value

    def of_model(self, name, otherwise=MISSING):
        """A number of the architecture."""
        value = self.field(f"{self.family}.{name}", otherwise)
        if isinstance(value, list):
            if len(set(value)) != 1:
                fail(f"{self.path}: {self.family}.{name} differs between layers")
            value = value[0]
        return value

    def rows(self, name):
        if name not in self.tensors:
            fail(f"{self.path}: the tensor {name} is missing")
        return int(self.tensors[name].shape[-1])


def expect_known(file):
    """What is not known here could change the arithmetic."""
    if file.family not in FAMILIES:
        fail(f"{file.path}: the architecture {file.family!r} is unknown; known are {', '.join(FAMILIES)}")
    known = KNOWN | (WINDOWS if file.family == "gemma3" else set())
    for name in file.fields:
        if name.startswith(f"{file.family}.") and name.removeprefix(f"{file.family}.") not in known:
            fail(f"{file.path}: {name} is unknown")


def llama3_scaling(file, head_dim, theta):
    """rope_scaling of Llama 3.1 and 3.2, whose GGUF files have what each frequency is divided by, [head_dim / 2]."""
    divisors = file.tensors["rope_freqs.weight"].data.astype(np.float64)
    factor = float(divisors.max())
    original, low, high = (LLAMA3[name] for name in
                           ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    turns = original * theta ** (-np.arange(0, head_dim, 2) / head_dim) / (2 * np.pi)
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    if divisors.shape != turns.shape or not np.allclose(1 / divisors, (1 - smooth) / factor + smooth, rtol=1e-4):
        fail(f"{file.path}: the frequencies of rope_freqs.weight are not those of Llama 3")
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def rope_scaling(file, head_dim, theta):
    kind = file.of_model("rope.scaling.type", "none")
    if kind not in ("none", "linear"):
        fail(f"{file.path}: the rotary embedding is scaled by {kind!r}; none and linear are known")
    if "rope_freqs.weight" in file.tensors:
        return llama3_scaling(file, head_dim, theta)
    return {"rope_type": "linear", "factor": file.of_model("rope.scaling.factor")} if kind == "linear" else None


def config_of(file):
    """config.json as a value."""
    architecture, model_type = FAMILIES[file.family]
    hidden, heads = file.of_model("embedding_length"), file.of_model("attention.head_count")
    layers, kv_heads = file.of_model("block_count"), file.of_model("attention.head_count_kv", heads)
    head_dim = file.of_model("attention.key_length", hidden // heads)
    theta = file.of_model("rope.freq_base", 10000.0)
    for name in ("attention.value_length", "rope.dimension_count"):
        if file.of_model(name, head_dim) != head_dim:
            fail(f"{file.path}: {file.family}.{name} is {file.of_model(name)}, but a head has {head_dim} dimensions")
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": file.rows("token_embd.weight"),
        "hidden_size": hidden,
        "intermediate_size": file.of_model("feed_forward_length"),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": file.of_model("context_length"),
        "rms_norm_eps": shortest(file.of_model("attention.layer_norm_rms_epsilon")),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, head_dim, theta),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": file.family == "qwen2",
        "bos_token_id": file.field("tokenizer.ggml.bos_token_id", None),
        "eos_token_id": file.field("tokenizer.ggml.eos_token_id", None),
    }
    if file.family == "gemma3":
        largest = layers == 62                      # 27B divides by the width of its heads if they filled the stream
        period = file.of_model("attention.sliding_window_pattern", 6)
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": hidden // heads if largest else head_dim,
            "sliding_window": file.of_model("attention.sliding_window"),
            "layer_types": [f"{'sliding' if (layer + 1) % period else 'full'}_attention" for layer in range(layers)],
            "rope_local_base_freq": file.of_model("rope.freq_base_swa", 10000.0),
            "final_logit_softcapping": file.of_model("final_logit_softcapping", None),
            "attn_logit_softcapping": None,
        }
    else:
        config["hidden_act"] = "silu"
    return config


def shortest(number):
    """A float32 as it was written: 1e-06, not 9.999999974752427e-07."""
    return float(str(np.float32(number)))


def name_of(file, name):
    """The name of a tensor in the checkpoint."""
    if name in MODEL:
        return MODEL[name]
    block, _, rest = name.partition(".")
    layer, _, rest = rest.partition(".")
    if block != "blk" or not layer.isdecimal() or rest not in LAYERS[file.family]:
        fail(f"{file.path}: the tensor {name} has no place in a model of the architecture {file.family}")
    return f"model.layers.{layer}.{LAYERS[file.family][rest]}"


def in_halves(rows, heads):
    """Rows of q or k, [heads * head_dim, hidden]: llama.cpp has the two halves of a head's dimensions in turns."""
    return rows.reshape(heads, -1, 2, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)


def weights_of(file, tensor, config):
    """A tensor in float32, as the checkpoint had it."""
    weights = dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    if file.family == "llama" and tensor.name.endswith("attn_q.weight"):
        return in_halves(weights, config["num_attention_heads"])
    if file.family == "llama" and tensor.name.endswith("attn_k.weight"):
        return in_halves(weights, config["num_key_value_heads"])
    if file.family == "gemma3" and tensor.name.endswith("norm.weight"):
        return weights - 1
    return weights


def stored_type(tensor, float32):
    kinds = GGMLQuantizationType
    if tensor.tensor_type in (kinds.F32, kinds.F16, kinds.BF16):
        return tensor.tensor_type.name
    return "F32" if float32 else "F16"


def stored(weights, kind):
    if kind == "BF16":      # which numpy does not know; no bit is lost, since the file has no more
        return (np.ascontiguousarray(weights).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(weights, {"F32": np.float32, "F16": np.float16}[kind])


def write_weights(file, config, float32, path):
    """model.safetensors, one tensor after the other: a header, then what it describes."""
    header, tensors, end = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in file.tensors.items():
        if name == "rope_freqs.weight":     # in config.json
            continue
        kind, shape = stored_type(tensor, float32), [int(n) for n in reversed(tensor.shape)]
        begin, end = end, end + int(np.prod(shape)) * (4 if kind == "F32" else 2)
        header[name_of(file, name)] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
        tensors.append((tensor, kind))
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for done, (tensor, kind) in enumerate(tensors):
            progress(done, len(tensors), "tensors")
            f.write(stored(weights_of(file, tensor, config), kind).data)    # tofile would lose a failure's reason
        progress(len(tensors), len(tensors), "tensors")


def write_json(value, path, indent=1):
    path.write_text(json.dumps(value, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(options):
    file = Gguf(options.file)
    expect_known(file)
    config = config_of(file)
    try:
        words, words_config = tokenizer.convert(file.field)
    except tokenizer.Unknown as unknown:
        fail(f"{file.path}: {unknown}")
    ends = [file.field(f"tokenizer.ggml.{name}_token_id", None) for name in ("eos", "eot")]
    generation = {"bos_token_id": config["bos_token_id"], "eos_token_id": sorted({i for i in ends if i is not None})}
    options.directory.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.directory.parent, prefix=f"{options.directory.name}.") as temporary:
        made = pathlib.Path(temporary) / "made"
        made.mkdir()
        write_json(config, made / "config.json")
        write_json(generation, made / "generation_config.json")
        write_json(words, made / "tokenizer.json", indent=None)
        write_json(words_config, made / "tokenizer_config.json")
        for paper in options.papers:
            shutil.copy(paper, made)
        write_weights(file, config, options.float32, made / "model.safetensors")
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
    except OSError as wrong:
        fail(f"{wrong.filename or given.directory}: {wrong.strerror or wrong}")
