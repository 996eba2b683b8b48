"""Any bytes under any name as a cache, a sidecar, a token file, a trace or a table of costs, with
checksums put right or left wrong: opened, verified, read through."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import lzma
import struct
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
import zstandard
from attacks import parts as good

from fuzz.parts import EXPECTED, Input, write
from lookup_tools._native import lib, owned
from lookup_tools.cache import Cache, ConstmapCache, open_cache
from lookup_tools.cache.overview import overview, query
from lookup_tools.cache.verify import verify_cache
from lookup_tools.drafting.trace import read_trace
from lookup_tools.errors import LookupToolsError, TokenizerMismatchError
from lookup_tools.evaluation.verify_cost_files import read_cost
from lookup_tools.formats.meta import require_same_tokenizer
from lookup_tools.tokens import iter_token_blocks, load_tokens, read_token_info
from lookup_tools.tokens.layout import END_MAGIC

CACHE_NAMES = ("cache", "cache.lcs", "model.gguf", "ids.u16", "%s {0} ä.json", "-", "a\nb")
# A file without keys is searched for them by trying pairs of ids: as many as its ids allow.
LARGEST_SEARCHED = 300


# ---- JSON

# What a field may hold that it should not, and some that it may.
VALUES = (
    b"null 0 1 -1 6 12 1.5 1e400 -0.0 true [] {} [[]] [1] [null] NaN 2147483648 9223372036854775808"
    b' "" "x" "\\ud800" ["\\udc00"] ["a","b"] {"a":1} "\\u0000" "0123456789abcdef0123456789abcdef"'
).split(b" ")


def json_of(given: Input, fields: dict[str, Any]) -> bytes:
    """An object with some of its fields replaced or left out."""
    parts = {name: json.dumps(value).encode() for name, value in fields.items()}
    for _ in range(given.byte() % 4):
        name, value = list(fields)[given.byte() % len(fields)], given.byte()
        if value < len(VALUES):
            parts[name] = VALUES[value]
        elif value > 250:
            parts.pop(name, None)
        else:
            parts[name] = given.bytes(value % 16)
    return b"{" + b",".join(b'"%s":%s' % (n.encode(), v) for n, v in parts.items()) + b"}"


# ---- caches


def mended(data: bytes) -> bytes:
    """A constmap with its map's checksum put right."""
    if len(data) < 64:
        return data
    head = 32 if data.startswith(b"ggngcmp2") else 24
    start = head + 8 * int.from_bytes(data[8:16], "little")
    if start + 40 > len(data):
        return data
    end = start + 32 + 16 * int.from_bytes(data[start + 24 : start + 28], "little")
    if end + 8 > len(data):
        return data
    return data[:end] + struct.pack("<Q", good.fnv1a(data[start:end])) + data[end + 8 :]


def constmap_of(given: Input, how: int) -> bytes:
    if how & 1:
        data = given.rest()
        return mended(data) if how & 2 else data
    if how & 64:
        return good.constmap(annex_bytes=good.annex(meta=json_of(given, good.META)))
    piece = given.rest()
    if how & 2:
        return good.constmap(annex_bytes=good.annex(meta=piece))
    if how & 4:
        return good.constmap(annex_bytes=good.annex(keys=good.packed(piece)))
    if how & 8:
        return good.constmap(annex_bytes=good.annex(keys=piece))
    return good.constmap(annex_bytes=piece)


def sidecar_of(data: bytes, text: bytes, how: int) -> bytes:
    """Any text, or one that speaks of the file beside it."""
    if how & 1:
        return text
    form = b'{"format":"lookup-tools sidecar 1","files":[{"size":%d,"xxh64":"%s","meta":%s}]}'
    return form % (len(data), xxhash.xxh64(data).hexdigest().encode(), text)


def read_all(cache: Cache) -> None:
    """Everything an open cache can be asked."""
    if searchable(cache):
        overview(cache, 3)
    for t0 in range(4):
        query(cache, [t0], 3)
        query(cache, [t0, t0 + 1], 3)
    for order in cache.orders:
        for block in cache.blocks(order):
            assert block.n_pairs == block.lengths.sum()
    cache.static_view()
    cache.table()


def searchable(cache: Cache) -> bool:
    if not isinstance(cache, ConstmapCache) or cache.has_keys:
        return True
    return bool(cache.entries()[:, 0].max(initial=0) <= LARGEST_SEARCHED)


def use_cache(path: Path, how: int) -> None:
    with open_cache(path, load="read" if how & 16 else "mmap") as cache:
        with contextlib.suppress(TokenizerMismatchError):
            require_same_tokenizer(str(path), cache.meta, "0" * 32, "another")
        str(cache.meta).encode()
        verified = False
        with contextlib.suppress(LookupToolsError):
            if searchable(cache):
                verify_cache(cache)
                verified = True
        try:
            read_all(cache)
        except LookupToolsError:
            # What verify calls good can be read; a file without keys still lists none.
            assert not verified or (isinstance(cache, ConstmapCache) and not cache.has_keys)


def check_constmap(given: Input, folder: Path) -> None:
    how, name = given.byte(), CACHE_NAMES[given.byte() % len(CACHE_NAMES)]
    use_cache(write(folder, name, constmap_of(given, how)), how)


def check_legacy(given: Input, folder: Path) -> None:
    how = given.byte()
    text = given.bytes(given.number(2) % 1024) if how & 2 else None
    text = json_of(given, good.META) if how & 64 else text
    data = good.legacy() if how & 4 else given.rest()
    path = write(folder, "cache", data)
    beside = folder / "cache.meta.json"
    beside.unlink(missing_ok=True)
    if text is not None:
        beside.write_bytes(sidecar_of(data, text.rstrip(b"\0"), how))
    try:
        use_cache(path, how)
    finally:
        beside.unlink(missing_ok=True)


# ---- token files

NAMES = ("tokens", "ids.u16", "ids.u32", "ids.u16.zst", "ids.u32.gz", "tokens.json")


def token_file(given: Input, how: int) -> bytes:
    """Any bytes, or a head, blocks and a foot whose digests are right."""
    if how & 1:
        return given.rest()
    width = 2 if how & 2 else 4
    fields = {"corpora": [], "fingerprint": None, "tokenizer": None}
    size = {"vocab_size": 65536 if width == 2 else 2**31}
    meta = given.bytes(given.byte()) if how & 4 else json_of(given, fields | size)
    body = struct.pack("<8sIIQ", b"lttokens", 1, width, len(meta)) + meta
    ids = hashlib.sha256()
    n_tokens = n_documents = 0
    for _ in range(given.byte() % 5):
        n, ends = given.byte() % 32, given.byte() % 4
        stored = given.bytes(n * width)
        ids.update(stored)
        body += struct.pack("<II", n, ends) + stored
        body += b"".join(struct.pack("<I", given.byte() % (n + 2)) for _ in range(ends))
        n_tokens, n_documents = n_tokens + n, n_documents + ends
    lie = given.byte()
    n_tokens, n_documents = n_tokens + (lie == 1), n_documents + (lie == 2)
    body += struct.pack("<IIQQ", 2**32 - 1, lie == 3, n_tokens, n_documents) + ids.digest()
    return body + hashlib.sha256(body).digest() + END_MAGIC + given.bytes(given.left)


def compressed(data: bytes, how: int) -> bytes:
    if how == 1:
        return gzip.compress(data, mtime=0)
    if how == 2:
        return zstandard.ZstdCompressor().compress(data)
    return lzma.compress(data) if how == 3 else data


def use_tokens(path: Path) -> None:
    info = read_token_info(path)
    str(info).encode()
    with contextlib.suppress(TokenizerMismatchError):
        info.require_tokenizer("0" * 32, "another")
    whole = load_tokens(path)
    blocks = [ids for ids, _ in iter_token_blocks(path, 7)]
    assert np.array_equal(np.concatenate([*blocks, whole.ids[:0]]), whole.ids)
    assert not whole.ids.size or whole.ids.min() >= 0


def check_tokens(given: Input, folder: Path) -> None:
    how, name = given.byte(), NAMES[given.byte() % len(NAMES)]
    squeeze, cut = given.byte() % 8, given.byte()
    data = compressed(token_file(given, how), squeeze)
    if cut > 200:
        data = data[: len(data) * (cut - 200) // 56]
    use_tokens(write(folder, name, data))


# ---- traces and verify costs


def lines_of(given: Input, fields: dict[str, Any]) -> bytes:
    """Any bytes, or objects one a line."""
    if given.byte() & 1:
        return given.rest()
    return b"\n".join(json_of(given, fields) for _ in range(given.byte() % 5))


def check_trace(given: Input, folder: Path) -> None:
    data = lines_of(given, {"pos": given.byte(), "draft": [1, 2]})
    trace = read_trace(str(write(folder, "trace.jsonl", data)))
    assert len(trace.positions) == len(trace.ends)
    owned("lookup_source", lib.lookup_source_free, partial(lib.lookup_source_trace, trace.pointer))


def check_cost(given: Input, folder: Path) -> None:
    width = 1 + given.byte() % 9
    fields = {"width": width, "cost": 1.5, "pl": 2, "tg": 1, "t_tg": 0.5, "n_gen": 0, "n_prompt": 3}
    curve = read_cost(str(write(folder, "costs", lines_of(given, fields))))
    for width in range(1, 20):
        assert curve.at(width) > 0


ROOMS = (check_constmap, check_legacy, check_tokens, check_trace, check_cost)


def check(data: bytes, folder: Path) -> None:
    """Only errors of ours may come out."""
    given = Input(data)
    room = ROOMS[given.byte() % len(ROOMS)]
    with contextlib.suppress(*EXPECTED):
        room(given, folder)
