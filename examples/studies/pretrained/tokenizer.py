# SPDX-License-Identifier: Apache-2.0
"""tokenizer.json and tokenizer_config.json from the vocabulary of a GGUF file.

A GGUF file names how a text is cut into pieces (`tokenizer.ggml.pre`); the patterns are in llama.cpp's source, and
below. It has the merges of a vocabulary over bytes (`tokenizer.ggml.model` gpt2), but not those of a SentencePiece
vocabulary (llama), where each token's score says when it is made; so they are found again.
"""

UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 2, 3, 4, 5, 6   # tokenizer.ggml.token_type; 1: normal
SPACE = "\u2581"                                                # SentencePiece's sign for a space

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
OTHERS = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Unknown(Exception):
    """A vocabulary that is not known here."""


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


def over_bytes(field, tokens):
    """Parts of tokenizer.json, and whether BOS comes first unless the file says otherwise."""
    pre = field("tokenizer.ggml.pre", "default")
    if pre not in PRE:
        raise Unknown(f"the pre-tokenizer {pre!r} is unknown; known are {', '.join(PRE)}")
    normalizer, pre_tokenizer, whole_words, bos_first = PRE[pre]
    merges = [merge.split(" ", 1) for merge in field("tokenizer.ggml.merges")]
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"ignore_merges": whole_words, "byte_fallback": False, "fuse_unk": False, "unk_token": None,
                  "merges": merges},
    }, bos_first


def over_characters(field, tokens, kinds):
    """The same of a SentencePiece vocabulary: a space is a letter, and what is no token is bytes."""
    prefix = field("tokenizer.ggml.add_space_prefix", True)
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    steps = [{"type": "Replace", "pattern": {"String": SPACE}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}]
    if prefix:
        spaces = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, spaces]}
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    unknown = field("tokenizer.ggml.unknown_token_id", kinds.index(UNKNOWN) if UNKNOWN in kinds else None)
    return {
        "normalizer": spaces,
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": steps},
        "model": {"ignore_merges": False, "byte_fallback": True, "fuse_unk": True,
                  "unk_token": None if unknown is None else tokens[unknown],
                  "merges": merges_of(tokens, field("tokenizer.ggml.scores"), kinds)},
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


def convert(field):
    """(tokenizer.json, tokenizer_config.json) as values.

    field(key, otherwise)   a value of the GGUF file; without `otherwise` a missing one is a complaint
    """
    kind = field("tokenizer.ggml.model")
    tokens, kinds = list(field("tokenizer.ggml.tokens")), list(field("tokenizer.ggml.token_type"))
    if kind == "gpt2":
        parts, bos_first = over_bytes(field, tokens)
        late = False
    elif kind == "llama":
        # Here spaces of a user's tokens are spaces. SentencePiece looks for these tokens after its normalizer.
        tokens = [t.replace(" ", SPACE) if k == USER_DEFINED else t for t, k in zip(tokens, kinds)]
        parts, bos_first = over_characters(field, tokens, kinds)
        late = True
    else:
        raise Unknown(f"the vocabulary {kind!r} is unknown; known are gpt2 and llama")
    bos, eos = field("tokenizer.ggml.bos_token_id", None), field("tokenizer.ggml.eos_token_id", None)
    bos_first = field("tokenizer.ggml.add_bos_token", bos_first and bos is not None)
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
    if template := field("tokenizer.chat_template", None):
        config["chat_template"] = template
    return text, config
