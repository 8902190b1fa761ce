"""A real review server in a process of its own, and requests to it exactly as written."""

from __future__ import annotations

import gzip
import http.client
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from jcas.cli import main


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Server:
    process: subprocess.Popen[str]
    address: str  # with the token

    @property
    def port(self) -> int:
        return urlsplit(self.address).port or 80

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def token(self) -> str:
        return urlsplit(self.address).query.removeprefix("token=")

    def ask(
        self, path: str, *, method: str = "GET", body: Any = None, token: bool = True, **headers: str | None
    ) -> Answer:
        """One request; header names with ``_`` for ``-``; a header of None is left out; JSON unless bytes."""
        sent: dict[str, str | None] = {"host": f"127.0.0.1:{self.port}"}
        if token:
            sent["x-review-token"] = self.token
        if body is not None and not isinstance(body, bytes):
            body, sent["content-type"] = json.dumps(body).encode(), "application/json"
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in sent.items():
                if value is not None:
                    connection.putheader(name, value)
            if body is not None and "content-length" not in sent:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            content = answer.read()
            answered = {name.lower(): value for name, value in answer.getheaders()}
        finally:
            connection.close()
        if answered.get("content-encoding") == "gzip":
            content = gzip.decompress(content)
        return Answer(answer.status, answered, content)

    def decide(self, number: int, action: str, *, revision: int, **more: Any) -> Answer:
        body = {"action": action, "revision": revision, **more}
        return self.ask(f"/api/images/{number}/decision", method="POST", body=body)


@contextmanager
def serving(audit: Path, *options: str) -> Iterator[Server]:
    """Run `jcas review` on a free port until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "jcas", "review", str(audit), "--no-browser", "--port", "0", *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # background jobs of a shell ignore it
    )
    assert process.stdout is not None
    try:
        yield Server(process, process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def run_command(*arguments: str) -> tuple[int, str]:
    """The ``jcas`` command in this process: its exit code and what it wrote to stderr."""
    written = io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["jcas", *arguments])
        patch.setattr(sys, "stderr", written)
        patch.setattr("jcas.cli.repair.console", Console(file=written, width=200))
        with pytest.raises(SystemExit) as ended:
            main()
    return int(ended.value.code or 0), written.getvalue()
