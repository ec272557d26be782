# SPDX-License-Identifier: Apache-2.0
"""GGUF files of the fixtures, as llama.cpp's converter writes them: there and back again. pretrained_test.py runs this
where get.py has made its environment, with the packages gguf and numpy.

    python3 gguf_fixtures.py CONVERT.PY FIXTURES OUT

makes OUT/MODEL.TOKENIZER by convert.py, for a few of both, and compares config and weights with the fixture. Tokenizers
are compared by the caller. Quantised weights that float16 cannot hold are refused, and with --float32 they are kept.
"""
import json
import pathlib
import struct
import subprocess
import sys

import gguf
import numpy as np

CONVERT, FIXTURES, OUT = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
PAIRS = [("llama", "llama3"), ("llama", "llama2"), ("llama", "gpt2"), ("qwen2", "qwen2"), ("qwen3", "qwen2"),
         ("gemma3", "gemma"), ("gemma3_wide", "gemma")]
PRE = {"llama3": "llama-bpe", "gpt2": "gpt-2", "qwen2": "qwen2", "llama2": "default", "gemma": "default"}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
NAMES = {"embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm", "input_layernorm": "attn_norm",
         "q_proj": "attn_q", "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate",
         "up_proj": "ffn_up", "down_proj": "ffn_down", "q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


def tensors(folder):
    """{name: (numbers in float32, type)} of all safetensors files of a folder."""
    found = {}
    for path in folder.glob("*.safetensors"):
        data = path.read_bytes()
        size = struct.unpack("<Q", data[:8])[0]
        for name, at in json.loads(data[8:8 + size]).items():
            if name != "__metadata__":
                begin, end = (8 + size + offset for offset in at["data_offsets"])
                kind = at["dtype"]
                raw = np.frombuffer(data[begin:end], {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[kind])
                wide = (raw.astype(np.uint32) << 16).view(np.float32) if kind == "BF16" else raw.astype(np.float32)
                found[name] = wide.reshape(at["shape"]), kind
    return found


def config_of(model):
    """A fixture's config.json, changed where a GGUF file could not say it."""
    config = json.loads((FIXTURES / model / "config.json").read_text())
    if model == "llama":
        config |= {"rope_theta": 500000.0, "rope_scaling": LLAMA3}
    if model == "gemma3":
        config["query_pre_attn_scalar"] = config["head_dim"]
    return config


def tokens_of(name):
    """The tokens of a fixture's tokenizer, in the order of their ids."""
    file = json.loads((FIXTURES / "tokenizers" / name / "tokenizer.json").read_text())
    ids = file["model"]["vocab"] | {token["content"]: token["id"] for token in file["added_tokens"]}
    return [text for text, _ in sorted(ids.items(), key=lambda item: item[1])]


def with_rows_for(tokens, config, weights):
    """The embedding, and the head, get a row for each token where they have fewer."""
    more = len(tokens) - config["vocab_size"]
    if more > 0:
        for name in {"model.embed_tokens.weight", "lm_head.weight"} & weights.keys():
            numbers, kind = weights[name]
            weights[name] = np.pad(numbers, ((0, more), (0, 0))), kind
        config["vocab_size"] = len(tokens)


def gguf_name(name, gemma):
    if name.startswith("model.layers."):
        _, _, layer, *_, part, kind = name.split(".")
        norms = {"post_attention_layernorm": "post_attention_norm" if gemma else "ffn_norm",
                 "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
        return f"blk.{layer}.{(NAMES | norms)[part]}.{kind}"
    return next(there for here, there in NAMES.items() if here in name) + ".weight"


def write_model(to, config, weights):
    arch = config["model_type"].removesuffix("_text")
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    to.add_context_length(config["max_position_embeddings"])
    to.add_embedding_length(config["hidden_size"])
    to.add_block_count(config["num_hidden_layers"])
    to.add_feed_forward_length(config["intermediate_size"])
    to.add_head_count(heads)
    to.add_head_count_kv(kv_heads)
    to.add_key_length(head_dim)
    to.add_value_length(head_dim)
    to.add_layer_norm_rms_eps(config["rms_norm_eps"])
    both = config.get("rope_parameters", {}).get("full_attention", config)
    to.add_rope_freq_base(both["rope_theta"])
    if both.get("rope_type") == "linear":
        to.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        to.add_rope_scaling_factor(both["factor"])
    if arch == "gemma3":
        to.add_sliding_window(config["sliding_window"])
        if config["num_hidden_layers"] == 2:
            to.add_uint32("gemma3.attention.sliding_window_pattern", 2)
        if cap := config["final_logit_softcapping"]:
            to.add_float32("gemma3.final_logit_softcapping", cap)
    if arch == "llama":
        to.add_tensor("rope_freqs.weight", divisors(head_dim, config))
    for name, (numbers, kind) in weights.items():
        if arch == "llama" and ("q_proj" in name or "k_proj" in name):   # halves of a head's dimensions in turns
            n = heads if "q_proj" in name else kv_heads
            numbers = numbers.reshape(n, 2, head_dim // 2, -1).swapaxes(1, 2).reshape(numbers.shape)
        if arch == "gemma3" and "norm" in name:
            numbers = numbers + 1
        if numbers.ndim == 1 or kind == "F32":
            to.add_tensor(gguf_name(name, arch == "gemma3"), numbers)
        elif kind == "F16":
            to.add_tensor(gguf_name(name, arch == "gemma3"), numbers.astype(np.float16))
        elif kind == "Q8_0":
            to.add_tensor(gguf_name(name, arch == "gemma3"), gguf.quantize(numbers, gguf.GGMLQuantizationType.Q8_0),
                          raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            bits = (np.ascontiguousarray(numbers).view(np.uint32) >> 16).astype(np.uint16)
            to.add_tensor(gguf_name(name, arch == "gemma3"), bits.view(np.uint8),
                          raw_dtype=gguf.GGMLQuantizationType.BF16)


def divisors(head_dim, config):
    """What llama.cpp divides each frequency of Llama 3 by, as its converter computes it."""
    found = []
    for d in range(0, head_dim, 2):
        wavelength = 2 * np.pi * config["rope_theta"] ** (d / head_dim)
        if wavelength < 8192 / 4:
            found.append(1.0)
        elif wavelength > 8192 / 1:
            found.append(8.0)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            found.append(1 / ((1 - smooth) / 8 + smooth))
    return np.array(found, np.float32)


def write_tokenizer(to, name):
    file = json.loads((FIXTURES / "tokenizers" / name / "tokenizer.json").read_text())
    model, added = file["model"], {token["content"]: token for token in file["added_tokens"]}
    tokens = tokens_of(name)
    ids = {text: i for i, text in enumerate(tokens)}
    merges = [merge if isinstance(merge, list) else merge.split(" ") for merge in model["merges"]]
    kinds = gguf.TokenType
    types = [(kinds.CONTROL if added[t]["special"] else kinds.USER_DEFINED) if t in added else
             kinds.BYTE if model["byte_fallback"] and t.startswith("<0x") else kinds.NORMAL for t in tokens]
    if model["byte_fallback"]:
        made = {}
        for rank, (left, right) in enumerate(merges):
            made.setdefault(left + right, rank)
        to.add_tokenizer_model("llama")
        to.add_token_scores([float(-made.get(t, 0)) for t in tokens])
        to.add_add_space_prefix(name == "llama2")
        to.add_unk_token_id(ids["<unk>"])
    else:
        to.add_tokenizer_model("gpt2")
        to.add_token_merges([" ".join(merge) for merge in merges])
    to.add_tokenizer_pre(PRE[name])
    to.add_token_list(tokens)
    to.add_token_types(types)
    template = json.dumps(file["post_processor"])
    first = next((t for t in added if f'"ids": [{ids[t]}]' in template), None)
    if first is not None:
        to.add_bos_token_id(ids[first])
    to.add_add_bos_token(first is not None)
    to.add_eos_token_id(2)


def expect_alike(config, weights, folder):
    made = json.loads((folder / "config.json").read_text())
    for key, value in config.items():
        if key in made and key not in ("bos_token_id", "eos_token_id", "torch_dtype"):
            assert made[key] == value, f"{folder}: {key} is {made[key]}, not {value}"
    if "rope_parameters" in config:
        rope = config["rope_parameters"]
        assert made["rope_scaling"] == {"rope_type": "linear", "factor": rope["full_attention"]["factor"]}
        assert (made["rope_theta"], made["rope_local_base_freq"]) == (1e6, 1e4)
    found = tensors(folder)
    assert found.keys() == weights.keys(), found.keys() ^ weights.keys()
    for name, (numbers, kind) in weights.items():
        close = 1e-6 if "norm" in name else 0       # to which 1 was added
        assert np.allclose(found[name][0], numbers, 0, close), f"{folder}: {name} has other numbers"
        assert found[name][1] == ("F32" if numbers.ndim == 1 else kind), f"{folder}: {name} is {found[name][1]}"


for model, words in PAIRS:
    config, weights = config_of(model), tensors(FIXTURES / model)
    with_rows_for(tokens_of(words), config, weights)
    path, folder = OUT / f"{model}.{words}.gguf", OUT / f"{model}.{words}"
    to = gguf.GGUFWriter(path, config["model_type"].removesuffix("_text"))
    write_model(to, config, weights)
    write_tokenizer(to, words)
    to.write_header_to_file(), to.write_kv_data_to_file(), to.write_tensors_to_file()
    to.close()
    subprocess.run([sys.executable, CONVERT, path, folder], check=True)
    expect_alike(config, weights, folder)
    print(model, words)


def expect_overflow_named():
    """Blocks of Q8_0 whose scale is float16's largest number: their weights are beyond it."""
    config, weights = config_of("llama"), tensors(FIXTURES / "llama")
    with_rows_for(tokens_of("llama3"), config, weights)
    name = next(name for name in weights if name.endswith("up_proj.weight"))
    weights[name] = np.full_like(weights[name][0], 1e5), "Q8_0"
    path = OUT / "large.gguf"
    to = gguf.GGUFWriter(path, "llama")
    write_model(to, config, weights)
    write_tokenizer(to, "llama3")
    to.write_header_to_file(), to.write_kv_data_to_file(), to.write_tensors_to_file()
    to.close()
    done = subprocess.run([sys.executable, CONVERT, path, OUT / "large"], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert "which float16 cannot hold; use --float32" in done.stderr, done.stderr
    subprocess.run([sys.executable, CONVERT, path, OUT / "large", "--float32"], check=True)
    assert np.allclose(tensors(OUT / "large")[name][0], 1e5, rtol=1e-2)


expect_overflow_named()
