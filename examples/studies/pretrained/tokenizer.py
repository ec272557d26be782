# SPDX-License-Identifier: Apache-2.0
"""tokenizer.json and tokenizer_config.json from the vocabulary of a GGUF file.

A GGUF file names how a text is cut into pieces (`tokenizer.ggml.pre`); the patterns are in llama.cpp's source, and
below. It has the merges of a vocabulary over bytes (`tokenizer.ggml.model` gpt2), but not those of a SentencePiece
vocabulary (llama), where each token's score says when it is made; so they are found again.
"""
from gguf_file import shown

UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6   # tokenizer.ggml.token_type; 1: normal
SPACE = "\u2581"                                                # SentencePiece's sign for a space

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


# Texts of control tokens that end a text, whatever else the file says: those of llama.cpp.
ENDS = {"<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>",
        "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<end_of_utterance>"}
LONGEST_TOKEN = 4096            # bytes; longer ones are not read by the decoder either


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def split(pattern):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


# By `tokenizer.ggml.pre`: normalizer, pre-tokenizer, whether a piece that is a token is not merged, whether a text
# begins with BOS where the file does not say.
LLAMA3 = (None, sequence(split(f"{CONTRACTIONS}|{WORDS}|\\p{{N}}{{1,3}}|{OTHERS}"), byte_level(False)), True, True)
PRE = {
    "gpt-2": (None, byte_level(True), False, False),
    "smollm": (None, sequence({"type": "Digits", "individual_digits": True}, byte_level(True)), False, False),
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "qwen2": ({"type": "NFC"}, sequence(split(f"{CONTRACTIONS}|{WORDS}|\\p{{N}}|{OTHERS}"), byte_level(False)),
              False, False),
}


def merges_of(tokens, scores, kinds):
    """The pairs of tokens that make another one, in the order of SentencePiece: the highest score first."""
    ids = {token: i for i, token in enumerate(tokens)}
    found = []
    for made, token in enumerate(tokens):
        if kinds[made] not in (CONTROL, UNKNOWN, USER_DEFINED, BYTE):
            for cut in range(1, len(token)):
                left, right = ids.get(token[:cut]), ids.get(token[cut:])
                if left is not None and right is not None:
                    found.append((-scores[made], left, right))
    return [[tokens[left], tokens[right]] for _, left, right in sorted(found)]


def over_bytes(file):
    """Parts of tokenizer.json, and whether BOS comes first unless the file says otherwise."""
    pre = file.text("tokenizer.ggml.pre", "default")
    if pre not in PRE:
        file.refuse(f"the pre-tokenizer {shown(pre)} is unknown; known are {', '.join(PRE)}")
    normalizer, pre_tokenizer, whole_words, bos_first = PRE[pre]
    merges = [merge.split(" ", 1) for merge in file.list("tokenizer.ggml.merges", str)]
    for merge in merges:
        if len(merge) != 2:
            file.refuse(f"tokenizer.ggml.merges has {shown(merge[0])}, which is no pair of tokens")
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"ignore_merges": whole_words, "byte_fallback": False, "fuse_unk": False, "unk_token": None,
                  "merges": merges},
    }, bos_first


def over_characters(file, tokens, kinds):
    """The same of a SentencePiece vocabulary: a space is a letter, and what is no token is bytes."""
    prefix = file.flag("tokenizer.ggml.add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}]
    if prefix:
        spaces = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces]}
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = id_of(file, "unknown", kinds.index(UNKNOWN) if UNKNOWN in kinds else None)
    scores = file.list("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        file.refuse(f"there are {len(tokens)} tokens, but {len(scores)} of tokenizer.ggml.scores")
    return {
        "normalizer": spaces,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {"ignore_merges": False, "byte_fallback": True, "fuse_unk": True,
                  "unk_token": None if unknown is None else tokens[unknown],
                  "merges": merges_of(tokens, scores, kinds)},
    }, True


def added(i, text, special, normalized):
    return {"id": i, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
            "special": special}


def around(bos, tokens):
    """The step that puts BOS before a text."""
    first = {"SpecialToken": {"id": tokens[bos], "type_id": 0}}
    a, b = ({"Sequence": {"id": name, "type_id": kind}} for kind, name in enumerate("AB"))
    return {"type": "TemplateProcessing", "single": [first, a], "pair": [first, a, b],
            "special_tokens": {tokens[bos]: {"id": tokens[bos], "ids": [bos], "tokens": [tokens[bos]]}}}


def id_of(file, name, otherwise=None):
    """The id of a token that has a name of its own."""
    return file.count(f"tokenizer.ggml.{name}_token_id", 0, len(file.list("tokenizer.ggml.tokens", str)) - 1, otherwise)


def ends(file):
    """The ids that end a text: those that the file names, and control tokens that are known by their text."""
    tokens, kinds = file.list("tokenizer.ggml.tokens", str), file.list("tokenizer.ggml.token_type", int)
    named = {id_of(file, name) for name in ("eos", "eot", "eom")} - {None}
    return sorted(named | {i for i, (t, k) in enumerate(zip(tokens, kinds)) if k == CONTROL and t in ENDS})


def vocabulary(file):
    """The tokens and their types, as many of both, and no more than the model has rows for."""
    tokens, kinds = file.list("tokenizer.ggml.tokens", str), file.list("tokenizer.ggml.token_type", int)
    rows = file.tensors["token_embd.weight"].shape[0]
    if len(tokens) != len(kinds):
        file.refuse(f"there are {len(tokens)} tokens, but {len(kinds)} of tokenizer.ggml.token_type")
    if not 0 < len(tokens) <= rows:
        file.refuse(f"the vocabulary has {len(tokens)} tokens, but the embedding has {rows} rows")
    for i, token in enumerate(tokens):
        if len(token.encode()) > LONGEST_TOKEN:
            file.refuse(f"the token {i} has {len(token.encode())} bytes, but may have at most {LONGEST_TOKEN}")
    return tokens, kinds


def convert(file):
    """(tokenizer.json, tokenizer_config.json) as values, of a gguf_file.Gguf."""
    kind = file.text("tokenizer.ggml.model")
    tokens, kinds = vocabulary(file)
    if kind == "gpt2":
        parts, bos_first = over_bytes(file)
        late = False
    elif kind == "llama":
        # Here spaces of a user's tokens are spaces. SentencePiece looks for these tokens after its normalizer.
        tokens = [t.replace(" ", SPACE) if k == USER_DEFINED else t for t, k in zip(tokens, kinds)]
        parts, bos_first = over_characters(file, tokens, kinds)
        late = True
    else:
        file.refuse(f"the vocabulary {shown(kind)} is unknown; known are gpt2 and llama")
    bos, eos = id_of(file, "bos"), id_of(file, "eos")
    bos_first = file.flag("tokenizer.ggml.add_bos_token", bos_first and bos is not None)
    if bos_first and bos is None:
        file.refuse("tokenizer.ggml.add_bos_token is true, but tokenizer.ggml.bos_token_id is missing")
    names = {name: tokens[i] for name, i in (("bos_token", bos), ("eos_token", eos)) if i is not None}
    text = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added(i, tokens[i], k != USER_DEFINED, late and k == USER_DEFINED) for i, k in enumerate(kinds)
                         if k in (UNKNOWN, CONTROL, USER_DEFINED)],
        "normalizer": parts["normalizer"],
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": around(bos, tokens) if bos_first else None,
        "decoder": parts["decoder"],
        "model": {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "vocab": {t: i for i, (t, k) in enumerate(zip(tokens, kinds)) if k != UNUSED}, **parts["model"]},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": bool(bos_first), **names,
              "clean_up_tokenization_spaces": False}
    if template := file.text("tokenizer.chat_template", None):
        config["chat_template"] = template
    return text, config
