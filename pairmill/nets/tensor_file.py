"""Files of tensors in the safetensors format, written and read a tensor at a time.

The format (huggingface/safetensors, "Format"): 8 bytes with the length of the header, little-endian; the header, JSON
with dtype, shape and place of each tensor; then their bytes. The library itself takes all tensors at once and reads
local files only. Ours digests what it writes on the way and reads rows from any seekable file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, BinaryIO

import torch
from torch import Tensor

from pairmill.digest import Digest
from pairmill.errors import InputError, InternalError

_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
_LONGEST_HEADER = 100_000_000


@dataclass(frozen=True)
class Kind:
    """Dtype and shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def from_tensor(cls, tensor: Tensor) -> Kind:
        """Return those of a tensor; of a sharded one, the shape of the whole."""
        return cls(tensor.dtype, tuple(tensor.shape))

    @classmethod
    def parse(cls, raw: Any) -> Kind:
        """Read what :meth:`to_json` gave. Raises KeyError, TypeError or ValueError if it did not."""
        code, shape = raw
        return cls(_DTYPES[code], tuple(int(size) for size in shape))

    def to_json(self) -> list[Any]:
        """Return JSON-like values: the format's name of the dtype, and the shape."""
        return [_CODES[self.dtype], list(self.shape)]

    @property
    def size(self) -> int:
        """Bytes of the tensor."""
        return prod(self.shape) * int(self.dtype.itemsize)

    @property
    def row(self) -> int:
        """Bytes of a row (of dimension 0); of a tensor without dimensions, its bytes."""
        return prod(self.shape[1:]) * int(self.dtype.itemsize)


def write(
    file: BinaryIO,
    kinds: Mapping[str, Kind],
    tensors: Iterable[tuple[str, Tensor]],
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Write a file; return the digest of its bytes.

    Args:
        file: open for writing, at its start.
        kinds: dtype and shape of each tensor, in the order of the tensors.
        tensors: the tensors with their names. They can be made one at a time; none is kept.
        metadata: texts in the header.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    end = 0
    for name, kind in kinds.items():
        start, end = end, end + kind.size
        code, shape = kind.to_json()
        header[name] = {"dtype": code, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # the tensors begin at a multiple of 8
    digest = Digest()
    for data in (len(text).to_bytes(8, "little"), text):
        digest.update(data)
        file.write(data)
    names = iter(kinds.items())
    for name, tensor in tensors:
        if (name, Kind.from_tensor(tensor)) != next(names, None):
            raise InternalError("a tensor is not the announced one", where=name, got=str(Kind.from_tensor(tensor)))
        held = bytes_of(tensor)
        digest.update(held)
        file.write(held)
    if (left := next(names, None)) is not None:
        raise InternalError("a tensor is missing", where=left[0])
    return digest.text()


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, row by row: a view of its memory if it is contiguous and on the CPU."""
    return memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())


class Reader:
    """A file of tensors. ``kinds`` and ``metadata`` are from its header.

    Raises:
        InputError: it is not one, or is cut short.
    """

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._file, self._where = file, where
        length = int.from_bytes(self._read(8), "little")
        if length > _LONGEST_HEADER:
            raise InputError("not a safetensors file", where=where, got=f"a header of {length:,} bytes")
        try:
            header = json.loads(self._read(length))
            self.metadata: dict[str, str] = header.pop("__metadata__", {})
            self.kinds = {name: Kind.parse((item["dtype"], item["shape"])) for name, item in header.items()}
            self._starts = {name: 8 + length + int(item["data_offsets"][0]) for name, item in header.items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError("not a safetensors file", where=where, got="a malformed header") from error

    def rows(self, name: str, first: int = 0, count: int | None = None) -> Tensor:
        """Read rows ``[first, first + count)`` of a tensor, by default all, on the CPU."""
        kind = self.kinds[name]
        shape = kind.shape if count is None else (count, *kind.shape[1:])
        tensor = torch.empty(shape, dtype=kind.dtype)
        if tensor.numel():
            self._file.seek(self._starts[name] + first * kind.row)
            self._fill(bytes_of(tensor))
        return tensor

    def _read(self, length: int) -> bytes:
        data = bytearray(length)
        self._fill(memoryview(data))
        return bytes(data)

    def _fill(self, data: memoryview) -> None:
        done = 0
        while done < len(data):
            got = self._file.readinto(data[done:])  # type: ignore[attr-defined]
            if not got:
                raise InputError(
                    "is cut short", where=self._where, hint="delete its folder; the checkpoint before is used"
                )
            done += got
