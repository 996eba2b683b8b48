"""Corpora: text files, standard input, JSON lines, chats and datasets as streams of documents."""

from lookup_tools.corpora.corpus import Corpus, SourceInfo
from lookup_tools.corpora.manifests import Manifest, Split, list_corpora, load_manifest
from lookup_tools.corpora.named import group_rows
from lookup_tools.corpora.opening import open_corpus
from lookup_tools.corpora.text import (
    ChatRenderer,
    Document,
    Messages,
    Piece,
    Tools,
    iter_text,
)
from lookup_tools.system.compressed import ByteStream

__all__ = [
    "ByteStream", "ChatRenderer", "Corpus", "Document", "Manifest", "Messages", "Piece",
    "SourceInfo", "Split", "Tools", "group_rows", "iter_text", "list_corpora", "load_manifest",
    "open_corpus",
]  # fmt: skip
