"""Transcripts through chat templates: what llama-server would say of the same messages."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from helpers import count_documents, read_counts, run

from lookup_tools import CreateOptions, Tokenizer, create_cache, open_corpus, open_tokenizer
from lookup_tools.corpora.chat import chat_renderer
from lookup_tools.engine.llama_server import LlamaServer
from lookup_tools.engine.programs import find_program
from lookup_tools.errors import CorpusError, EngineError, TokenizerError
from lookup_tools.tokens import load_tokens

# Kinds of templates, each a few lines: plain text in strings; tools with arguments as objects, as
# strings, looked into, and printed; parts of contents; no system role; what goes beyond Jinja.
TEMPLATES = {
    "plain": """
{%- for message in messages %}
{{- '<' + message['role'] + '>' + message['content'] + eos_token }}
{%- endfor %}""",
    "objects": """
{%- if tools %}{{ 'tools: ' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- call.function.name + ' ' }}{{ call.function.arguments | tojson }}
    {%- endfor %}
{%- endfor %}""",
    "strings": """
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {{- call['function']['name'] + ' ' + call['function']['arguments'] }}
    {%- endfor %}
{%- endfor %}""",
    "items": """
{%- for message in messages %}
    {{- '<' + message.role + '>' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {%- for key, value in call.function.arguments.items() %}
            {{- key + '=' }}{{ value if value is string else value | tojson }};
        {%- endfor %}
    {%- endfor %}
{%- endfor %}""",
    "printed": """
{%- for message in messages %}
<{{ message.role }}>{{ message.content }}
    {%- for call in message.tool_calls or [] %} {{ call.function.arguments }}{% endfor %}
{%- endfor %}""",
    "parts": """
{%- for message in messages %}
    {{- '<' + message.role + '>' }}
    {%- if message.content is string %}{{ message.content }}{% else %}
        {%- for part in message.content %}{{ part.text + '|' }}{% endfor %}
    {%- endif %}
{%- endfor %}""",
    "no system": """
{%- if messages[0].role == 'system' %}{{ raise_exception('no system role here') }}{% endif %}
{%- for message in messages %}{{ '<' + message.role + '>' + message.content }}{% endfor %}""",
    "beyond": """
{%- if strftime_now('%Y') | length != 4 %}{{ raise_exception('no day') }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}{% continue %}{% endif %}
    {%- if message.role == 'user' %}{{ '<user>' + message.content + ("é<&'" | tojson) }}
    {%- else %}{% generation %}{{ '<' + message.role + '>' + message.content }}{% endgeneration %}
    {%- endif %}
{%- endfor %}""",
}
SYSTEM = {"role": "system", "content": "Be & brief."}
USER = {"role": "user", "content": "Weather <there>?"}
PARTS = {"role": "user", "content": [{"type": "text", "text": text} for text in ("one", "two")]}
FUNCTION = {"name": "look", "arguments": '{"city":"Köln", "days":[1,null]}'}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call00001", "type": "function", "function": FUNCTION}],
}
TOOL = {"role": "tool", "tool_call_id": "call00001", "content": "sun"}
LOOK = {"name": "look", "description": "<Look>", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": LOOK}]
CHATS: dict[str, dict[str, Any]] = {
    "words": {"messages": [SYSTEM, USER, {"role": "assistant", "content": "Sun."}, USER]},
    "parts": {"messages": [PARTS]},
    "null": {"messages": [USER, {"role": "assistant", "content": None}, USER]},
    "tools": {"messages": [USER, CALL, TOOL, USER], "tools": TOOLS},
    "call": {"messages": [USER, CALL, TOOL, USER]},
}


class Vocabulary:
    """Of a tokenizer, what a renderer asks for."""

    name, bos_id, eos_id = "a model", None, 2

    def __init__(self, template: str | None) -> None:
        self.chat_template = template

    def token_bytes(self, token_id: int) -> bytes:
        return {2: b"<|im_end|>"}[token_id]


def rendered(template: str, chat: dict[str, Any]) -> str:
    renderer = chat_renderer(Vocabulary(template))  # type: ignore[arg-type]
    return renderer(chat["messages"], chat.get("tools"))


@pytest.mark.parametrize(
    ("template", "chat", "expected"),
    [
        (
            "plain",
            "words",
            "<system>Be & brief.<|im_end|><user>Weather <there>?<|im_end|>"
            "<assistant>Sun.<|im_end|><user>Weather <there>?<|im_end|>",
        ),
        ("plain", "parts", "<user>one\ntwo<|im_end|>"),
        ("parts", "parts", "<user>one|two|"),
        ("printed", "parts", "<user>one\ntwo"),
        ("objects", "null", "<user>Weather <there>?<assistant><user>Weather <there>?"),
        (
            "objects",
            "tools",
            'tools: {"type": "function", "function": {"name": "look", "description": "<Look>", '
            '"parameters": {"type": "object"}}}'
            '<user>Weather <there>?<assistant>look {"city": "Köln", "days": [1, null]}'
            "<tool>sun<user>Weather <there>?",
        ),
        (
            "strings",
            "call",
            '<user>Weather <there>?<assistant>look {"city":"Köln", "days":[1,null]}'
            "<tool>sun<user>Weather <there>?",
        ),
        (
            "items",
            "call",
            "<user>Weather <there>?<assistant>city=Köln;days=[1, null];"
            "<tool>sun<user>Weather <there>?",
        ),
        (
            "printed",
            "call",
            '<user>Weather <there>?<assistant> {"city":"Köln", "days":[1,null]}'
            "<tool>sun<user>Weather <there>?",
        ),
        (
            "no system",
            "words",
            "<user>Be & brief.\nWeather <there>?<assistant>Sun.<user>Weather <there>?",
        ),
        (
            "beyond",
            "call",
            '<user>Weather <there>?"é<&\'"<assistant><user>Weather <there>?"é<&\'"',
        ),
    ],
)
def test_messages_are_put_as_the_template_wants_them(
    template: str, chat: str, expected: str
) -> None:
    before = json.dumps(CHATS[chat])
    assert rendered(TEMPLATES[template], CHATS[chat]) == expected
    assert json.dumps(CHATS[chat]) == before


def test_arguments_that_are_no_json_stay_a_string() -> None:
    call = {**CALL, "tool_calls": [{"function": {"name": "look", "arguments": "soon"}}, "odd"]}
    chat = {"messages": [USER, call]}
    assert 'look "soon"' in rendered(
        TEMPLATES["objects"], {"messages": [USER, {**call, "tool_calls": call["tool_calls"][:1]}]}
    )
    with pytest.raises(CorpusError, match="the chat template refuses"):
        rendered(TEMPLATES["items"], chat)


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages[5].content + 1 }}",
        "{{ 1 // 0 }}",
        "{{ range(10**9) }}",
        "{{ messages.__class__.__mro__ }}{{ nothing.there }}",
        "{{ strftime_now(5) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_may_fail_in_any_way(template: str) -> None:
    with pytest.raises(CorpusError, match="the chat template refuses"):
        rendered(template, CHATS["words"])


def test_models_without_a_usable_template() -> None:
    with pytest.raises(TokenizerError, match="found no chat template"):
        rendered("", CHATS["words"])
    with pytest.raises(TokenizerError, match="no Jinja"):
        rendered("{% for %}", CHATS["words"])


# ---- end to end, with a real model's template


def write_chats(path: Path, chats: list[Any]) -> Path:
    path.write_text("".join(json.dumps(chat) + "\n" for chat in chats), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def smollm2(gguf: Path) -> Tokenizer:
    return open_tokenizer(gguf)


def test_a_dynamic_cache_from_transcripts(tmp_path: Path, gguf: Path, smollm2: Tokenizer) -> None:
    """All the forms of content; control tokens as such, one transcript never running into the
    next."""
    path = write_chats(tmp_path / "chats.jsonl", list(CHATS.values()))
    out = tmp_path / "chats.lcd"
    common = ["-m", gguf, "-f", path, "--documents", "chat", "--kind", "dynamic"]
    result = run("create", *common, "-o", out, "--save-tokens", tmp_path / "t", "--json", "-")
    assert result.stderr == ""
    body = json.loads(result.stdout)
    assert (body["format"], body["kind"], body["n_documents"]) == ("legacy", "dynamic", 5)
    documents = [document.tolist() for document in load_tokens(tmp_path / "t").documents()]
    assert read_counts(out) == count_documents(documents, (1, 2, 3, 4))
    said = [smollm2.decode(document) for document in documents]
    assert all(each.endswith("<|im_end|>\n") for each in said)
    assert "<|im_start|>user\none\ntwo<|im_end|>" in said[1]
    assert "<|im_start|>assistant\n<|im_end|>\n<|im_start|>user" in said[2]
    assert "<|im_start|>tool\nsun<|im_end|>" in said[3]
    marks = [smollm2.encode(mark, parse_special=True) for mark in ("<|im_start|>", "<|im_end|>")]
    for document, chat in zip(documents, CHATS.values(), strict=True):
        turns = len(chat["messages"]) + (chat["messages"][0]["role"] != "system")
        assert [document.count(int(ids[0])) for ids in marks] == [turns, turns]
    # the library does the same by itself
    corpus = open_corpus([path], documents="chat", render_chat=chat_renderer(smollm2))
    report = create_cache(
        corpus, smollm2, tmp_path / "again", options=CreateOptions(kind="dynamic")
    )
    assert (tmp_path / "again").read_bytes() == out.read_bytes()
    assert report.notes == ()
    run("stats", "-m", gguf, "-f", path, "--documents", "chat", "-lcd", out, "-c", 100)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{not json}", "not JSON"),
        (b'["a"]', "JSON list, expected one object a line"),
        (b'{"prompt": "x"}', 'expected {"messages": [...]}'),
        (b'{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "'image_url'"),
        (b'{"messages": [{"role": "user", "content": "\xff"}]}', "is not UTF-8"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, gguf: Path, line: bytes, reason: str) -> None:
    good = json.dumps(CHATS["words"]).encode()
    path = tmp_path / "chats.jsonl"
    path.write_bytes(good + b"\n\n" + line + b"\n" + good + b"\n")
    common = ["-m", gguf, "-f", path, "--documents", "chat", "--kind", "dynamic"]
    said = run("create", *common, "-o", tmp_path / "out", code=1).stderr
    assert reason in said
    assert f"{path}:3: " in said or "offset" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("data", [b"", b"\n\n"])
def test_nothing_was_said(tmp_path: Path, gguf: Path, data: bytes) -> None:
    (tmp_path / "chats.jsonl").write_bytes(data)
    common = ["-m", gguf, "-f", tmp_path / "chats.jsonl", "--documents", "chat"]
    said = run("create", *common, "-o", tmp_path / "out", code=1).stderr
    assert "found no tokens in the corpus" in said


# ---- the engine's own word


def server_renders(server: LlamaServer, chat: dict[str, Any]) -> str:
    port = server.command[server.command.index("--port") + 1]
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/apply-template",
        json.dumps({**chat, "add_generation_prompt": False}).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=60) as answer:
        return str(json.load(answer)["prompt"])


@pytest.mark.engine
@pytest.mark.parametrize("name", [None, *TEMPLATES])
def test_llama_server_renders_the_same(
    tmp_path: Path, gguf: Path, smollm2: Tokenizer, name: str | None
) -> None:
    try:
        find_program("llama-server")
    except EngineError as error:
        pytest.skip(str(error))
    extra = ["--no-warmup"]
    template = smollm2.chat_template or ""
    if name is not None:
        template = TEMPLATES[name]
        (tmp_path / "template").write_text(template, encoding="utf-8")
        extra += ["--chat-template-file", str(tmp_path / "template")]
    with LlamaServer(gguf, n_ctx=256, threads=1, extra=extra) as server:
        for chat in CHATS.values():
            assert rendered(template, chat) == server_renders(server, chat)
