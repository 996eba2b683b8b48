"""Reading token files and raw id files, whole or block by block."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator

import numpy as np

from lookup_tools.errors import ChecksumError, FormatError, ParameterError, TruncatedError
from lookup_tools.system.compressed import ByteStream
from lookup_tools.tokens import layout
from lookup_tools.tokens.stream import Ends, Ids, TokenInfo, TokenStream

PathArgument = str | os.PathLike[str]
Block = tuple[Ids, Ends]
_SLICE_BYTES = 1 << 22
_PACKED = (".zst", ".gz", ".xz")


def load_tokens(path: PathArgument, *, vocab_size: int | None = None) -> TokenStream:
    """A token file, or a raw `.u16`/`.u32` file (one document, no fingerprint), in memory.

    zstd, gzip and xz are recognised by content. `vocab_size` is for raw files, whose ids are
    otherwise not checked. Takes 4 bytes a token.

    Raises:
        FormatError: neither form, another version, ids outside the vocabulary, damaged.
        TruncatedError: the file ends early, or an odd number of bytes.
        ChecksumError: the contents do not match the digest.
    """
    with _opened(os.fspath(path)) as reader:
        return TokenStream(*_joined(_stored_blocks(reader, vocab_size)), reader.info)


def read_token_info(path: PathArgument) -> TokenInfo:
    """Whose ids a file holds, from its head alone; nothing is known about raw files."""
    with _opened(os.fspath(path)) as reader:
        return reader.info


def iter_token_blocks(
    path: PathArgument, block_tokens: int = 1 << 22, *, vocab_size: int | None = None
) -> Iterator[Block]:
    """The tokens in blocks of `block_tokens` (the last may be shorter): (ids, ends).

    Ends are positions in the block, 0 to len, where documents end. Memory is two blocks. What was
    yielded before an error is not to be trusted: the digest is known only at the end.

    Raises:
        As `load_tokens`.
    """
    if block_tokens < 1:
        raise ParameterError(f"block_tokens is {block_tokens}, expected at least 1")
    with _opened(os.fspath(path)) as reader:
        yield from _reblocked(_stored_blocks(reader, vocab_size), block_tokens)


def _joined(blocks: Iterator[Block]) -> Block:
    ids, size = np.empty(1 << 16, np.int32), 0
    all_ends = [np.empty(0, np.int64)]
    for block, ends in blocks:
        all_ends.append(ends + size)
        while size + block.size > ids.size:
            # In place, so that growing needs no second copy.
            ids.resize(2 * ids.size, refcheck=False)
        ids[size : size + block.size] = block
        size += block.size
    ids.resize(size, refcheck=False)
    return ids, np.concatenate(all_ends)


def _reblocked(blocks: Iterator[Block], block_tokens: int) -> Iterator[Block]:
    ids_parts: list[Ids] = []
    ends_parts: list[Ends] = []
    held = 0
    for ids, ends in blocks:
        ids_parts.append(ids)
        ends_parts.append(ends + held)
        held += ids.size
        # Only when a token follows are all ends at the block's last position known.
        if held > block_tokens:
            ids, ends = np.concatenate(ids_parts), np.concatenate(ends_parts)
            while ids.size > block_tokens:
                count = int(np.searchsorted(ends, block_tokens, side="right"))
                yield ids[:block_tokens], ends[:count]
                ids, ends = ids[block_tokens:], ends[count:] - block_tokens
            ids_parts, ends_parts, held = [ids], [ends], ids.size
    if held or any(ends.size for ends in ends_parts):
        yield np.concatenate(ids_parts), np.concatenate(ends_parts)


def _stored_blocks(reader: _Reader, vocab_size: int | None) -> Iterator[Block]:
    if reader.is_raw:
        return _raw_blocks(reader, vocab_size)
    known = reader.info.vocab_size
    limit = known if vocab_size is None or known is None else min(known, vocab_size)
    return _container_blocks(reader, limit)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[_Reader]:
    with ByteStream(path, _damaged) as stream:
        yield _Reader(stream)


class _Reader:
    """Exact reads that feed the digest; the head is read on opening.

    `info` and `width` come from the head; for raw files, `is_raw` is set and `first` holds the
    bytes read so far.
    """

    def __init__(self, stream: ByteStream) -> None:
        self.name = stream.name
        self._stream = stream
        self.digest = hashlib.sha256()
        self.first = stream.read(len(layout.MAGIC))
        self.is_raw = self.first != layout.MAGIC
        if self.is_raw:
            self.info = TokenInfo()
            self.width = _raw_width(self.name, self.first, stream.compression is not None)
        else:
            self.digest.update(self.first)
            self.info, self.width = self._read_head()

    def _read_head(self) -> tuple[TokenInfo, int]:
        rest = self.read(layout.HEAD.size - len(self.first), "the head")
        _, version, width, meta_bytes = layout.HEAD.unpack(self.first + rest)
        if version != layout.VERSION:
            raise FormatError(
                f"{self.name}: token file version {version}, expected {layout.VERSION}: "
                "use the lookup-tools that wrote it"
            )
        if width not in (2, 4) or meta_bytes > layout.MAX_META_BYTES:
            raise FormatError(f"{self.name}: impossible head (id width {width}): damaged file")
        info = layout.decode_meta(self.read(meta_bytes, "the head"), self.name)
        if layout.width_for(info.vocab_size or 1) != width:
            raise FormatError(f"{self.name}: id width {width} contradicts the vocabulary size")
        return info, width

    def read(self, size: int, part: str) -> bytes:
        """Exactly `size` bytes; memory grows with what is there, not with what is claimed."""
        slices = []
        left = size
        while left:
            data = self._stream.read(min(left, _SLICE_BYTES))
            if not data:
                raise TruncatedError(
                    f"{self.name}: ends inside {part}, {left} bytes are missing: "
                    "write or fetch it again"
                )
            self.digest.update(data)
            slices.append(data)
            left -= len(data)
        return b"".join(slices)

    def some(self, size: int) -> bytes:
        """Up to `size` bytes, empty at the end; not part of the digest."""
        return self._stream.read(size)


def _container_blocks(reader: _Reader, vocab_size: int | None) -> Iterator[Block]:
    width = reader.width
    n_tokens = n_documents = last_end = 0
    ids_digest = hashlib.sha256()
    while True:
        size, n_ends = layout.BLOCK.unpack(reader.read(layout.BLOCK.size, "a block"))
        if size == layout.END_MARK and n_ends == 0:
            break
        if size > layout.BLOCK_TOKENS:
            raise FormatError(f"{reader.name}: a block claims {size} tokens: damaged file")
        stored = reader.read(size * width, "a block")
        ids_digest.update(stored)
        ids = np.frombuffer(stored, layout.dtype_of(width))
        ends = np.frombuffer(reader.read(4 * n_ends, "a block"), "<u4")
        block = (
            layout.check_ids(ids, vocab_size, reader.name, n_tokens),
            layout.check_ends(ends, size, reader.name),
        )
        last_end = n_tokens + int(ends[-1]) if n_ends else last_end
        n_tokens, n_documents = n_tokens + size, n_documents + n_ends
        yield block
    _check_foot(reader, (n_tokens, n_documents, ids_digest.digest()), last_end)


def _check_foot(reader: _Reader, found: tuple[int, int, bytes], last_end: int) -> None:
    claimed = layout.FOOT.unpack(reader.read(layout.FOOT.size, "the foot"))
    computed = reader.digest.digest()
    tail = reader.read(layout.DIGEST_BYTES + len(layout.END_MAGIC), "the foot")
    if tail[: layout.DIGEST_BYTES] != computed or claimed[2] != found[2]:
        raise ChecksumError(f"{reader.name}: the contents do not match their digest: damaged file")
    if tail[layout.DIGEST_BYTES :] != layout.END_MAGIC or reader.some(1):
        raise FormatError(f"{reader.name}: does not end where its foot does: damaged file")
    if claimed != found or last_end != found[0]:
        raise FormatError(
            f"{reader.name}: the foot says {claimed[0]} tokens in {claimed[1]} documents, found "
            f"{found[0]} in {found[1]}: damaged file"
        )


def _raw_blocks(reader: _Reader, vocab_size: int | None) -> Iterator[Block]:
    data, n_tokens, width = reader.first, 0, reader.width
    size = width * layout.BLOCK_TOKENS
    while True:
        data += reader.some(size - len(data))
        if len(data) % width:
            raise TruncatedError(
                f"{reader.name}: {n_tokens * width + len(data)} bytes, expected a multiple of "
                f"{width}: cut short, or not .u{8 * width}?"
            )
        if len(data) < size and data.endswith(layout.END_MAGIC):
            raise FormatError(f"{reader.name}: a token file whose head is damaged: fetch it again")
        # The byte that decides whether this block is the last one belongs to the next block.
        following = reader.some(width) if len(data) == size else b""
        ids = layout.check_ids(
            np.frombuffer(data, layout.dtype_of(width)), vocab_size, reader.name, n_tokens
        )
        n_tokens += ids.size
        yield ids, np.array([] if following else [ids.size], np.int64)
        if not following:
            return
        data = following


def _raw_width(name: str, first: bytes, packed: bool) -> int:
    # Nothing but the name tells a raw file, so it has to be right.
    stem = name
    for suffix in _PACKED:
        stem = stem.removesuffix(suffix)
    if not stem.endswith((".u16", ".u32")):
        raise FormatError(
            f"{name}: found neither a token file nor a name ending in .u16 or .u32 (.zst): "
            "expected what --save-tokens wrote, or raw ids under such a name"
        )
    if layout.MAGIC.startswith(first):
        raise TruncatedError(
            f"{name}: {len(first) or 'no'} bytes, expected token ids: write or fetch it again"
        )
    if stem != name and not packed:
        raise FormatError(
            f"{name}: found no compressed data, expected it by the name: write or fetch it again, "
            "or call raw ids .u16 or .u32"
        )
    return 2 if stem.endswith(".u16") else 4


def _damaged(name: str, detail: str, early: bool) -> FormatError:
    kind = TruncatedError if early else FormatError
    return kind(f"{name}: {detail}: write or fetch it again")
