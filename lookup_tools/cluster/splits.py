"""A corpus in parts that workers count apart from each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from lookup_tools.corpora import columns, stores
from lookup_tools.corpora.files import FileCorpus, Part
from lookup_tools.errors import ParameterError
from lookup_tools.system.compressed import compression_of

# Stored bytes of one task: enough that starting it costs nothing, little enough that a task lost
# with its worker is soon done again.
MIN_TASK_BYTES, MAX_TASK_BYTES = 1 << 22, 1 << 29
_TASKS_PER_WORKER = 4


def plan_tasks(corpus: FileCorpus, n_workers: int) -> list[list[Part]]:
    """The corpus, in order, as lists of parts with about the same number of stored bytes.

    Tables are divided between row groups and plain text of lines or records between lines. A
    compressed file is one part, and so is a file that is one document.

    Raises:
        ParameterError: a part is standard input, which no worker can read.
    """
    if any(source.location == "-" for source in corpus.sources):
        raise ParameterError(
            "found standard input (-) with --cluster, expected files that every worker can read"
        )
    total = sum(source.size_bytes or 0 for source in corpus.sources)
    target = total // max(1, n_workers * _TASKS_PER_WORKER)
    target = min(max(target, MIN_TASK_BYTES), MAX_TASK_BYTES)
    tasks: list[list[Part]] = []
    held = target  # so that the first part opens a task
    for part, size in _divided(corpus, target):
        if held + size // 2 > target:
            tasks.append([])
            held = 0
        tasks[-1].append(part)
        held += size
    return tasks


def _divided(corpus: FileCorpus, target: int) -> Iterator[tuple[Part, int]]:
    for part in corpus.parts:
        size = part.source.size_bytes or 0
        pieces: Sequence[Part] = [part]
        if size > 2 * target:
            if corpus.mode == "parquet":
                pieces = _by_row_groups(part, size // target)
            elif corpus.mode != "file":
                pieces = _by_lines(part, size, size // target)
        for piece in pieces:
            yield piece, size // len(pieces)


def _by_row_groups(part: Part, pieces: int) -> list[Part]:
    name = part.source.location
    with stores.open_stored(name, random=True) as file:
        count = columns.row_groups(file, name)
    if not count:  # a stream of batches has to be read from its beginning
        return [part]
    edges = _edges(count, min(pieces, count))
    return [Part(part.source, groups=edge) for edge in edges]


def _by_lines(part: Part, size: int, pieces: int) -> list[Part]:
    with stores.open_stored(part.source.location) as file:
        head = file.read(8) or b""
    if compression_of(head) is not None:
        return [part]
    return [Part(part.source, range=edge) for edge in _edges(size, pieces)]


def _edges(total: int, pieces: int) -> list[tuple[int, int]]:
    marks = [total * k // pieces for k in range(pieces + 1)]
    return list(pairwise(marks))
