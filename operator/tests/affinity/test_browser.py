"""What a browser can show of its user, as the page says: Debian's Chromium with the Socket.IO client of `make node`."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page, async_playwright

from ..schema import ROOT
from .balancer import BACKENDS, Balancer, until
from .servers import PATH, account, fronted

pytestmark = pytest.mark.timeout(180)
"""[s] More than one wait may last."""
CLIENT = ROOT / "chaos" / "peers" / "node" / "node_modules" / "socket.io-client" / "dist" / "socket.io.min.js"
CONNECT = """([url, options]) => new Promise((resolve) => {
  window.socket = io(url, {...options, forceNew: true, reconnection: false});
  socket.on("connect", () => socket.emit("ping", () => resolve(socket.io.engine.transport.name)));
  socket.on("connect_error", (error) => resolve(`refused: ${error.message}`));
})"""


@pytest.fixture
def front(haproxy: None, tmp_path: Path) -> Iterator[Balancer]:
    with fronted(tmp_path, 2) as (front, _):
        yield front


@pytest.fixture
async def page(front: Balancer) -> AsyncIterator[Page]:
    """A page of another origin than the servers'."""
    chromium = shutil.which("chromium")
    if chromium is None or not CLIENT.exists():
        refuse = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        refuse("needs Chromium (apt-get install chromium) and the Node packages (make node)")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = await browser.new_page()
        await page.goto(f"http://localhost:{front.port}/health")
        await page.add_script_tag(content=CLIENT.read_text())
        yield page
        await browser.close()


async def test_what_reaches_the_balancer(front: Balancer, page: Page) -> None:
    url = f"http://127.0.0.1:{front.port}"
    token = await account(url)
    header = {"extraHeaders": {"Authorization": f"Bearer {token}"}}

    async def connect(transport: str, **options: Any) -> str:
        wanted = {"path": PATH, "auth": {"token": token}, "transports": [transport], **options}
        return str(await page.evaluate(CONNECT, [url, wanted]))

    async def ended() -> None:
        """HAProxy counts a request at its end, which comes after its answer."""
        await page.evaluate("socket.disconnect()")
        what = "no connection left"
        await asyncio.to_thread(until, what, lambda: not any(front.sessions(name) for name in BACKENDS))

    assert await connect("websocket", **header) == "websocket"
    await ended()
    assert front.requests("by_subject") == 0, "a header is never sent on a WebSocket"
    refused = await connect("websocket", protocols=["moorage.v1", f"bearer.{token}"])
    assert refused == "refused: websocket error", "the server selects none of the subprotocols"
    await ended()
    assert front.requests("by_subject") == 1, "the balancer has seen the subject before it was refused"
    assert await connect("polling", **header) == "polling"
    await ended()
    assert front.requests("by_subject") > 3
