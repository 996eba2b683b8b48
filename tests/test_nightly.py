"""What docs/nightly.md promises, with a real server: yesterday's conversations speed up today's."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from helpers import run

from lookup_tools.engine.llama_server import LlamaServer
from lookup_tools.engine.programs import find_program
from lookup_tools.errors import EngineError

pytestmark = pytest.mark.engine

QUESTIONS = ("Name the months of the year.", "What is a lookup table?")


def ask(server: LlamaServer, question: str) -> dict[str, Any]:
    """The server's answer to one question, greedy."""
    port = server.command[server.command.index("--port") + 1]
    body = {
        "messages": [{"role": "user", "content": question}],
        "max_tokens": 48,
        "temperature": 0,
        "cache_prompt": False,
    }
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=300) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_what_was_said_is_drafted_the_next_day(tmp_path: Path, gguf: Path) -> None:
    try:
        find_program("llama-server")
    except EngineError as error:
        pytest.skip(str(error))
    chats, live = tmp_path / "chats.jsonl", tmp_path / "live.lcd"
    with LlamaServer(gguf, threads=1) as server, chats.open("w", encoding="utf-8") as log:
        for question in QUESTIONS:
            answer = ask(server, question)["choices"][0]["message"]
            messages = [{"role": "user", "content": question}, answer]
            log.write(json.dumps({"messages": messages}) + "\n")
    common = ["-m", gguf, "-f", chats, "--documents", "chat", "--kind", "dynamic"]
    run("create", *common, "-o", tmp_path / "new.lcd")
    aging = ["--weight", "0.9", "--weight", "10", "--min-count", "6", "--max-size", "64M"]
    for _ in range(2):
        run("merge", "--update", live, tmp_path / "new.lcd", *aging)
    before = live.read_bytes()
    with LlamaServer(gguf, dynamic=live, threads=1) as server:
        for line in chats.read_text(encoding="utf-8").splitlines():
            question, said = json.loads(line)["messages"]
            found = ask(server, question["content"])
            assert found["choices"][0]["message"] == said
            timings = found["timings"]
            assert timings["draft_n"] > 0
            assert timings["draft_n_accepted"] > timings["predicted_n"] / 2
    assert live.read_bytes() == before  # the server does not write it
