# SPDX-License-Identifier: Apache-2.0
"""A Qwen3 decoder, with the tensor names of Hugging Face, that also shows its rotated queries and keys."""
import json
import math
import os
import struct

import torch
from torch import nn
import torch.nn.functional as F

CONFIG = dict(
    architectures=["Qwen3ForCausalLM"], model_type="qwen3", hidden_size=128, intermediate_size=384,
    num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=64, max_position_embeddings=2048,
    rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=False, hidden_act="silu", attention_bias=False)


class RMSNorm(nn.Module):
    def __init__(self, width, eps, start=1.0):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.full((width,), start)), eps

    def forward(self, x):                                       # [.., width]
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


def rotate(x, cos, sin):                                        # x [B, L, heads, D]; cos, sin [L, 1, D/2]
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads, self.kv_heads, self.dim = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        width, eps = c["hidden_size"], c["rms_norm_eps"]
        self.q_proj = nn.Linear(width, self.heads * self.dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.dim, width, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.dim, eps, 1.5), RMSNorm(self.dim, eps, 1.5)

    def forward(self, x, cos, sin, hidden):                     # x [B, L, width]; hidden [B or 1, L, L] bool or None
        B, L, _ = x.shape
        H, G, D = self.heads, self.kv_heads, self.dim
        q = rotate(self.q_norm(self.q_proj(x).view(B, L, H, D)), cos, sin).transpose(1, 2)   # [B, H, L, D]
        k = rotate(self.k_norm(self.k_proj(x).view(B, L, G, D)), cos, sin).transpose(1, 2)   # [B, G, L, D]
        v = self.v_proj(x).view(B, L, G, D).transpose(1, 2)                                  # [B, G, L, D]
        keys, values = k.reshape(B * G, L, D), v.reshape(B * G, L, D)
        scaled = (q / math.sqrt(D)).reshape(B * G, H // G, L, D)
        out = []
        for s in range(0, L, 256):                              # rows s .. e-1 see columns 0 .. e-1 only
            e = min(s + 256, L)
            logits = (scaled[:, :, s:e].reshape(B * G, -1, D) @ keys[:, :e].transpose(1, 2)).view(B, H, e - s, e)
            mask = torch.ones(e - s, e, dtype=torch.bool).triu(s + 1) if hidden is None else hidden[:, None, s:e, :e]
            p = torch.softmax(logits.masked_fill(mask, float("-inf")), -1)
            out.append((p.view(B * G, -1, e) @ values[:, :e]).view(B, H, e - s, D))
        y = torch.cat(out, 2).transpose(1, 2).reshape(B, L, H * D)
        return self.o_proj(y), q, k


class MLP(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.up_proj = nn.Linear(c["hidden_size"], c["intermediate_size"], bias=False)
        self.down_proj = nn.Linear(c["intermediate_size"], c["hidden_size"], bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.input_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.self_attn = Attention(c)
        self.post_attention_layernorm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.mlp = MLP(c)


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.model.layers = nn.ModuleList(Layer(c) for _ in range(c["num_hidden_layers"]))
        self.model.norm = RMSNorm(c["hidden_size"], c["rms_norm_eps"])
        self.lm_head = nn.Linear(c["hidden_size"], c["vocab_size"], bias=False)
        for name, w in self.named_parameters():
            if w.dim() == 2:
                scale = 0.5 if "o_proj" in name or "down_proj" in name else 1.0
                nn.init.normal_(w, std=0.5 if "embed" in name else scale / math.sqrt(w.shape[1]))

    def forward(self, tokens, hidden=None):                     # tokens [B, L]; hidden: True where a key is not seen
        """Returns the states before lm_head [B, L, width], and per layer q [B, H, L, D] and k [B, G, L, D], rotated."""
        L, D = tokens.shape[1], self.config["head_dim"]
        rates = self.config["rope_theta"] ** (-torch.arange(0, D, 2) / D)
        angles = (torch.arange(L)[:, None] * rates)[:, None, :]  # [L, 1, D/2]
        cos, sin = angles.cos(), angles.sin()
        x, seen = self.model.embed_tokens(tokens), []
        for layer in self.model.layers:
            y, q, k = layer.self_attn(layer.input_layernorm(x), cos, sin, hidden)
            x = x + y
            x = x + layer.mlp(layer.post_attention_layernorm(x))
            seen.append((q, k))
        return self.model.norm(x), seen


def save(net, directory):
    """Writes config.json and model.safetensors: an 8-byte length, a JSON header, the raw bfloat16 rows."""
    with open(os.path.join(directory, "config.json"), "w") as f:
        f.write(json.dumps(net.config, indent=2) + "\n")
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, w in net.state_dict().items():
        bits = w.detach().to(torch.bfloat16).view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(w.shape), "data_offsets": [offset, offset + len(bits)]}
        offset += len(bits)
        blobs.append(bits)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def load(directory):
    """Reads what `save` wrote."""
    with open(os.path.join(directory, "config.json")) as f:
        net = Decoder(json.load(f))
    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = torch.frombuffer(bytearray(f.read()), dtype=torch.int16)
    net.load_state_dict({name: data[w["data_offsets"][0] // 2:w["data_offsets"][1] // 2].view(torch.bfloat16)
                         .view(w["shape"]).float() for name, w in header.items() if name != "__metadata__"})
    return net
