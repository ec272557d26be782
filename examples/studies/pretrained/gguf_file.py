# SPDX-License-Identifier: Apache-2.0
"""What stands in the header of a GGUF file, or of all parts of a split one: fields by name, and where each tensor lies.

Nothing is believed that the file's size contradicts: a count claims no more than the bytes that are left, and each
tensor lies in the file, beside the others. Python's standard library is enough for it.
"""
import pathlib
import re
import struct
from typing import NamedTuple

# By their number: name, numbers in a block, bytes of a block.
TENSOR_TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136), 29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2),
    34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17), 40: ("NVFP4", 64, 36),
}
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
LONGEST_NAME = 65535            # bytes
LONGEST_TEXT = 1 << 26          # bytes
MOST_ELEMENTS = 1 << 24         # of an array: the largest in use are vocabularies of some 300,000 tokens
MOST_PARTS = 65535
PART_NAME = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
MISSING = object()


class Refused(Exception):
    """A file that is not read: one sentence that says why."""


class Tensor(NamedTuple):
    name: str
    path: pathlib.Path
    kind: str           # in TENSOR_TYPES
    shape: tuple        # rows first
    begin: int          # bytes from the beginning of the file
    size: int           # bytes


def shown(text):
    """A text from the file in a message: one line, and not a long one."""
    return repr(text if len(text) <= 80 else f"{text[:80]}…")


class Header:
    """Reads one file, field after field."""

    def __init__(self, path, file, size):
        self.path, self.file, self.size = path, file, size
        self.at = 0

    def refuse(self, sentence):
        raise Refused(f"{self.path}: {sentence}")

    def take(self, count, what):
        if count > self.size - self.at:
            self.refuse(f"the file ends within {what}")
        read = self.file.read(count)
        if len(read) != count:
            self.refuse(f"the file became shorter while it was read, within {what}")
        self.at += count
        return read

    def numbers(self, letter, count, what):
        return struct.unpack(f"<{count}{letter}", self.take(count * struct.calcsize(f"<{letter}"), what))

    def number(self, letter, what):
        return self.numbers(letter, 1, what)[0]

    def string(self, what, most=LONGEST_TEXT):
        length = self.number("Q", what)
        if length > most:
            self.refuse(f"{what} has {length} bytes, but may have at most {most}")
        try:
            return self.take(length, what).decode()
        except UnicodeDecodeError:
            self.refuse(f"{what} is not UTF-8")

    def count(self, what, least_bytes):
        """How many there are of what takes so many bytes at least."""
        count = self.number("Q", f"the number of {what}")
        if count > (self.size - self.at) // least_bytes:
            self.refuse(f"the file claims {count} {what}, but has {self.size - self.at} bytes for them")
        return count

    def value(self, kind, name):
        what = f"the field {shown(name)}"
        if kind == STRING:
            return self.string(what)
        if kind in SCALARS:
            return self.number(SCALARS[kind], what)
        if kind != ARRAY:
            self.refuse(f"{what} has the unknown type {kind}")
        kind = self.number("I", what)
        if kind == ARRAY:
            self.refuse(f"{what} is an array of arrays")
        if kind != STRING and kind not in SCALARS:
            self.refuse(f"{what} is an array of the unknown type {kind}")
        count = self.count(f"elements of {what}", 8 if kind == STRING else struct.calcsize(SCALARS[kind]))
        if count > MOST_ELEMENTS:
            self.refuse(f"{what} has {count} elements, but may have at most {MOST_ELEMENTS}")
        if kind == STRING:
            return [self.string(what) for _ in range(count)]
        return list(self.numbers(SCALARS[kind], count, what))

    def begin(self):
        """The numbers of tensors and fields."""
        if self.take(4, "its first bytes") != b"GGUF":
            raise Refused(f"{self.path} is no GGUF file")
        version = self.number("I", "its version")
        if version & 0xffff == 0 and version != 0:
            self.refuse("the GGUF file is big-endian; only little-endian ones are read (llama.cpp's "
                        "gguf_convert_endian.py turns it)")
        if version not in (2, 3):
            self.refuse(f"the GGUF file has the version {version}; 2 and 3 are known")
        return self.count("tensors", 24), self.count("fields", 13)

    def fields(self, count):
        found = {}
        for _ in range(count):
            name = self.string("the name of a field", LONGEST_NAME)
            if name in found:
                self.refuse(f"the field {shown(name)} is there twice")
            found[name] = self.value(self.number("I", f"the field {shown(name)}"), name)
        return found

    def tensor(self):
        """A tensor whose place counts from where all tensors begin."""
        name = self.string("the name of a tensor", LONGEST_NAME)
        what = f"the tensor {shown(name)}"
        dimensions = self.number("I", what)
        if not 1 <= dimensions <= 4:
            self.refuse(f"{what} has {dimensions} dimensions, but must have 1 to 4")
        shape = self.numbers("Q", dimensions, what)
        kind, begin = self.number("I", what), self.number("Q", what)
        if kind not in TENSOR_TYPES:
            self.refuse(f"{what} has the type {kind}, which is not known here")
        kind, block, bytes_of_block = TENSOR_TYPES[kind]
        numbers = 1
        for extent in shape:
            numbers *= extent
        if numbers == 0:
            self.refuse(f"{what} has no numbers")
        if shape[0] % block != 0:
            self.refuse(f"{what} has rows of {shape[0]} numbers, but {kind} has them in blocks of {block}")
        return Tensor(name, self.path, kind, shape[::-1], begin, numbers // block * bytes_of_block)

    def tensors(self, count, alignment):
        found = [self.tensor() for _ in range(count)]
        if alignment.bit_count() != 1 or alignment > 1 << 20:
            self.refuse(f"general.alignment is {alignment}, but must be a power of two, at most {1 << 20}")
        data = -(-self.at // alignment) * alignment
        by_name, end, last = {}, 0, None
        for tensor in sorted(found, key=lambda tensor: tensor.begin):
            if tensor.name in by_name:
                self.refuse(f"the tensor {shown(tensor.name)} is there twice")
            if tensor.begin < end:
                self.refuse(f"the tensors {shown(last)} and {shown(tensor.name)} overlap")
            end, last = tensor.begin + tensor.size, tensor.name
            if data + end > self.size:
                self.refuse(f"the tensor {shown(last)} ends at byte {data + end}, but the file at byte {self.size}")
            by_name[last] = tensor._replace(begin=data + tensor.begin)
        return {tensor.name: by_name[tensor.name] for tensor in found}     # in the order of the header


class Gguf:
    """A GGUF model, whole: fields and tensors by name.

    fields  of the first part, which has all that are of the model
    """

    def __init__(self, path):
        self.path = path
        self.fields, self.tensors = read_part(path)
        if self.count("split.count", 0, MOST_PARTS, 0) > 1:
            self.join_parts()
        self.family = self.text("general.architecture")

    def refuse(self, sentence):
        raise Refused(f"{self.path}: {sentence}")

    def field(self, name, otherwise=MISSING):
        value = self.fields.get(name, otherwise)
        if value is MISSING:
            self.refuse(f"{name} is missing")
        return value

    def wrong(self, name, what):
        value = self.fields[name]
        said = "a list" if isinstance(value, list) else shown(value) if isinstance(value, str) else value
        self.refuse(f"{name} must be {what}, but is {said}")

    def text(self, name, otherwise=MISSING):
        value = self.field(name, otherwise)
        return value if value is otherwise or isinstance(value, str) else self.wrong(name, "a text")

    def flag(self, name, otherwise=MISSING):
        value = self.field(name, otherwise)
        return value if value is otherwise or isinstance(value, bool) else self.wrong(name, "true or false")

    def count(self, name, least, most, otherwise=MISSING):
        value = self.field(name, otherwise)
        if value is otherwise:
            return value
        value = self.same_for_layers(name, value)
        if type(value) is not int or not least <= value <= most:
            self.wrong(name, f"a whole number between {least} and {most}")
        return value

    def number(self, name, least, most, otherwise=MISSING):
        value = self.field(name, otherwise)
        if value is otherwise:
            return value
        value = self.same_for_layers(name, value)
        if type(value) not in (int, float) or not least <= value <= most:
            self.wrong(name, f"a number between {least:g} and {most:g}")
        return float(value)

    def list(self, name, kind):
        value = self.field(name)
        if not isinstance(value, list) or (value and type(value[0]) is not kind):
            self.wrong(name, {str: "a list of texts", int: "a list of whole numbers", float: "a list of numbers"}[kind])
        return value

    def same_for_layers(self, name, value):
        """Some files have a number for each layer."""
        if not isinstance(value, list):
            return value
        if not value or any(other != value[0] for other in value):
            self.refuse(f"{name} differs between layers")
        return value[0]

    def join_parts(self):
        """Takes what the other parts have, which lie beside this one."""
        paths = self.parts()
        counted, tensors = None, {}
        for number, path in enumerate(paths):
            part_fields, part_tensors = read_part(path)
            if (part_fields.get("split.no"), part_fields.get("split.count")) != (number, len(paths)):
                raise Refused(f"{path} does not say that it is part {number + 1} of {len(paths)} of a split model")
            for name in part_tensors:
                if name in tensors:
                    raise Refused(f"{path}: the tensor {shown(name)} is in {tensors[name].path} too")
            tensors |= part_tensors
            if number == 0:
                self.fields = part_fields
                counted = self.count("split.tensors.count", 0, 1 << 31, None)
        self.tensors = tensors
        if counted is not None and counted != len(tensors):
            self.refuse(f"the {len(paths)} parts of the split model have {len(tensors)} tensors, not {counted}")

    def parts(self):
        """The paths of all parts, in their order."""
        count = self.count("split.count", 0, MOST_PARTS)
        number = self.count("split.no", 0, count - 1)
        said = f"it is part {number + 1} of {count} of a split model"
        named = PART_NAME.fullmatch(self.path.name)
        if not named or (int(named[2]), int(named[3])) != (number + 1, count):
            stem = named[1] if named else self.path.name.removesuffix(".gguf")
            others = [f"{stem}-{n + 1:05d}-of-{count:05d}.gguf" for n in range(min(count, 5)) if n != number]
            self.refuse(f"{said}, but not named so: it must be {stem}-{number + 1:05d}-of-{count:05d}.gguf, and beside "
                        f"it lie {', '.join(others[:3])}{' and so on' if count > 4 else ''}")
        paths = [self.path.with_name(f"{named[1]}-{n + 1:05d}-of-{count:05d}.gguf") for n in range(count)]
        absent = [path.name for path in paths if not path.exists()]
        if absent:
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            self.refuse(f"{said}, and beside it is no {', '.join(absent[:3])}{more}")
        return paths


def read_part(path):
    """The fields and the tensors of one file."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise Refused(f"{path} is no regular file")
    with open(path, "rb") as file:
        header = Header(path, file, file.seek(0, 2))
        file.seek(0)
        tensor_count, field_count = header.begin()
        fields = header.fields(field_count)
        alignment = fields.get("general.alignment", 32)
        if type(alignment) is not int or alignment < 1:
            header.refuse("general.alignment must be a whole number")
        return fields, header.tensors(tensor_count, alignment)
