"""From decompressed bytes to documents: whole files, lines, JSON records, chats.

Owns decoding. Text is UTF-8 and taken literally: no newline translation, no byte-order mark
removed, no escapes. What is not text is refused with its file and offset.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lookup_tools.errors import CorpusError, LookupToolsError
from lookup_tools.system.compressed import ByteStream

Errors = Literal["strict", "replace"]
Messages = list[dict[str, Any]]
Tools = list[dict[str, Any]] | None
ChatRenderer = Callable[[Messages, Tools], str]

# Files people hand over by mistake; each is named for what it is.
_FOREIGN_MAGICS = {
    b"GGUF": ("a GGUF model", "give models with -m"),
    b"PAR1": ("a parquet file", "name its text with --documents parquet:COLUMN"),
    b"ARROW1": ("an arrow file", "name its text with --documents parquet:COLUMN"),
    b"PK\x03\x04": ("a zip archive", "unpack it first"),
    b"BZh": ("a bzip2 file", "unpack it first, or compress with gzip, zstd or xz"),
    b"%PDF-": ("a PDF document", "extract its text first"),
    b"\x7fELF": ("a program", "give a text file"),
    b"ggngcm": ("a cache file", "give caches to lookup-merge or lookup-inspect"),
    b"lttokens": ("a token file", "give it with --tokens"),
    b"\xff\xfe": ("UTF-16 text", "convert it to UTF-8 first"),
    b"\xfe\xff": ("UTF-16 text", "convert it to UTF-8 first"),
}


_LOOKED_AT = 4096
# A PDF document may be nothing but ASCII.
_PDF_LINE = re.compile(rb"%PDF-[0-9]\.[0-9]\s*[\r\n]")
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Document:
    """One stream of text: n-grams are counted inside it, never across its ends."""

    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a document, in order; the last part of each has `ends_document` set."""

    text: str
    source: str
    ends_document: bool


def iter_text(stream: ByteStream, piece_bytes: int, errors: Errors = "strict") -> Iterator[Piece]:
    """The whole stream as one document, in pieces of at most about `piece_bytes` bytes of UTF-8.

    Characters are never split and the pieces joined are exactly the text. An empty stream is one
    empty piece.

    Raises:
        CorpusError: bytes that are not UTF-8, NUL bytes (strict only), a known binary format,
            damaged compression.
    """
    decoder = _Decoder(stream.name, errors)
    refuse_foreign(stream.peek(_LOOKED_AT), stream.name)
    chunk = stream.read(piece_bytes)
    while chunk:
        following = stream.read(piece_bytes)
        text = decoder.decode(chunk, final=not following)
        yield Piece(text, stream.name, not following)
        chunk = following
        if not chunk:
            return
    yield Piece("", stream.name, True)


def iter_lines(stream: ByteStream, errors: Errors = "strict") -> Iterator[tuple[int, str]]:
    """(line number from 1, line without its `\\n` or `\\r\\n`) of every line that is not empty."""
    decoder = _Decoder(stream.name, errors)
    number = 0
    refuse_foreign(stream.peek(_LOOKED_AT), stream.name)
    while line := stream.readline():
        number += 1
        # A newline byte is never inside a character, so each line decodes by itself.
        text = decoder.decode(line, final=True)
        text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        if text:
            yield number, text


def iter_field(stream: ByteStream, field: str, errors: Errors = "strict") -> Iterator[str]:
    """The string `field` of each JSON record, one record a line.

    Raises:
        CorpusError: a line is no JSON object, or the field is missing or no string; names
            file:line.
    """
    for place, record in _iter_records(stream, errors):
        if field not in record:
            known = ", ".join(sorted(record)[:8]) or "none"
            raise CorpusError(f"{place}: no field {field!r}: the record has {known}")
        text = record[field]
        if not isinstance(text, str):
            kind = type(text).__name__
            raise CorpusError(f"{place}: field {field!r} is {kind}, expected a string")
        yield _without_surrogates(text, place, errors)


def iter_chats(
    stream: ByteStream, render: ChatRenderer, errors: Errors = "strict"
) -> Iterator[str]:
    """Transcripts in the OpenAI form `{"messages": [...], "tools": [...]}` (tools may be missing),
    one a line, as `render` writes them. Contents are strings, lists of text parts, or None.

    Raises:
        CorpusError: a record is no transcript, or `render` refuses it; names file:line.
    """
    for place, record in _iter_records(stream, errors):
        messages = _checked_messages(record, place)
        try:
            text = render(messages, _checked_tools(record, place))
        except (LookupToolsError, ValueError) as error:
            raise CorpusError(f"{place}: the chat template refuses this transcript: {error}") from (
                error
            )
        yield _without_surrogates(text, place, errors)


def refuse_foreign(head: bytes, name: str) -> None:
    """Raise CorpusError when a file begins like a well-known binary format and is no text.

    Some magics are words that a text may begin with, so the bytes behind them decide as well.
    """
    if _is_text(head) and not _PDF_LINE.match(head):
        return
    for magic, (what, remedy) in _FOREIGN_MAGICS.items():
        if head.startswith(magic):
            raise CorpusError(f"{name}: is {what}, expected UTF-8 text: {remedy}")


def _is_text(head: bytes) -> bool:
    """UTF-8, perhaps cut inside its last character, without control characters."""
    if _NO_TEXT.search(head):
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


class _Decoder:
    """UTF-8 in pieces, knowing the absolute offset of every byte it refuses."""

    def __init__(self, name: str, errors: Errors) -> None:
        self._name = name
        self._errors = errors
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors)
        self._consumed = 0

    def decode(self, data: bytes, *, final: bool) -> str:
        held = len(self._decoder.getstate()[0])
        try:
            text = self._decoder.decode(data, final)
        except UnicodeDecodeError as error:
            offset = self._consumed - held + error.start
            found = f"byte 0x{error.object[error.start]:02x} at offset {offset}"
            raise CorpusError(
                f"{self._name}: {found} is not UTF-8 ({error.reason}): convert the file, "
                "or go on with --errors replace"
            ) from error
        if self._errors == "strict" and (position := data.find(b"\0")) >= 0:
            raise CorpusError(
                f"{self._name}: NUL byte at offset {self._consumed + position}, expected text: "
                "is this a binary file? --errors replace keeps it"
            )
        self._consumed += len(data)
        return text


def _iter_records(stream: ByteStream, errors: Errors) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in iter_lines(stream, errors):
        place = f"{stream.name}:{number}"
        if number == 1:
            line = line.removeprefix("\ufeff")  # no part of any text here
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = str(error).splitlines()[0]
            raise CorpusError(f"{place}: not JSON ({reason}): expected one object a line") from (
                error
            )
        if not isinstance(record, dict):
            kind = type(record).__name__
            raise CorpusError(f"{place}: JSON {kind}, expected one object a line")
        yield place, record


def _without_surrogates(text: str, place: str, errors: Errors) -> str:
    """JSON escapes can spell half a surrogate pair, which no UTF-8 text can hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        if errors == "strict":
            raise CorpusError(
                f"{place}: an unpaired surrogate at character {error.start}: correct the record, "
                "or go on with --errors replace"
            ) from error
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _checked_messages(record: dict[str, Any], place: str) -> Messages:
    messages = record.get("messages")
    if not isinstance(messages, list) or not messages:
        raise CorpusError(f'{place}: expected {{"messages": [...]}} with at least one message')
    return [
        _checked_message(message, f"{place}: message {index}")
        for index, message in enumerate(messages, start=1)
    ]


def _checked_message(message: Any, place: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise CorpusError(f'{place}: expected an object with a "role"')
    content = message.get("content")
    if isinstance(content, list):
        _check_parts(content, place)
    elif content is None:  # null is an answer without words, such as a tool call
        if not {"content", "tool_calls", "function_call"} & message.keys():
            raise CorpusError(f'{place}: found no "content", expected a string, text parts or null')
    elif not isinstance(content, str):
        raise CorpusError(f'{place}: "content" is {type(content).__name__}, expected a string')
    return dict(message)


def _check_parts(parts: list[Any], place: str) -> None:
    for part in parts:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise CorpusError(f"{place}: a content part of type {kind!r}: only text is supported")


def _checked_tools(record: dict[str, Any], place: str) -> Tools:
    tools = record.get("tools")
    if tools is None or (isinstance(tools, list) and all(isinstance(t, dict) for t in tools)):
        return tools
    raise CorpusError(f'{place}: "tools" is no list of objects, expected one, or leave it out')
