# SPDX-License-Identifier: Apache-2.0
"""All files of a Hugging Face directory but the weights, as values, from a GGUF file whose header is read; and that its
tensors are those of such a model. Python's standard library is enough for it.
"""
import math
import struct
from typing import NamedTuple

import tokenizer
from gguf_file import Gguf, Refused, shown

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


class Directory(NamedTuple):
    file: Gguf
    config: dict            # config.json
    generation: dict        # generation_config.json
    words: dict             # tokenizer.json
    words_config: dict      # tokenizer_config.json
    names: dict             # of tensors: of the GGUF file, and in model.safetensors


def describe(path):
    """What a directory of this file would have. Whatever is wrong with the file's header is said by Refused."""
    file = Gguf(path)
    expect_known(file)
    config = config_of(file)
    expect_tensors(file, config)
    words, words_config = tokenizer.convert(file)
    ends = tokenizer.ends(file)
    generation = {"bos_token_id": config["bos_token_id"], "eos_token_id": ends}
    return Directory(file, config, generation, words, words_config,
                     {name: name_of(file, name) for name in file.tensors if name != "rope_freqs.weight"})


def expect_known(file):
    """What is not known here could change the arithmetic."""
    if file.family not in FAMILIES:
        file.refuse(f"the architecture {shown(file.family)} is unknown; known are {', '.join(FAMILIES)}")
    known = KNOWN | (WINDOWS if file.family == "gemma3" else set())
    for name in file.fields:
        if name.startswith(f"{file.family}.") and name.removeprefix(f"{file.family}.") not in known:
            file.refuse(f"the field {shown(name)} is unknown")


def llama3_scaling(file, head_dim, theta):
    """rope_scaling of Llama 3.1 and 3.2, whose GGUF files have what each frequency is divided by, [head_dim / 2]."""
    tensor = file.tensors["rope_freqs.weight"]
    expect_shape(file, "rope_freqs.weight", (head_dim // 2,))
    if tensor.kind != "F32":
        file.refuse(f"rope_freqs.weight is stored as {tensor.kind}, but must be F32")
    with open(tensor.path, "rb") as data:
        data.seek(tensor.begin)
        divisors = struct.unpack(f"<{head_dim // 2}f", data.read(tensor.size))
    factor = max(divisors)
    original, low, high = (LLAMA3[name] for name in
                           ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor"))
    for at, divisor in enumerate(divisors):
        turns = original * theta ** (-2 * at / head_dim) / (2 * math.pi)
        smooth = min(max((turns - low) / (high - low), 0), 1)
        if not divisor >= 1 or not math.isclose(1 / divisor, (1 - smooth) / factor + smooth, rel_tol=1e-4):
            file.refuse("the frequencies of rope_freqs.weight are not those of Llama 3")
    return {"rope_type": "llama3", "factor": factor, **LLAMA3}


def rope_scaling(file, head_dim, theta):
    """As llama.cpp has it: a factor without a type is linear, and none, 0 and 1 leave angles as they are."""
    kind = file.text(f"{file.family}.rope.scaling.type", "linear")
    if kind not in ("none", "linear"):
        file.refuse(f"the rotary embedding is scaled by {shown(kind)}; none and linear are known")
    factor = file.number(f"{file.family}.rope.scaling.factor", 0, 1e6, 0)
    if 0 < factor < 1:
        file.refuse(f"{file.family}.rope.scaling.factor is {factor:g}, but must be 1 or more")
    scaled = kind == "linear" and factor > 1
    if "rope_freqs.weight" in file.tensors:
        if scaled:
            file.refuse(f"the rotary embedding is scaled twice, by rope_freqs.weight and by "
                        f"{file.family}.rope.scaling.factor ({factor:g}), which a config.json cannot say")
        return llama3_scaling(file, head_dim, theta)
    return {"rope_type": "linear", "factor": factor} if scaled else None


def config_of(file):
    """config.json as a value."""
    architecture, model_type = FAMILIES[file.family]

    def count(name, most, *otherwise):
        return file.count(f"{file.family}.{name}", 1, most, *otherwise)

    hidden, heads = count("embedding_length", 1 << 16), count("attention.head_count", 1 << 10)
    layers, kv_heads = count("block_count", 1 << 10), count("attention.head_count_kv", 1 << 10, heads)
    head_dim = count("attention.key_length", 1 << 10, hidden // heads)
    theta = file.number(f"{file.family}.rope.freq_base", 1, 1e12, 10000.0)
    if heads % kv_heads != 0:
        file.refuse(f"{heads} heads cannot share {kv_heads} KV heads alike")
    if head_dim < 2 or head_dim % 2 != 0:
        file.refuse(f"a head has {head_dim} dimensions, but must have an even number of them")
    for name in ("attention.value_length", "rope.dimension_count"):
        if (other := count(name, 1 << 10, head_dim)) != head_dim:
            file.refuse(f"{file.family}.{name} is {other}, but a head has {head_dim} dimensions")
    if "token_embd.weight" not in file.tensors:
        file.refuse("the tensor token_embd.weight is missing")
    rows = file.tensors["token_embd.weight"].shape[0]
    config = {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": rows,
        "hidden_size": hidden,
        "intermediate_size": count("feed_forward_length", 1 << 20),
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "max_position_embeddings": count("context_length", 1 << 28),
        "rms_norm_eps": shortest(file.number(f"{file.family}.attention.layer_norm_rms_epsilon", 0, 1)),
        "rope_theta": theta,
        "rope_scaling": rope_scaling(file, head_dim, theta),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": file.family == "qwen2",
        "bos_token_id": file.count("tokenizer.ggml.bos_token_id", 0, rows - 1, None),
        "eos_token_id": file.count("tokenizer.ggml.eos_token_id", 0, rows - 1, None),
    }
    if file.family == "gemma3":
        largest = layers == 62                      # 27B divides by the width of its heads if they filled the stream
        period = count("attention.sliding_window_pattern", 1 << 10, 6)
        config |= {
            "hidden_activation": "gelu_pytorch_tanh",
            "query_pre_attn_scalar": hidden // heads if largest else head_dim,
            "sliding_window": count("attention.sliding_window", 1 << 28),
            "layer_types": [f"{'sliding' if (layer + 1) % period else 'full'}_attention" for layer in range(layers)],
            "rope_local_base_freq": file.number("gemma3.rope.freq_base_swa", 1, 1e12, 10000.0),
            "final_logit_softcapping": file.number("gemma3.final_logit_softcapping", 1e-6, 1e6, None),
            "attn_logit_softcapping": None,
        }
    else:
        config["hidden_act"] = "silu"
    return config


def shortest(number):
    """A float32 as it was written: 1e-06, not 9.999999974752427e-07."""
    near = (float(f"{number:.{digits}g}") for digits in range(1, 10))
    return next((text for text in near if struct.pack("<f", text) == struct.pack("<f", number)), number)


def name_of(file, name):
    """The name of a tensor in the checkpoint."""
    if name in MODEL:
        return MODEL[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{LAYERS[file.family][rest]}"


def shapes(file, config):
    """The shape of each tensor that the model has, by its name in the GGUF file."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head_dim = config["head_dim"]
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    inside = {
        "attn_q.weight": (q, hidden), "attn_k.weight": (kv, hidden), "attn_v.weight": (kv, hidden),
        "attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,), "attn_output.weight": (hidden, q),
        "attn_q_norm.weight": (head_dim,), "attn_k_norm.weight": (head_dim,),
        "ffn_gate.weight": (inner, hidden), "ffn_up.weight": (inner, hidden), "ffn_down.weight": (hidden, inner),
    }
    table = (config["vocab_size"], hidden)
    found = {"token_embd.weight": table, "output_norm.weight": (hidden,)}
    for layer in range(config["num_hidden_layers"]):
        found |= {f"blk.{layer}.{name}": inside.get(name, (hidden,)) for name in LAYERS[file.family]}
    if not config["tie_word_embeddings"]:
        found["output.weight"] = table
    return found


def expect_shape(file, name, shape):
    if file.tensors[name].shape != shape:
        file.refuse(f"the tensor {name} has the shape {list(file.tensors[name].shape)}, but must have {list(shape)}")


def expect_tensors(file, config):
    """The file has every tensor that its numbers ask for, and no other one."""
    expected, layers = shapes(file, config), config["num_hidden_layers"]
    for name in file.tensors:
        if name not in expected and name != "rope_freqs.weight":
            file.refuse(f"the tensor {shown(name)} has no place in a model of the architecture {file.family} with "
                        f"{layers} layers")
    missing = [name for name in expected if name not in file.tensors]
    if missing:
        more = f", and {len(missing) - 1} more are" if len(missing) > 1 else " is"
        file.refuse(f"the tensor {missing[0]}{more} missing; {file.family}.block_count is {layers}")
    for name, shape in expected.items():
        expect_shape(file, name, shape)
