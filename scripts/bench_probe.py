"""One measurement in one fresh process, printed as JSON. Called by bench.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import numpy as np

from lookup_tools._native import ffi, lib, strerror
from lookup_tools.cache import ConstmapCache, open_cache
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.cache.verify import verify_cache
from lookup_tools.system.memory import memory_now
from lookup_tools.tokens import load_tokens


def drop_from_page_cache(path: str) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bring_into_page_cache(path: str) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass


def load(path: str, mode: str, temperature: str) -> dict[str, float]:
    strerror(0)
    if temperature == "cold":
        drop_from_page_cache(path)
    else:
        bring_into_page_cache(path)
    loaded = load_cache(path, "static", load=mode)  # type: ignore[arg-type]
    shared = loaded.resident_bytes - loaded.private_bytes
    return {
        "load_ms": 1e3 * loaded.load_seconds,
        "private_mb": loaded.private_bytes / 1e6,
        "shared_mb": shared / 1e6,
    }


def verify(path: str) -> dict[str, float]:
    """Ours against fastconstmap's own check of the same map (reading and hashing serially)."""
    import fastconstmap

    with open_cache(path) as cache:
        assert isinstance(cache, ConstmapCache)
        start = time.perf_counter()
        verify_cache(cache)
        whole = time.perf_counter() - start
        view = cache.static_view()
        data = bytes(ffi.buffer(view.map_start, view.map.bytes))
        times = {"map": 0.0, "serial": 0.0}
        for name, call in (
            ("map", lambda: lib.lookup_map_verify(ffi.addressof(view, "map"), view.map_start)),
            (
                "serial",
                lambda: lib.lookup_fnv1a_serial(0xCBF29CE484222325, view.map_start, view.map.bytes),
            ),
        ):
            start = time.perf_counter()
            call()
            times[name] = time.perf_counter() - start
        start = time.perf_counter()
        fastconstmap.VerifiedConstMap.from_bytes(data)
        theirs = time.perf_counter() - start
    return {
        "verify_all_ms": 1e3 * whole,
        "verify_map_ms": 1e3 * times["map"],
        "serial_fnv_ms": 1e3 * times["serial"],
        "fastconstmap_from_bytes_ms": 1e3 * theirs,
    }


_CHILD = """
import sys, json
from lookup_tools.cache.load_cost import load_cache
from lookup_tools.replaying.replay import replay
from lookup_tools.system.memory import memory_now
from lookup_tools.tokens import load_tokens
loaded = load_cache(sys.argv[1], "static")
before = memory_now()
ids = load_tokens(sys.argv[2]).ids
replay(ids, static=loaded.cache)
print("ready", flush=True)
sys.stdin.readline()
now = memory_now()
mapped = inside = 0
for line in open("/proc/self/smaps"):
    if "-" in line.split(" ")[0]:
        inside = line.rstrip().endswith(sys.argv[3])
    elif inside and line.startswith("Pss:"):
        mapped += 1024 * int(line.split()[1])
print(json.dumps([loaded.private_bytes / 1e6, now.proportional / 1e6, mapped / 1e6]), flush=True)
sys.stdin.readline()
"""


def memory(path: str, tokens: str, processes: str) -> dict[str, float]:
    one = _children(path, tokens, 1)
    several = _children(path, tokens, int(processes))
    return {
        "private_open_mb": one[0][0],
        "pss_one_mb": one[0][1],
        "pss_all_mb": sum(each[1] for each in several),
        "cache_pss_one_mb": one[0][2],
        "cache_pss_all_mb": sum(each[2] for each in several),
    }


def _children(path: str, tokens: str, n: int) -> list[list[float]]:
    command = [sys.executable, "-c", _CHILD, path, tokens, os.path.realpath(path)]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(n)
    ]
    for child in children:
        assert child.stdout
        if child.stdout.readline().strip() != "ready":
            raise SystemExit("a child did not come up")
    found = []
    for child in children:  # all are alive while any is measured
        assert child.stdin
        assert child.stdout
        child.stdin.write("\n")
        child.stdin.flush()
        found.append(json.loads(child.stdout.readline()))
    for child in children:
        child.communicate("\n")
    return found


def python_draft_overhead(path: str, tokens: str) -> dict[str, float]:
    """What one `Drafter.draft()` call costs on top of the C work."""
    from lookup_tools.drafting.drafter import Drafter

    ids = load_tokens(tokens).ids[:50_000]
    with open_cache(path) as cache:
        times = {}
        for name in ("python", "c"):
            with Drafter(static=cache) as drafter:
                drafter.begin(ids[:1000])
                start = time.perf_counter()
                if name == "python":
                    for _ in range(20_000):
                        drafter.draft()
                else:  # the same call without the method around it
                    arguments = (
                        drafter._source.pointer,
                        drafter._pointer,
                        drafter._n,
                        drafter._out_pointer,
                        ffi.NULL,
                        8,
                        drafter._count,
                    )
                    call = lib.lookup_source_draft
                    for _ in range(20_000):
                        call(*arguments)
                times[name] = (time.perf_counter() - start) / 20_000
    return {
        "draft_us": 1e6 * times["python"],
        "c_call_us": 1e6 * times["c"],
        "on_top_us": 1e6 * (times["python"] - times["c"]),
    }


if __name__ == "__main__":
    kinds = {"load": load, "verify": verify, "memory": memory, "overhead": python_draft_overhead}
    np.seterr(all="raise")
    memory_now()
    print(json.dumps(kinds[sys.argv[1]](*sys.argv[2:])))
