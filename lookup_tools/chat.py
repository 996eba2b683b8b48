"""Chat transcripts as text: OpenAI messages through a model's own template."""

from __future__ import annotations

from typing import Any

from lookup_tools.corpora import ChatRenderer
from lookup_tools.errors import CorpusError, TokenizerError
from lookup_tools.tokenizers import Tokenizer


def chat_renderer(tokenizer: Tokenizer) -> ChatRenderer:
    """Renders a list of {role, content} messages with the tokenizer's chat template.

    Templates come from model files, so they run in Jinja's sandbox, which can neither change its
    inputs nor reach Python's internals.

    Raises:
        TokenizerError: the model has no chat template, or one that is no Jinja.
    """
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    if not tokenizer.chat_template:
        raise TokenizerError(
            f"{tokenizer.name}: found no chat template, expected one for --documents chat; use "
            "a chat model's file"
        )
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    try:
        template = environment.from_string(tokenizer.chat_template)
    except jinja2.TemplateError as error:
        raise TokenizerError(
            f"{tokenizer.name}: found a chat template that is no Jinja ({error})"
        ) from None

    def render(messages: list[dict[str, Any]]) -> str:
        try:
            return template.render(
                messages=messages, add_generation_prompt=False, **_tokens(tokenizer)
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise CorpusError(
                f"found messages that the chat template refuses ({error}); check their roles"
            ) from None

    return render


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _tokens(tokenizer: Tokenizer) -> dict[str, str]:
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {
        name: "" if i is None else tokenizer.token_bytes(i).decode(errors="replace")
        for name, i in ids.items()
    }
