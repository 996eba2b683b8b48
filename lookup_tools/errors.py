"""Every error this package raises on purpose.

Messages follow one pattern: what was found, what was expected, what to do. ``OSError`` passes
through with its file name.
"""

from __future__ import annotations


class LookupToolsError(Exception):
    """Base of all errors raised on purpose; the commands print it as one line and exit with 1."""


class FormatError(LookupToolsError, ValueError):
    """A file is not what its place asks for, or breaks a rule of its format."""


class TruncatedError(FormatError):
    """A file is shorter (or longer) than its own header says."""


class ChecksumError(FormatError):
    """A file is laid out correctly but its contents do not match their checksum."""


class ParameterError(LookupToolsError, ValueError):
    """An argument is outside what it may be."""


class TokenizerError(LookupToolsError, ValueError):
    """A vocabulary cannot be read, or needs something that is not supported."""


class TokenizerMismatchError(LookupToolsError):
    """A cache or token file belongs to another vocabulary than the one in use."""


class CorpusError(LookupToolsError):
    """A corpus cannot be read: missing, unreachable, or not text."""


class BuildError(LookupToolsError):
    """A cache could not be built."""


class ClosedError(LookupToolsError):
    """A closed cache or drafter was used, or one still in use was closed."""


class EngineError(LookupToolsError):
    """An engine is not installed, did not start, or did not answer."""
