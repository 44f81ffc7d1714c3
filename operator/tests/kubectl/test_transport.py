"""The real client against a small HTTP server: bounds, errors, lines as they come."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from moorage_operator.errors import Forbidden, TooMany, Unreachable
from moorage_operator.kubectl.cluster import Cluster
from moorage_operator.kubectl.transport import NoKubeconfig, connect

from .fake import refused_by_budget, status

RELEASE = threading.Event()
ASKED: list[str] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path.startswith("/version"):
            token = self.headers.get("Authorization", "")
            return self._answer(200, json.dumps({"gitVersion": f"v1.34 for {token}"}))
        ASKED.append(self.path)
        if "silent" in self.path:
            RELEASE.wait(20)
            return self._answer(200, "{}")
        if self.path.split("?")[0].endswith("/log"):
            return self._log()
        return self._answer(403, status(403, "Forbidden", "User x cannot list"))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(429, refused_by_budget().text, {"Retry-After": "10"})

    def _log(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in (b"one\ntw", b"o\nthr\xffee\n", b"cut"):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self.wfile.flush()
        if "quiet" in self.path:
            RELEASE.wait(20)
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, code: int, text: str, headers: dict[str, str] | None = None) -> None:
        self.send_response(code)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        try:
            self.wfile.write(text.encode())
        except OSError:
            return

    def log_message(self, *_: Any) -> None:
        """No lines among the test's."""


@pytest.fixture
def port() -> Iterator[int]:
    RELEASE.clear()
    ASKED.clear()
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield httpd.server_address[1]
    RELEASE.set()
    httpd.shutdown()
    thread.join(5)
    httpd.server_close()


def kubeconfig(folder: Path, port: int) -> str:
    contexts = [
        {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "realtime"}},
        {"name": "bare", "context": {"cluster": "c", "user": "u"}},
    ]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": contexts,
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "letmein"}}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.fixture
def cluster(port: int, tmp_path: Path) -> Iterator[Cluster]:
    transport, namespace = connect(kubeconfig(tmp_path, port), None)
    assert namespace == "realtime"
    yield Cluster(transport, seconds=5)
    transport.close()


def test_a_request_goes_with_the_credentials_of_the_context(cluster: Cluster) -> None:
    assert cluster.version() == "v1.34 for Bearer letmein"


def test_the_context_says_the_namespace(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path, 1)
    assert connect(file, "bare")[1] == "default"
    with pytest.raises(NoKubeconfig, match="no context there in the kubeconfig; there are: here, bare"):
        connect(file, "there")
    with pytest.raises(NoKubeconfig, match="no file"):
        connect(str(tmp_path / "nothing"), None)
    (tmp_path / "empty").write_text("")
    with pytest.raises(NoKubeconfig, match="no way to a cluster"):
        connect(str(tmp_path / "empty"), None)


def test_refusals_keep_their_message_and_are_not_repeated(cluster: Cluster) -> None:
    with pytest.raises(Forbidden, match="User x cannot list"):
        cluster.all("Pod", "realtime")
    with pytest.raises(TooMany, match="disruption budget") as refused:
        cluster.evict("realtime", "chat-a")
    assert refused.value.retry_after == 10


def test_a_server_that_does_not_answer_costs_the_bound_and_no_more(port: int, tmp_path: Path) -> None:
    transport, _ = connect(kubeconfig(tmp_path, port), None)
    with pytest.raises(Unreachable, match="silent"):
        transport.send("GET", "/api/v1/silent", {}, seconds=0.3)
    until = time.monotonic() + 10
    while not ASKED and time.monotonic() < until:  # the server's thread may be later than the bound
        time.sleep(0.01)
    assert ASKED == ["/api/v1/silent"], "asked once: no retry outlasts the bound"
    transport.close()


def test_nobody_there_is_told_at_once(tmp_path: Path) -> None:
    transport, _ = connect(kubeconfig(tmp_path, 1), None)
    with pytest.raises(Unreachable, match="refused"):
        transport.send("GET", "/version", {}, seconds=5)
    transport.close()


def test_lines_come_whole_however_they_were_cut(cluster: Cluster) -> None:
    assert list(cluster.follow("realtime", "chat-a", "server")) == ["one", "two", "thr\ufffdee", "cut"]


def test_silence_ends_a_log_after_what_had_come(cluster: Cluster) -> None:
    lines = cluster.follow("realtime", "quiet", "server", seconds=2)
    assert [next(lines), next(lines), next(lines)] == ["one", "two", "thr\ufffdee"]
    assert list(lines) == []


def test_a_log_that_is_refused_says_its_status(port: int, tmp_path: Path) -> None:
    transport, _ = connect(kubeconfig(tmp_path, port), None)
    with pytest.raises(Unreachable) as refused:
        list(transport.lines("/api/v1/other", {}, seconds=5))
    assert refused.value.status == 403
    transport.close()
