# SPDX-License-Identifier: Apache-2.0
"""Attention over long contexts on one CPU core, and a forward pass of `model.Decoder` that goes on from earlier keys.

B sequences, T tokens of this pass, P earlier tokens, H query heads, G KV heads, D head_dim
"""
import math
import os
import sys

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ledger"))
from model import rotate  # noqa: E402

ROWS = 128          # queries whose attention is in memory at once
SINKS = 4           # first tokens that a window also sees


def blocks(q, k, window):
    """(rows s .. e-1, their last visible column, what is hidden from them or None), block by block."""
    T, past = q.shape[2], k.shape[2] - q.shape[2]
    for s in range(0, T, ROWS):
        e = min(s + ROWS, T)
        at = torch.arange(past + s, past + e)[:, None]
        column = torch.arange(past + e)[None]
        hidden = column > at
        if window:
            hidden |= (column <= at - (window - SINKS)) & (column >= SINKS)
        yield s, e, past + e, hidden


class Attend(torch.autograd.Function):
    """softmax(q k / sqrt(D)) v, causal. The backward pass computes the probabilities again instead of keeping them."""

    @staticmethod
    def probabilities(q, k, s, e, end, hidden, peak=None):
        B, H, _, D = q.shape
        G = k.shape[1]
        rows = (q[:, :, s:e] / math.sqrt(D)).reshape(B * G, -1, D)
        logits = (rows @ k[:, :, :end].reshape(B * G, end, D).transpose(1, 2)).view(B * H, e - s, end)
        first = 0 if hidden[:, SINKS:end - (e - s)].any() else end - (e - s)     # only the last columns, or a window
        logits[:, :, first:].masked_fill_(hidden[:, first:], -math.inf)
        if peak is None:
            peak = logits.logsumexp(-1, keepdim=True)
        return logits.sub_(peak).exp_().view(B * G, -1, end), peak

    @staticmethod
    def forward(ctx, q, k, v, window):          # q [B, H, T, D]; k, v [B, G, P + T, D]; the result [B, H, T, D]
        B, H, T, D = q.shape
        G = k.shape[1]
        out, peaks = torch.empty_like(q), []
        for s, e, end, hidden in blocks(q, k, window):
            p, peak = Attend.probabilities(q, k, s, e, end, hidden)
            out[:, :, s:e] = (p @ v[:, :, :end].reshape(B * G, end, D)).view(B, H, e - s, D)
            peaks.append(peak)
        ctx.save_for_backward(q, k, v, out, *peaks)
        ctx.window = window
        return out

    @staticmethod
    def backward(ctx, grad):
        q, k, v, out, *peaks = ctx.saved_tensors
        B, H, T, D = q.shape
        G = k.shape[1]
        dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for (s, e, end, hidden), peak in zip(blocks(q, k, ctx.window), peaks):
            p, _ = Attend.probabilities(q, k, s, e, end, hidden, peak)
            d = grad[:, :, s:e].reshape(B * G, -1, D)
            dv[:, :, :end] += (p.transpose(1, 2) @ d).view(B, G, end, D)
            mean = (grad[:, :, s:e] * out[:, :, s:e]).sum(-1).reshape(B * G, -1, 1)
            dlogits = (d @ v[:, :, :end].reshape(B * G, end, D).transpose(1, 2)).sub_(mean).mul_(p).div_(math.sqrt(D))
            dq[:, :, s:e] = (dlogits @ k[:, :, :end].reshape(B * G, end, D)).view(B, H, e - s, D)
            rows = q[:, :, s:e].reshape(B * G, -1, D)
            dk[:, :, :end] += (dlogits.transpose(1, 2) @ rows).view(B, G, end, D)
        return dq, dk, dv, None


def attend_layer(a, x, cos, sin, past, window):
    """`model.Attention` after earlier tokens: what it adds to x [B, T, width], queries, keys and values so far."""
    B, T, _ = x.shape
    q = rotate(a.q_norm(a.q_proj(x).view(B, T, a.heads, a.dim)), cos, sin).transpose(1, 2)
    k = rotate(a.k_norm(a.k_proj(x).view(B, T, a.kv_heads, a.dim)), cos, sin).transpose(1, 2)
    v = a.v_proj(x).view(B, T, a.kv_heads, a.dim).transpose(1, 2)
    if past is not None:
        k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
    y = Attend.apply(q.contiguous(), k.contiguous(), v.contiguous(), window)
    return a.o_proj(y.transpose(1, 2).reshape(B, T, -1)), q, k, v


def forward(net, tokens, past=None, window=0, watched=None):
    """logits [B, T, V] of `tokens` [B, T] after earlier ones, and the keys and values to go on from.

    past    per layer (k, v) [B, G, P, D], without gradient; None at the beginning
    window  last tokens that a query sees, SINKS first ones included; 0: all
    watched  if given, a list that gets (queries [B, H, T, D], keys [B, G, P + T, D]) of each layer, with gradient
    """
    c = net.config
    first = past[0][0].shape[2] if past else 0
    rates = c["rope_theta"] ** (-torch.arange(0, c["head_dim"], 2) / c["head_dim"])
    angles = (torch.arange(first, first + tokens.shape[1])[:, None] * rates)[:, None, :]
    x, seen = net.model.embed_tokens(tokens), []
    for i, layer in enumerate(net.model.layers):
        y, q, k, v = attend_layer(layer.self_attn, layer.input_layernorm(x), angles.cos(), angles.sin(),
                                  past[i] if past else None, window)
        x = x + y
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        seen.append((k.detach(), v.detach()))
        if watched is not None:
            watched.append((q, k))
    return net.lm_head(net.model.norm(x)), seen
