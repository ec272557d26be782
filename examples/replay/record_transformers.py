# SPDX-License-Identifier: Apache-2.0
"""Records what attention sees in a decoder of transformers 5.x as a trace for zoomr-replay (docs/replay.md):
    python3 record_transformers.py MODEL PROMPT_FILE OUT [--tokens N] [--dtype bfloat16] [--class "</think>=4" ...]"""
import argparse, os, re, shlex, sys, torch
from safetensors.torch import save_file
from tokenizers.decoders import DecodeStream
from transformers import AttentionInterface, AutoModelForCausalLM, AutoTokenizer, DynamicCache
from transformers.masking_utils import AttentionMaskInterface, eager_mask

ENDS = re.compile(r"""(?=.*[.!?…])[\s.!?…"'*)\]}»”’]+|.*[。！？؟।][\s"'*)\]}»”’」』]*|.*\n\r?\n.*""", re.S)
rows, layers, said = {}, {}, {"zoomr_trace": 1, "first": 0}  # of each tensor; by numbers in the model; the metadata

def attend(module, query, key, value, mask, **given):  # [1, heads, tokens, dims]; key, value: all that the cache has
    if given.get("sliding_window") is None:
        layer = f"layers.{layers.setdefault(module.layer_idx, len(layers))}."
        said.update({"scale": given["scaling"]} | ({"softcap": given["softcap"]} if given.get("softcap") else {}))
        for name, x in ("q", query), ("k", key), ("v", value):
            rows.setdefault(layer + name, []).append(x[0, :, -query.shape[2]:].transpose(0, 1).clone().cpu())
    return sys.modules[type(module).__module__].eager_attention_forward(module, query, key, value, mask, **given)

def write(path, ids, piece, classes):
    out = {name: torch.cat(parts).contiguous() for name, parts in rows.items()} | {"token_ids": torch.tensor(ids).int()}
    if piece:
        texts = [piece(id) or "" for id in ids]
        flags = [classes.get(text.strip(), int(ENDS.fullmatch(text) is not None)) for text in texts]
        out |= {"text": torch.tensor(list("".join(texts).encode()), dtype=torch.uint8),
                "text_ends": torch.tensor([len(text.encode()) for text in texts]).cumsum(0).int(),
                "token_classes": torch.tensor(flags, dtype=torch.uint8)}
    (_, heads, _), (_, kv_heads, dims), (_, _, value_dim) = (out["layers.0." + name].shape for name in "qkv")
    said.update(layers=len(layers), heads=heads, kv_heads=kv_heads, head_dim=dims, value_dim=value_dim,
                layer_ids=",".join(map(str, layers)))
    save_file(out, path + ".part", {name: str(value) for name, value in said.items()})
    os.rename(path + ".part", path)  # whole, or absent
    said["first"] += len(ids)

@torch.no_grad()
def record(model, prompt, tokens, out, piece=None, classes={}, chunk=256):  # the prompt in chunks, then one by one
    AttentionInterface.register("zoomr_trace", attend), AttentionMaskInterface.register("zoomr_trace", eager_mask)
    model.set_attn_implementation("zoomr_trace")
    ends, cache, files, held = model.generation_config.eos_token_id, DynamicCache(config=model.config), 0, []
    steps, said["prompt"] = [prompt[i:i + chunk] for i in range(0, len(prompt), chunk)], len(prompt)
    if os.path.exists(out + "-0001.safetensors"): sys.exit(out + "-0001.safetensors is there: two traces would mix")
    while steps:
        held, ids = [*held, *steps[0]], torch.tensor([steps.pop(0)], device=model.device)
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits
        if not layers: sys.exit("every layer has a sliding window: there is nothing to record")
        likeliest = int(logits[0, -1].argmax())
        if not steps and tokens > 0 and likeliest not in (ends if isinstance(ends, list) else [ends]):
            steps, tokens = [[likeliest]], tokens - 1
        if len(held) >= chunk or not steps:
            write(f"{out}-{(files := files + 1):04}.safetensors", held, piece, classes), rows.clear(), held.clear()

if __name__ == "__main__":
    cli = argparse.ArgumentParser(description=__doc__)
    cli.add_argument("model"), cli.add_argument("prompt"), cli.add_argument("out")
    cli.add_argument("--tokens", type=int, default=256), cli.add_argument("--dtype", default="float32")
    cli.add_argument("--class", dest="classes", action="append", default=[], help="TEXT=FLAGS of a token")
    given = cli.parse_args()
    said.update(model=os.path.basename(os.path.normpath(given.model)), command=shlex.join(sys.argv))
    words, stream = AutoTokenizer.from_pretrained(given.model), DecodeStream(skip_special_tokens=False)
    classes = {text: int(flags) for text, flags in (one.rsplit("=", 1) for one in given.classes)}
    model, prompt = AutoModelForCausalLM.from_pretrained(given.model, dtype=given.dtype), open(given.prompt).read()
    record(model, words.encode(prompt), given.tokens, given.out, lambda id: stream.step(words.backend_tokenizer, id),
           classes)
