"""A hub on this machine: the part of the Hugging Face API that fetching a model uses, over plain HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".npz", ".bin")  # what a hub keeps in LFS, behind a redirect


@dataclass
class StandIn:
    """What the hub holds, how it misbehaves, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    sent: dict[str, bytes] = field(default_factory=dict)  # content that differs from the listing
    cut: dict[str, int] = field(default_factory=dict)  # how often a file's connection ends halfway
    status: int = 0  # answer everything with this error
    error_code: str = ""
    commit: str = COMMIT
    requests: list[tuple[str, str, str]] = field(default_factory=list)  # method, path, range
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    def asked_for(self, method: str, name: str) -> list[str]:
        """The ranges with which the content of a file was asked for."""
        sha = hashlib.sha256(self.files[name]).hexdigest()
        return [r for m, path, r in self.requests if m == method and path.endswith((name, sha))]

    def listing(self) -> dict[str, object]:
        siblings = []
        for name, content in self.files.items():
            blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": blob}
            if name.endswith(LARGE):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        return {
            "id": "tiny/vit",
            "sha": self.commit,
            "siblings": siblings,
            "private": False,
            "tags": [],
            "downloads": 0,
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: StandIn

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        path = urlsplit(self.path).path
        hub = self.hub
        hub.requests.append((self.command, path, self.headers.get("Range", "")))
        hub.headers.append(dict(self.headers))
        if hub.status:
            return self.reply(hub.status, b'{"error":"no"}', {"X-Error-Code": hub.error_code, "X-Error-Message": "no"})
        if path in ("/api/models/tiny/vit/revision/main", f"/api/models/tiny/vit/revision/{hub.commit}"):
            return self.reply(200, json.dumps(hub.listing()).encode(), {"Content-Type": "application/json"})
        if path.startswith("/api/models/tiny/vit/revision/"):
            return self.reply(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
        if path.startswith("/cdn/"):
            name = next(
                name for name, content in hub.files.items() if path.endswith(hashlib.sha256(content).hexdigest())
            )
            return self.content(name)
        prefix = f"/tiny/vit/resolve/{hub.commit}/"
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or name not in hub.files:
            return self.reply(404, b"", {"X-Error-Code": "RepoNotFound"})
        sha = hashlib.sha256(hub.files[name]).hexdigest()
        if not name.endswith(LARGE):
            return self.content(name, {"ETag": f'"{sha[:40]}"', "X-Repo-Commit": hub.commit})
        headers = {
            "X-Repo-Commit": hub.commit, "X-Linked-Etag": f'"{sha}"', "X-Linked-Size": str(len(hub.files[name])),
            # Another host, as the real one: the library takes a redirect to the same host for a renamed model.
            "Location": f"{hub.url.replace('127.0.0.1', 'localhost')}/cdn/{sha}",
        }  # fmt: skip
        return self.reply(302, b"", headers)

    def content(self, name: str, headers: dict[str, str] | None = None) -> None:
        content = self.hub.sent.get(name, self.hub.files[name])
        asked = self.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").rstrip("-") or 0) if asked else 0
        cut = self.command == "GET" and self.hub.cut.get(name, 0) > 0
        extra = {"Content-Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        if cut:
            self.hub.cut[name] -= 1
        self.reply(206 if start else 200, content[start:], {**(headers or {}), **extra}, cut=cut)

    def reply(self, status: int, body: bytes, headers: dict[str, str], *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.close_connection = True


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Iterator[StandIn]:
    """The hub, running, and the environment that leads to it."""
    pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")
    hub = StandIn()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("VITRAIL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()
