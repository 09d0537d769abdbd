"""A Redis of our own, in memory."""

from __future__ import annotations

import subprocess

from tests.servers.presence import find_binary, free_port, is_listening, wait_until


class RedisServer:
    """Runs while its block is open."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def __enter__(self) -> RedisServer:
        self._process = subprocess.Popen(
            [
                find_binary("redis-server"),
                *("--port", str(self.port), "--bind", "127.0.0.1"),
                *("--save", "", "--appendonly", "no", "--dir", "/tmp"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: is_listening("127.0.0.1", self.port), "Redis")
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        self._process.wait(10)
