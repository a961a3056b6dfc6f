"""Loads a checkpoint under any layout: plans which rank reads and verifies which blocks, exchanges them, and
fills each rank's tensors.

Why so: docs/dev/training-design.md, "A load costs a rank its own tensors". All ranks learn of damage
together, at the same points, so that none waits for a rank that has given up.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

import torch

from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    DamagedError,
    StoredFile,
    UnreadableError,
    ahead,
    explained,
)
from trainyard_train.checkpointing.digests import BLOCK, Data, Digest, digests_of
from trainyard_train.checkpointing.tensor_files import (
    Offset,
    Piece,
    as_bytes,
    common,
    copy,
    file_name,
    from_bytes,
    read_header,
    slices,
)
from trainyard_train.parallelism.mesh import Mesh

Targets = Mapping[str, tuple[Offset, torch.Tensor]]
"""Tensors to fill, by name, each with its offset in the whole tensor."""
_Interval = tuple[int, int]
_Needs = Mapping[str, Sequence[_Interval]]
"""File → the intervals of block numbers that a rank needs from it."""


@dataclass(frozen=True)
class Header:
    """The header of a file: the pieces of tensors in it."""

    file: StoredFile
    pieces: Mapping[str, Piece]
    metadata: Mapping[str, str]
    digests: Sequence[Digest]
    """Digests of the file's blocks."""

    @staticmethod
    def parse(file: StoredFile, data: Data) -> Header:
        """Read the header of a safetensors file that a capture made.

        Raises:
            DamagedError: the data are no such header.
        """
        try:
            pieces, metadata = read_header(data)
            if any(not len(data) <= each.begin <= each.end <= file.entry.size for each in pieces.values()):
                raise ValueError("a tensor lies outside of the file")
            return Header(file, pieces, metadata, digests_of(data))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{file.name} was altered: its header cannot be read: {error}") from None


@dataclass(frozen=True)
class _Blocks:
    """Consecutive blocks of a file that one rank reads."""

    file: str
    blocks: range
    reader: int
    ranks: Sequence[int]
    """Ranks that need the blocks, the reader among them, in order."""
    held: bool = False
    """Whether all these ranks have the file in memory: the reader verifies it, and each copies from there."""


@dataclass
class Load:
    """One attempt to load a checkpoint, made by all ranks together."""

    checkpoint: Checkpoint
    mesh: Mesh
    key: str
    """Prefix of the load's keys in the ranks' store, used once."""
    headers: dict[str, Header] = field(default_factory=dict, init=False)
    own_header: Header | None = field(default=None, init=False)
    """Header of the file with this rank's number, if there is one."""
    _problem: tuple[str, bool] = field(default=("", False), init=False)
    """What this rank has found wrong, and whether that is damage."""
    _bytes_from_store: int = field(default=0, init=False)
    _altered: set[str] = field(default_factory=set, init=False)
    """Files whose copy in memory this rank has found altered; other ranks may have used them."""
    _needed_pieces: dict[str, list[tuple[Piece, Offset, torch.Tensor]]] = field(
        default_factory=dict, init=False
    )
    """File → its pieces that are needed, each with the offset and tensor that it is copied to."""

    def __post_init__(self) -> None:
        name = file_name(self.mesh.rank)
        if name in self.checkpoint.manifest.files and (data := self._header_bytes(name)):
            self._parse(name, data)
            self.own_header = self.headers.get(name)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors in the files whose headers are known."""
        known = (header.pieces for header in self.headers.values())
        return {name: piece.whole for pieces in known for name, piece in pieces.items()}

    def locate(self, targets: Callable[[], Targets]) -> Targets:
        """Locate the targets: in each rank's own file, or in all files if one rank lacks a target in its own.

        Args:
            targets: called again when more headers are known.

        Raises:
            DamagedError: on all ranks, if a header was altered.
        """
        found = targets()
        lacks = self.own_header is None or bool(self._missing(found))
        if any(self._exchange("index", lacks)):
            self._share_headers()
            found = targets()
        return found

    def fill(self, targets: Targets) -> None:
        """Fill the targets from the checkpoint.

        Raises:
            DamagedError: on all ranks, if a part is missing or was altered; the targets' content is then
                undefined.
        """
        if missing := self._missing(targets):
            self._record(DamagedError(f"{self.checkpoint.name} lacks parts of {missing[0]}"))
        for attempt in count():
            found = self._exchange(f"needs-{attempt}", [self._needs(), sorted(self.checkpoint.held.files)])
            runs = plan(self.checkpoint, [needs for needs, _ in found], [held for _, held in found])
            # This rank's blocks, in the order of all ranks: index in a range, and number of the range.
            mine = ((number, run) for number, run in enumerate(runs) if self.mesh.rank in run.ranks)
            with torch.no_grad():
                self._read(
                    sorted((at, number) for number, run in mine for at in range(len(run.blocks))), runs
                )
            read = self._exchange(f"read-{attempt}", [self._bytes_from_store, sorted(self._altered)])
            altered = {name for _, names in read for name in names}
            if not altered:
                break
            self._forget(altered)
        self.checkpoint.held.bytes_from_store = sum(size for size, _ in read)

    def _forget(self, names: Iterable[str]) -> None:
        """Read these files from the store from now on, and no longer from memory."""
        self._altered.clear()
        for name in names:
            self.checkpoint.held.files.pop(name, None)
            if header := self.headers.get(name):
                fresh = replace(header, file=self.checkpoint.file(name))
                self.own_header = fresh if self.own_header is header else self.own_header
                self.headers[name] = fresh

    def _missing(self, targets: Targets) -> list[str]:
        """Names of targets that the known files do not cover; sets `_needed_pieces`, own file first."""
        self._needed_pieces, missing = {}, []
        order = [self.own_header] if self.own_header else []
        order += [header for name, header in sorted(self.headers.items()) if header is not self.own_header]
        for name, (offset, tensor) in targets.items():
            seen, count, known = set(), 0, False
            for header in order:
                if known and count == tensor.numel():
                    break
                piece = header.pieces.get(name)
                known |= piece is not None
                if piece is None or (piece.offset, piece.shape) in seen:
                    continue  # a piece that several files have counts once
                shared = common(piece.offset, piece.shape, offset, tensor.shape)
                if size := math.prod(max(0, end - begin) for begin, end in shared):
                    seen.add((piece.offset, piece.shape))
                    self._needed_pieces.setdefault(header.file.name, []).append((piece, offset, tensor))
                    count += size
            if not known or count != tensor.numel():
                missing.append(name)
        return missing

    def _needs(self) -> dict[str, list[_Interval]]:
        """Blocks of each file that hold the needed pieces."""
        needs: dict[str, list[_Interval]] = {}
        for name, pieces in self._needed_pieces.items():
            file = self.headers[name].file
            found = sorted(_span(piece, offset, tensor, file) for piece, offset, tensor in pieces)
            needs[name] = list(_joined(found))
            pieces.sort(key=lambda each: each[0].begin)
        return needs

    def _read(self, events: Sequence[tuple[int, int]], runs: Sequence[_Blocks]) -> None:
        """Read, send and receive this rank's blocks, in the order of all ranks; read some blocks ahead."""
        mine = [(runs[number], at) for at, number in events if runs[number].reader == self.mesh.rank]
        store = self.checkpoint.store
        found = ahead(lambda index, buffer: self._block(*mine[index], buffer), range(len(mine)), store)
        received = torch.empty(BLOCK, dtype=torch.uint8, device=self.mesh.device)
        for at, number in events:
            run = runs[number]
            file = self.headers[run.file].file
            start, stop = file.ranges()[run.blocks[at]]
            data, buffer = torch.empty(0), received
            if run.held and run.reader != self.mesh.rank:  # who verifies it
                assert file.held is not None
                self._copy_to_tensors(run.file, start, from_bytes(file.held[start:stop]))
                continue
            if run.reader == self.mesh.rank:
                content, is_in_tensor = next(found)
                data = from_bytes(content)
                if not file.is_held(content):
                    self._bytes_from_store += stop - start
                    self._altered |= {run.file} if run.held and len(run.ranks) > 1 else set()
            else:
                parts = self._parts(run.file, start, stop) if self.mesh.device.type == "cpu" else []
                if is_in_tensor := len(parts) == 1:
                    buffer = from_bytes(parts[0])
            if not run.held:
                data = self.mesh.share(run.reader, run.ranks, data, stop - start, buffer)
            if not is_in_tensor:
                self._copy_to_tensors(run.file, start, data)

    def _block(self, run: _Blocks, at: int, buffer: memoryview | None) -> tuple[memoryview, bool]:
        """Read and verify a block; zeros if it is damaged, so that the ranks that wait for it continue.

        Returns:
            its bytes, and whether it was read directly into its tensors: then those of the first.
        """
        header, number = self.headers[run.file], run.blocks[at]
        start, stop = header.file.ranges()[number]
        try:
            parts = self._parts(run.file, start, stop) if not header.file.held else []
            if len(parts) == 1 or (parts and len(run.ranks) == 1):  # others receive it from one buffer
                header.file.put_block(number, header.digests[number], parts)
                return parts[0], True
            return header.file.block(number, header.digests, buffer)[1], False
        except (DamagedError, OSError) as error:
            self._record(error)
            return memoryview(bytes(stop - start)), False

    def _parts(self, name: str, start: int, stop: int) -> list[memoryview]:
        """Memory that a range of bytes is read into directly; empty if some of them have to be copied."""
        parts: list[memoryview] = []
        at = start
        for piece, offset, tensor, first, end in self._inside(name, start, stop):
            memory, begin = _memory_of(piece, offset, tensor)
            if first != at or first < begin or end > begin + len(memory):
                return []
            parts.append(memory[first - begin : end - begin])
            at = end
        return parts if at == stop else []

    def _inside(
        self, name: str, start: int, stop: int
    ) -> Iterator[tuple[Piece, Offset, torch.Tensor, int, int]]:
        """Needed pieces in a range of a file's bytes, each with the first byte and the end of its part."""
        pieces = self._needed_pieces.get(name, [])
        last = bisect_right(pieces, stop - 1, key=lambda each: each[0].begin)
        for piece, offset, tensor in pieces[:last]:
            first, end = max(piece.begin, start), min(piece.end, stop)
            if first < end:
                yield piece, offset, tensor, first, end

    def _copy_to_tensors(self, name: str, start: int, data: torch.Tensor) -> None:
        """Copy a block's parts to their destinations."""
        for piece, offset, tensor, first, end in self._inside(name, start, start + len(data)):
            values = data[first - start : end - start].view(piece.dtype)
            _copy_elements(values, (first - piece.begin) // piece.dtype.itemsize, piece, offset, tensor)

    def _share_headers(self) -> None:
        """Give all ranks the headers of all files, each of which one rank reads."""
        readers = self.checkpoint.readers(self.mesh.world_size)
        mine = {
            name: self._header_bytes(name) for name, reader in readers.items() if reader == self.mesh.rank
        }
        sizes: dict[str, int] = {}
        for found in self._exchange("headers", {name: len(data) for name, data in mine.items()}):
            sizes.update(found)
        for name, reader in readers.items():
            data = self.mesh.broadcast_bytes(reader, mine.get(name, memoryview(b"")), sizes[name])
            if name not in self.headers:
                self._parse(name, data)
        self._exchange("parsed", None)

    def _header_bytes(self, name: str) -> memoryview:
        """Bytes of a file's header; empty if it is damaged."""
        try:
            file = self.checkpoint.file(name)
            header = file.header()
        except (DamagedError, OSError) as error:
            self._record(error)
            return memoryview(b"")
        self._bytes_from_store += 0 if file.is_held(header) else len(header)
        return header

    def _parse(self, name: str, data: Data) -> None:
        try:
            self.headers[name] = Header.parse(self.checkpoint.file(name), data)
        except DamagedError as error:
            self._record(error)

    def _record(self, error: DamagedError | OSError) -> None:
        if not self._problem[0]:
            text = explained(error) if isinstance(error, OSError) else str(error)
            self._problem = f"{text} (reported by {self.mesh.own_name})", isinstance(error, DamagedError)

    def _exchange(self, point: str, value: Any) -> list[Any]:  # noqa: ANN401 (JSON)
        """Gather every rank's value on all ranks."""
        texts = self.mesh.gather(f"{self.key}/{point}", json.dumps([*self._problem, value]))
        found = [json.loads(text) for text in texts]
        for kind in (True, False):
            if problems := [text for text, is_damage, _ in found if text and is_damage == kind]:
                raise DamagedError(problems[0]) if kind else UnreadableError(problems[0])
        return [each for _, _, each in found]


def plan(checkpoint: Checkpoint, needs: Sequence[_Needs], held: Sequence[Collection[str]]) -> list[_Blocks]:
    """Assign each needed block to one rank that needs it, evenly and with the same result on all ranks.

    Args:
        checkpoint: all ranks the same.
        needs: needed blocks of each rank.
        held: files in the memory of each rank's node; others do not read them from the store.
    """
    runs: list[_Blocks] = []
    blocks_of = [0] * len(needs)
    for name in sorted(checkpoint.manifest.files):
        file = checkpoint.file(name)
        needing = {rank: files[name] for rank, files in enumerate(needs) if files.get(name)}
        for first, last, ranks in _segments(needing) if needing else ():
            candidates = [rank for rank in ranks if name in held[rank]] or ranks
            parts = min(len(candidates), last - first) if file.entry.header else 1
            readers = sorted(candidates, key=blocks_of.__getitem__)
            for part, reader in enumerate(readers[:parts]):
                cut = [first + (last - first) * each // parts for each in (part, part + 1)]
                runs.append(_Blocks(name, range(*cut), reader, ranks, all(name in held[r] for r in ranks)))
                blocks_of[reader] += cut[1] - cut[0]
    return runs


def boxes(shape: Sequence[int], first: int, last: int) -> Iterator[tuple[Offset, tuple[int, ...]]]:
    """Boxes that elements `first` to `last` of a row-major array fill, in order: at most two per dimension.

    Yields:
        where a box begins, and its shape.
    """
    if len(shape) < 2:
        yield ((first,), (last - first,)) if shape else ((), ())
        return
    row = math.prod(shape[1:])
    (top, head), (bottom, tail) = divmod(first, row), divmod(last, row)
    if head:
        for offset, extent in boxes(shape[1:], head, min(row, last - top * row)):
            yield (top, *offset), (1, *extent)
        top += 1
    if top < bottom:
        yield (top, *[0] * (len(shape) - 1)), (bottom - top, *shape[1:])
    if tail and top <= bottom:
        for offset, extent in boxes(shape[1:], 0, tail):
            yield (bottom, *offset), (1, *extent)


def _segments(needing: Mapping[int, Sequence[_Interval]]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield ranges of blocks that the same ranks need: first block, end, and these ranks."""
    cuts = sorted({end for intervals in needing.values() for interval in intervals for end in interval})
    for first, last in pairwise(cuts):
        ranks = [
            rank
            for rank, intervals in needing.items()
            if any(begin <= first and last <= end for begin, end in intervals)
        ]
        if ranks:
            yield first, last, ranks


def _joined(intervals: Iterable[_Interval]) -> Iterator[_Interval]:
    """Merge intervals that touch or overlap; they come in the order of their starts."""
    current: _Interval | None = None
    for begin, end in intervals:
        if current and begin <= current[1]:
            current = current[0], max(current[1], end)
        else:
            if current:
                yield current
            current = begin, end
    if current:
        yield current


def _span(piece: Piece, offset: Offset, tensor: torch.Tensor, file: StoredFile) -> _Interval:
    """Interval of blocks that holds the part of a piece that a tensor needs."""
    first = last = 0
    shared = common(piece.offset, piece.shape, offset, tensor.shape)
    for (begin, end), origin, size in zip(shared, piece.offset, piece.shape, strict=True):
        first, last = first * size + begin - origin, last * size + end - 1 - origin
    size = piece.dtype.itemsize
    return file.block_at(piece.begin + first * size), file.block_at(piece.begin + (last + 1) * size - 1) + 1


def _memory_of(piece: Piece, offset: Offset, tensor: torch.Tensor) -> tuple[memoryview, int]:
    """Memory of a tensor that takes a piece's bytes unchanged (else empty), and its start in the file."""
    alike = tensor.dtype == piece.dtype and tensor.device.type == "cpu" and tensor.is_contiguous()
    if not alike or tensor.is_conj() or tensor.is_neg():
        return memoryview(b""), 0
    if (piece.offset[1:], piece.shape[1:]) != (offset[1:], tensor.shape[1:]):  # rows of another length
        return memoryview(b""), 0
    row = math.prod(piece.shape[1:]) * piece.dtype.itemsize
    first = offset[0] - piece.offset[0] if offset else 0
    return as_bytes(tensor).flatten().numpy().data, piece.begin + first * row


def _copy_elements(
    values: torch.Tensor, first: int, piece: Piece, offset: Offset, tensor: torch.Tensor
) -> None:
    """Copy elements of a piece, from number `first` on, into the tensor."""
    done = 0
    for inside, extent in boxes(piece.shape, first, first + len(values)):
        size = math.prod(extent)
        box = values[done : done + size].view(extent)
        done += size
        begin = tuple(map(sum, zip(piece.offset, inside, strict=True)))
        shared = common(begin, extent, offset, tensor.shape)
        if all(low < high for low, high in shared):
            copy(tensor[slices(shared, offset)], box[slices(shared, begin)])
