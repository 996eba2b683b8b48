"""Chat transcripts as text: OpenAI messages through a model's own template, as llama.cpp does it.

Templates differ in what they take: some want a tool call's arguments as an object and some as the
string that the API has, some know no system role, some go through the parts of a content. That is
found out by trying them on short conversations.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lookup_tools.corpora import ChatRenderer, Messages, Tools
from lookup_tools.errors import CorpusError, TokenizerError
from lookup_tools.tokenizers import Tokenizer

if TYPE_CHECKING:
    import jinja2

# Some templates name the day. Equal transcripts are to give equal caches, so it is always the same.
_TODAY = datetime(2000, 1, 1)


def chat_renderer(tokenizer: Tokenizer) -> ChatRenderer:
    """Renders messages (and tools, or None) with the tokenizer's chat template.

    Control tokens come out as their texts: tokenize with `parse_special`. Templates come from model
    files, so they run in Jinja's sandbox, which can neither change its inputs nor reach Python's
    internals.

    Raises:
        TokenizerError: the model has no chat template, or one that is no Jinja.
    """
    template = _Template(tokenizer)
    habits = _Habits.of(template)

    def render(messages: Messages, tools: Tools = None) -> str:
        return template.render(habits.suited(messages), tools)

    return render


class _Template:
    """A compiled chat template."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.chat_template:
            raise TokenizerError(
                f"{tokenizer.name}: found no chat template, expected one for --documents chat; use "
                "a chat model's file"
            )
        try:
            self._template = _environment().from_string(tokenizer.chat_template)
        except Exception as error:  # deep nesting and long numbers fail in other ways than Jinja's
            raise TokenizerError(
                f"{tokenizer.name}: found a chat template that is no Jinja ({error}); use a model "
                "file with a correct one"
            ) from None
        self._tokens = _token_texts(tokenizer)

    def render(self, messages: Messages, tools: Tools) -> str:
        """Raises CorpusError, whatever goes wrong in there: a template is a program."""
        try:
            return self._template.render(
                messages=messages,
                tools=tools or None,
                documents=None,
                add_generation_prompt=False,
                **self._tokens,
            )
        except Exception as error:
            raise CorpusError(
                f"found messages that the chat template refuses ({error}); check their roles"
            ) from None


@dataclass(frozen=True, slots=True)
class _Habits:
    """What a template makes sense of. Python's notation of a list or an object in its output means
    that it expected a string."""

    content_parts: bool
    object_arguments: bool
    system_role: bool

    @classmethod
    def of(cls, template: _Template) -> _Habits:
        def said(*messages: dict[str, Any]) -> str:
            try:
                return template.render(list(messages), None)
            except CorpusError:
                return ""

        texts = [{"type": "text", "text": word} for word in ("first-part", "last-part")]
        user = {"role": "user", "content": "question"}
        function = {"name": "look", "arguments": {"some-key": "some-value"}}
        # Nine letters and digits, which is what some templates insist on.
        call = {"id": "call00001", "type": "function", "function": function}
        caller = {"role": "assistant", "content": "", "tool_calls": [call]}
        parts = said({**user, "content": texts})
        called = said(user, caller)
        return cls(
            content_parts="first-part" in parts and "last-part" in parts and "'type'" not in parts,
            object_arguments="some-key" in called and "'some-key'" not in called,
            system_role="instruction" in said({"role": "system", "content": "instruction"}, user),
        )

    def suited(self, messages: Messages) -> Messages:
        """The messages as the template wants them."""
        suited = [self._suited(message) for message in messages]
        if self.system_role or len(suited) < 2 or suited[0]["role"] != "system":
            return suited
        # What the system says is put in front of the first question.
        system, first = (_text(message["content"]) for message in suited[:2])
        return [{**suited[1], "content": f"{system}\n{first}"}, *suited[2:]]

    def _suited(self, message: dict[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        parts = self.content_parts and isinstance(content, list)
        changed = {**message, "content": content if parts else _text(content)}
        if self.object_arguments and isinstance(message.get("tool_calls"), list):
            changed["tool_calls"] = [_with_object(call) for call in message["tool_calls"]]
        return changed


def _text(content: str | list[dict[str, Any]] | None) -> str:
    """A message's words: parts are joined by newlines, and no content is an empty one."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content)
    return content or ""


def _with_object(call: Any) -> Any:
    """A tool call whose arguments are an object, unless they are no JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"])
    except (ValueError, RecursionError):
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _environment() -> jinja2.Environment:
    """Jinja with what chat templates expect beyond its own."""
    from jinja2 import nodes
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks what the model says, for training; here it is only its body."""

        tags = {"generation"}  # noqa: RUF012 (as Jinja's own extensions have it)

        def parse(self, parser: Any) -> nodes.Node:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, Generation]
    )
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _TODAY.strftime
    environment.filters["tojson"] = _to_json  # Jinja's own escapes for HTML
    return environment


def _refuse(message: str) -> None:
    import jinja2

    raise jinja2.TemplateError(message)


def _to_json(
    value: Any,
    indent: int | None = None,
    ensure_ascii: bool = False,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(
        value, indent=indent, ensure_ascii=ensure_ascii, separators=separators, sort_keys=sort_keys
    )


def _token_texts(tokenizer: Tokenizer) -> dict[str, str]:
    ids = {"bos_token": tokenizer.bos_id, "eos_token": tokenizer.eos_id}
    return {
        name: "" if i is None else tokenizer.token_bytes(i).decode(errors="replace")
        for name, i in ids.items()
    }
