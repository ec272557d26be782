# SPDX-License-Identifier: Apache-2.0
"""tokenizer.json of a byte-level tokenizer without merges: byte b has the id b, <bos> the id 256."""
import json
import os

BOS = 256


def alphabet():
    """The character that stands for each byte in byte-level vocabularies, by byte: a space is "\u0120"."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    of = {b: chr(b) for b in visible}
    of.update({b: chr(256 + i) for i, b in enumerate(hidden)})
    return [of[b] for b in range(256)]


def save(directory):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    bos = {"id": BOS, "content": "<bos>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
           "special": True}
    file = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": [bos], "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}},
                                                     {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [], "special_tokens": {"<bos>": {"id": "<bos>", "ids": [BOS], "tokens": ["<bos>"]}}},
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {c: b for b, c in enumerate(alphabet())}, "merges": []}}
    with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as f:
        f.write(json.dumps(file, ensure_ascii=False, indent=1) + "\n")
