"""Token streams in memory and on disk: ids, document ends and whose ids they are."""

from lookup_tools.tokens.reading import iter_token_blocks, load_tokens, read_token_info
from lookup_tools.tokens.stream import TokenInfo, TokenStream
from lookup_tools.tokens.writing import TokenWriter, save_tokens

__all__ = [
    "TokenInfo", "TokenStream", "TokenWriter", "iter_token_blocks", "load_tokens",
    "read_token_info", "save_tokens",
]  # fmt: skip
