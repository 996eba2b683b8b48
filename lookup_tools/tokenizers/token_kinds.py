"""What llama.cpp makes of tokens by their text, whatever kind the file gives them.

Ends of a turn or of generation and the parts of fill-in-the-middle prompts become control tokens;
the frame of gpt-oss' messages becomes user-defined. Source: llama.cpp, ``llama_vocab::impl::load``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from lookup_tools.tokenizers.vocabulary import CONTROL, NORMAL, USER_DEFINED

Kinds = np.ndarray[Any, np.dtype[np.int32]]

_ENDS = (
    *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>"),
    *("<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]"),
    *("<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>"),
    *("<｜end▁of▁sentence｜>", "[e~["),
)
# Of each of these the first found counts, unless the file names one.
_ROLES = {
    "fim_pre": (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>"),
        *("<|code_prefix|>", "<|prefix|>"),
    ),
    "fim_suf": (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>"),
        *("<|code_suffix|>", "<|suffix|>"),
    ),
    "fim_mid": (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>"),
        *("<|code_middle|>", "<|middle|>"),
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
_FRAME = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def override_kinds(
    kinds: Kinds, ids: Mapping[str, int], named: Collection[str], ends: Collection[int | None]
) -> None:
    """Change ``kinds`` as llama.cpp does.

    ``named`` are the roles for which the file gives an id, ``ends`` the ids of begin- and
    end-tokens that end generation.
    """
    for role, texts in _ROLES.items():
        found = [ids[text] for text in texts if text in ids]
        if found and role not in named:
            kinds[found[0]] = CONTROL
    for text in _ENDS:
        if text in ids:
            kinds[ids[text]] = CONTROL
    for text in _FRAME:
        if text in ids:
            kinds[ids[text]] = USER_DEFINED
    _except_turns(kinds, ids, ends)


def _except_turns(kinds: Kinds, ids: Mapping[str, int], ends: Collection[int | None]) -> None:
    """``<|end|>`` ends no generation where others do; ``</s>`` is ordinary beside Gemma's."""
    call = "<|call|>" in ids or "<|calls|>" in ids
    if "<|end|>" in ids and call and ("<|return|>" in ids or "<|flush|>" in ids):
        kinds[ids["<|end|>"]] = USER_DEFINED
    plamo = "<|plamo:eos|>" in ids and ids["<|plamo:eos|>"] in ends
    if "</s>" in ids and ("<|tool_response>" in ids or plamo):
        kinds[ids["</s>"]] = NORMAL


def looks_special(text: str) -> bool:
    """Whether llama.cpp's converter makes an added token a control token by its looks."""
    return (
        text in ("<pad>", "<mask>", "<2mass>", "[@BOS@]")
        or (text.startswith("<|") and text.endswith("|>"))
        or (text.startswith("<｜") and text.endswith("｜>"))
        or (text.startswith("<unused") and text.endswith(">"))
    )
