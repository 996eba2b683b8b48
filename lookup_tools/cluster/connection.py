"""A Dask cluster: one that runs already, or one of processes on this machine."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Iterator
from typing import Any

from lookup_tools.errors import BuildError, LookupToolsError, ParameterError

CONNECT_SECONDS = 15
# A task that took so many workers with it is not tried again.
ALLOWED_FAILURES = 5


def check_address(address: str) -> None:
    """Refuse what is no cluster's address.

    Raises:
        ParameterError: it is neither `local[:N]` nor a scheduler's URL.
    """
    if not re.fullmatch(r"local(:[1-9]\d{0,3})?|[a-z]+://\S+", address):
        raise ParameterError(
            f"found cluster {address!r}, expected tcp://HOST:PORT of a Dask scheduler, local or "
            "local:N"
        )


@contextlib.contextmanager
def connected(address: str, memory: int | None = None) -> Iterator[Any]:
    """A client of the cluster; `local:N` starts N worker processes and ends them again.

    Whatever Dask raises inside becomes one line.

    Raises:
        ParameterError: no address, or `distributed` is not installed.
        BuildError: the scheduler does not answer, went away, or a task failed on every worker.
    """
    check_address(address)
    try:
        import distributed
    except ImportError as error:
        raise ParameterError(
            "found no package distributed, expected it for --cluster; pip install "
            "'lookup-tools[cluster]'"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(_quiet())
        stack.enter_context(_one_line(address, distributed))
        stack.enter_context(
            _configured(
                {
                    "distributed.scheduler.allowed-failures": ALLOWED_FAILURES,
                    "distributed.comm.timeouts.connect": f"{CONNECT_SECONDS}s",
                }
            )
        )
        target: Any = address
        if address.startswith("local"):
            n = int(address.partition(":")[2] or os.cpu_count() or 1)
            target = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=n,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    memory_limit=memory or "auto",
                    silence_logs=logging.CRITICAL,
                )
            )
        client = distributed.Client(target, timeout=CONNECT_SECONDS, set_as_default=False)
        stack.callback(_close, client)
        yield client


def register(client: Any, plugin: Any) -> None:
    """Bring a plugin to every worker. A worker that dies while it is sent breaks the scheduler's
    answer, not the cluster: the others are sent it again, as long as the scheduler is there.

    Raises:
        OSError: the scheduler does not answer, or workers went on dying.
    """
    for left in reversed(range(ALLOWED_FAILURES)):
        try:
            client.register_plugin(plugin, name=plugin.name)
            return
        except OSError:
            if not left:
                raise
            client.nthreads()  # raises if it is the scheduler that went away
            plugin.idempotent = False  # else it is taken as sent already


def _close(client: Any) -> None:
    with contextlib.suppress(Exception):  # the scheduler may be gone
        client.close(timeout=5)


@contextlib.contextmanager
def _configured(settings: dict[str, Any]) -> Iterator[None]:
    import dask

    with dask.config.set(settings):
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Dask tells of every lost worker and connection; what matters is told by this program."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _one_line(address: str, distributed: Any) -> Iterator[None]:
    cancelled = distributed.CancelledError
    try:
        yield
    except (LookupToolsError, MemoryError):
        raise
    except distributed.KilledWorker as error:
        raise BuildError(
            f"{address}: a task ended {ALLOWED_FAILURES} workers one after the other, most likely "
            "for want of memory: give the workers more, or pass a smaller --memory"
        ) from error
    except (TimeoutError, asyncio.CancelledError, cancelled, ConnectionError) as error:
        raise BuildError(
            f"{address}: the scheduler does not answer or went away: check that it runs and start "
            "again"
        ) from error
    except OSError as error:
        if error.filename is not None:
            raise
        raise BuildError(
            f"{address}: the scheduler cannot be reached ({' '.join(str(error).split())[:200]}): "
            "check the address"
        ) from error
