"""llama-server with our caches: starting it, asking it, measuring and stopping it.

>>> with LlamaServer("model.gguf", static="corpus.lcs") as server:  # doctest: +SKIP
...     answer = server.complete("Once upon a time", 64)
...     print(answer.text, answer.timings.draft_n_accepted)
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import weakref
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from lookup_tools.engine.programs import (
    Program,
    ending,
    find_lookup_program,
    find_program,
    last_lines,
)
from lookup_tools.engine.server_options import HOST, ServerOptions
from lookup_tools.errors import EngineError, ParameterError
from lookup_tools.system.closing import Closing
from lookup_tools.system.memory import ProcessMemory, process_memory
from lookup_tools.system.signals import undone_at_end

_TERMINATE_SECONDS = 10.0
_ENDING_SECONDS = 1.0
_POLL_SECONDS = 0.05
_LOG_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Timings:
    """What the server says of one answer. `draft_n` tokens were drafted, `draft_n_accepted` of them
    accepted; `cache_n` prompt tokens were still known from the request before."""

    prompt_n: int
    prompt_ms: float
    predicted_n: int
    predicted_ms: float
    draft_n: int = 0
    draft_n_accepted: int = 0
    cache_n: int = 0

    @classmethod
    def of(cls, found: dict[str, Any]) -> Timings:
        """Those of a server's answer; other values in it are left out."""
        return cls(**{name: found[name] for name in cls.__slots__ if name in found})

    @property
    def tokens_per_second(self) -> float:
        return 1000 * self.predicted_n / self.predicted_ms if self.predicted_ms else 0.0

    @property
    def n_decode(self) -> int:
        """Batches that the generated tokens took: each yields one token beside those accepted, and
        the prompt's yields the first."""
        return max(0, self.predicted_n - self.draft_n_accepted - 1)


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer; `stop` is why it ended: limit, eos or word."""

    text: str
    tokens: list[int]
    stop: str
    timings: Timings


class LlamaServer(Closing):
    """A llama-server of our own on a free port of this machine; a context manager.

    The files are checked before it starts. It is stopped when the `with` block is left, whatever
    the reason; its log is kept until then (`log`).

    Raises:
        FormatError, TokenizerMismatchError, OSError: a file is not what the engine needs; see
            `server_options.require_engine_cache`. `ignore_vocabulary` skips that check.
        EngineError: no llama-server is installed (with our integration, for spec type `lookup`);
            or, on entering, it did not get ready.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        static: str | os.PathLike[str] | None = None,
        dynamic: str | os.PathLike[str] | None = None,
        spec_type: str | None = None,
        slots: int = 1,
        n_ctx: int = 2048,
        threads: int | None = None,
        extra: Sequence[str] = (),
        program: Program | None = None,
        start_timeout: float = 300.0,
        ignore_vocabulary: bool = False,
    ) -> None:
        lcs, lcd = (os.fspath(path) if path else None for path in (static, dynamic))
        self.options = ServerOptions(
            os.fspath(model), lcs, lcd, spec_type, slots, n_ctx, threads, tuple(extra)
        )
        self.options.check_files(ignore_vocabulary=ignore_vocabulary)
        find = find_lookup_program if self.options.needs_lookup else find_program
        self.program = program or find("llama-server")
        self.start_timeout = start_timeout
        self.start_seconds = 0.0
        self.command: list[str] = []
        self._url = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[Any, Any] | None = None
        self._log: Any = None
        # Requests stay on this machine, whatever proxy the environment names.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def __enter__(self) -> LlamaServer:
        self.start()
        return self

    def close(self) -> None:
        """`stop`, at the end of a `with` block."""
        self.stop()

    def start(self) -> None:
        """Start it and wait until it answers; `start_seconds` is how long that took.

        Raises:
            EngineError: it ended, or was not ready in `start_timeout` seconds.
        """
        if self._process is not None:
            raise ParameterError("found a server that runs already, expected a stopped one")
        port = free_port()
        self._url = f"http://{HOST}:{port}"
        self.command = [self.program.path, *self.options.arguments(port)]
        started = time.perf_counter()
        self._launch()
        try:
            self._wait_until_ready(started + self.start_timeout)
        except BaseException:
            self.stop()
            raise
        self.start_seconds = time.perf_counter() - started

    def stop(self) -> None:
        """End the process, if need be by force; harmless when there is none."""
        if self._end is not None:
            self._end()
        self._process = self._log = self._end = None

    def complete(
        self,
        prompt: str | Sequence[int],
        n_predict: int,
        *,
        temperature: float = 0.0,
        cache_prompt: bool = False,
        seed: int = 1,
        timeout: float = 600.0,
        **more: Any,
    ) -> Completion:
        """Continue a prompt, given as text or ids, by up to `n_predict` tokens.

        Temperature 0 is greedy. `cache_prompt` reuses what a slot still knows of an earlier prompt.
        `more` goes to the server's /completion as it is.

        Raises:
            EngineError: the server refused the request, ended, or took more than `timeout` seconds.
        """
        body = {
            "prompt": prompt if isinstance(prompt, str) else [int(token) for token in prompt],
            "n_predict": n_predict,
            "temperature": temperature,
            "cache_prompt": cache_prompt,
            "seed": seed,
            "return_tokens": True,
            **more,
        }
        found = self._ask("/completion", body, timeout)
        return Completion(
            found["content"], found["tokens"], found["stop_type"], Timings.of(found["timings"])
        )

    @property
    def url(self) -> str:
        """Where it listens, for requests that `complete` does not make."""
        self._running()
        return self._url

    @property
    def pid(self) -> int:
        """The process's number, while it runs."""
        return self._running().pid

    def memory(self) -> ProcessMemory:
        """Memory of the server now. The model is mapped, so `anonymous` tells what caches cost."""
        return process_memory(self.pid)

    def log(self) -> str:
        """The end of what the server has written since it started."""
        if self._log is None:
            return ""
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        return os.pread(self._log.fileno(), size - start, start).decode(errors="replace")

    def _launch(self) -> None:
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                self.command, env=self.program.environment(), stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            stack.enter_context(undone_at_end(self._process.kill))
            stack.callback(end_process, self._process)
            self._log = log
            # also when this object is forgotten, and when Python ends
            self._end = weakref.finalize(self, stack.pop_all().close)

    def _wait_until_ready(self, deadline: float) -> None:
        while True:
            self._running()
            try:
                self._opener.open(f"{self._url}/health", timeout=5).close()
                return
            except OSError:  # not listening yet, or 503 while it loads
                pass
            if time.perf_counter() > deadline:
                raise EngineError(
                    f"llama-server: not ready after {self.start_timeout:.0f} s; "
                    f"{last_lines(self.log())}"
                )
            time.sleep(_POLL_SECONDS)

    def _running(self) -> subprocess.Popen[bytes]:
        """The process, which must be alive."""
        if self._process is None:
            raise EngineError("llama-server: not running; use it in a with block")
        code = self._process.poll()
        if code is not None:
            raise EngineError(f"llama-server: {ending(code)}; {last_lines(self.log())}")
        return self._process

    def _ask(self, path: str, body: dict[str, Any], timeout: float) -> Any:
        process = self._running()
        request = urllib.request.Request(
            self._url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with self._opener.open(request, timeout=timeout) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace").strip()
            raise EngineError(f"llama-server: {path} refused ({error.code}): {said}") from None
        except (OSError, ValueError) as error:
            with suppress(subprocess.TimeoutExpired):  # it may be about to end
                process.wait(_ENDING_SECONDS)
            self._running()
            raise EngineError(f"llama-server: no answer to {path}: {error}") from None


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def end_process(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and make it end."""
    process.terminate()
    try:
        process.wait(_TERMINATE_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
