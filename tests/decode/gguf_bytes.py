# SPDX-License-Identifier: Apache-2.0
"""GGUF files of a small model, byte by byte, by Python's standard library: what a test wants to be odd is odd."""
import random
import struct

U16, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 2, 4, 5, 6, 7, 8, 9, 10
LETTERS = {U16: "H", U32: "I", I32: "i", F32: "f", BOOL: "?", U64: "Q"}
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 2, 16, 4, 2, 4, 24


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, content):
    if isinstance(content, list):
        return struct.pack("<IQ", kind, len(content)) + b"".join(value(kind, element) for element in content)
    if kind == STRING:
        return string(content)
    return struct.pack(f"<{LETTERS[kind]}", content)


def field(name, kind, content):
    return string(name) + struct.pack("<I", ARRAY if isinstance(content, list) else kind) + value(kind, content)


class Model:
    """Fields and tensors of a whole model, to be changed before they are written."""

    def __init__(self, family="llama", words="gpt2"):
        draw = random.Random(1)
        bytes_of = {"gpt2": [*map(chr, range(33, 127)), "th", "he", "the"],
                    "llama": ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"the", "th", "the"]}
        tokens = [*bytes_of[words], "<|eom_id|>", "<|endoftext|>", "<s>", "</s>"]
        kinds = [{"<unk>": UNKNOWN}.get(t, BYTE if t.startswith("<0x") else CONTROL if len(t) > 3 else NORMAL)
                 for t in tokens]
        self.fields = {
            "general.architecture": (STRING, family),
            f"{family}.block_count": (U32, LAYERS), f"{family}.context_length": (U32, 512),
            f"{family}.embedding_length": (U32, HIDDEN), f"{family}.feed_forward_length": (U32, INNER),
            f"{family}.attention.head_count": (U32, HEADS), f"{family}.attention.head_count_kv": (U32, KV_HEADS),
            f"{family}.attention.layer_norm_rms_epsilon": (F32, 1e-5), f"{family}.rope.freq_base": (F32, 10000.0),
            f"{family}.attention.key_length": (U32, HEAD_DIM),
            "tokenizer.ggml.model": (STRING, words), "tokenizer.ggml.tokens": (STRING, tokens),
            "tokenizer.ggml.token_type": (I32, kinds),
            "tokenizer.ggml.bos_token_id": (U32, len(tokens) - 2),
            "tokenizer.ggml.eos_token_id": (U32, len(tokens) - 1),
            "tokenizer.ggml.add_bos_token": (BOOL, True),
        }
        if words == "gpt2":
            self.fields["tokenizer.ggml.pre"] = STRING, "gpt-2"
            self.fields["tokenizer.ggml.merges"] = STRING, ["t h", "h e", "th e"]
        else:
            self.fields["tokenizer.ggml.scores"] = F32, [float(-i) for i in range(len(tokens))]
        if family == "gemma3":
            self.fields["gemma3.attention.sliding_window"] = U32, 8
        self.tensors = {}       # name: (shape, type, bytes)

        def add(name, *shape):
            numbers = [draw.gauss(0, 1) for _ in range(shape[0] * (shape[1] if len(shape) == 2 else 1))]
            self.tensors[name] = (shape, 0, struct.pack(f"<{len(numbers)}f", *numbers))

        add("token_embd.weight", len(tokens), HIDDEN)
        add("output_norm.weight", HIDDEN)
        if family != "gemma3":
            add("output.weight", len(tokens), HIDDEN)
        q, kv = HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM
        for layer in range(LAYERS):
            at = f"blk.{layer}."
            for name, *shape in (("attn_norm", HIDDEN), ("ffn_norm", HIDDEN), ("attn_q", q, HIDDEN),
                                 ("attn_k", kv, HIDDEN), ("attn_v", kv, HIDDEN), ("attn_output", HIDDEN, q),
                                 ("ffn_gate", INNER, HIDDEN), ("ffn_up", INNER, HIDDEN), ("ffn_down", HIDDEN, INNER)):
                add(f"{at}{name}.weight", *shape)
            if family == "qwen2":
                for name, width in (("attn_q", q), ("attn_k", kv), ("attn_v", kv)):
                    add(f"{at}{name}.bias", width)
            if family in ("qwen3", "gemma3"):
                add(f"{at}attn_q_norm.weight", HEAD_DIM), add(f"{at}attn_k_norm.weight", HEAD_DIM)
            if family == "gemma3":
                add(f"{at}post_attention_norm.weight", HIDDEN), add(f"{at}post_ffw_norm.weight", HIDDEN)

    def set(self, name, kind, content):
        """The model itself, with this field."""
        self.fields[name] = kind, content
        return self

    def without(self, tensor):
        del self.tensors[tensor]
        return self

    def data(self):
        """The file's bytes."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.fields))
        head += b"".join(field(name, *content) for name, content in self.fields.items())
        begin, body = 0, []
        for name, (shape, kind, numbers) in self.tensors.items():
            head += string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *reversed(shape))
            head += struct.pack("<IQ", kind, begin)
            body.append(numbers + bytes(-len(numbers) % 32))
            begin += len(body[-1])
        return head + bytes(-len(head) % 32) + b"".join(body)

    def parts(self, count):
        """The bytes of each file of the model when it is split."""
        names, files = list(self.tensors), []
        per = -(-len(names) // count)
        for number in range(count):
            part = Model.__new__(Model)
            part.fields = (dict(self.fields) if number == 0 else {}) | {
                "split.no": (U16, number), "split.count": (U16, count), "split.tensors.count": (I32, len(names))}
            part.tensors = {name: self.tensors[name] for name in names[number * per:(number + 1) * per]}
            files.append(part.data())
        return files


def damaged(data, draw):
    """The bytes with a few faults, most of them in the header."""
    data = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 4, 8))):
        at = draw.randrange(min(len(data), draw.choice((64, 1024, 8192, 1 << 30))))
        kind = draw.randrange(8)
        if kind < 2:
            data[at] ^= 1 << draw.randrange(8)
        elif kind == 2:
            data[at] = draw.choice((0, 1, 0x7f, 0x80, 0xff, draw.randrange(256)))
        elif kind < 5:      # a count, an offset, a length
            size = draw.choice((2, 4, 8))
            extreme = draw.choice((0, 1, 2, 3, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1,
                                   1 << 4 * size, len(data), draw.randrange(1 << 8 * size)))
            data[at:at + size] = extreme.to_bytes(size, "little")
        elif kind == 5:
            del data[at:at + draw.choice((1, 4, 8, 32, 1 << 20))]
        elif kind == 6:
            data[at:at] = draw.randbytes(draw.choice((1, 4, 8, 32)))
        else:
            other = draw.randrange(len(data)) if data else 0
            data[at:at] = data[other:other + draw.choice((4, 8, 64, 256))]
        if not data:
            break
    return bytes(data)
