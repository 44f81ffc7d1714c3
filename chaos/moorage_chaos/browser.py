"""Readers in a real browser: pages that run the product's own ``/client/moorage.js``, under record.

Each page loads the module through its door, as a user's page would, so that a cut of the door cuts it off from
everything.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from moorage_chaos.accounts import Account
from moorage_chaos.clients import Clients
from moorage_chaos.mutants import IN_PAGES
from moorage_chaos.readers import READY_S, Rendering

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
MISSING = "no browser: apt-get install chromium, and pip install playwright (it is in the extra dev), bring the pages"
START_S = 30.0
"""Of the browser, on a busy machine."""
READ = """async ({ url, token, session, mutation }) => {
  const shipped = await import("/client/moorage.js");
  if (mutation) new Function("shipped", mutation)(shipped);
  const stream = new shipped.EventStream(new shipped.Moorage(url, token), session);
  stream.on("event", (event) => told("event", event));
  stream.on("rebuilt", ({ turn, gap, fresh }) => told("rebuilt", { status: turn?.status ?? null, gap, fresh }));
  stream.on("state", (state, cause) => told("state", { state, cause }));
  window.stream = stream;
  stream.open();
}"""


class PageReader(Rendering):
    """A page. As :class:`moorage_chaos.readers.Reader`."""

    kind = "chromium"

    def __init__(self, clients: Clients, name: str, session: str, page: Any) -> None:
        super().__init__(clients, name, session)
        self.page = page
        self.state = "closed"
        self._changed = asyncio.Event()

    @property
    def live(self) -> bool:
        return self.state == "live"

    async def open(self, url: str, token: str) -> None:
        """Load the page; returns when its stream is ready. Raises TimeoutError, playwright's errors."""
        settings = {"url": url, "token": token, "session": self.session}
        mutation = IN_PAGES.get(str(self.history.header.get("mutant")), "")
        await self.page.expose_binding("told", lambda _, what, value: self._told(what, value))
        # Any page of the replica will do, and a real one it must be: a browser does not let a page that came from
        # nowhere talk to this machine.
        await self.page.goto(f"{url}/health")
        await self.page.evaluate(READ, {**settings, "mutation": mutation})
        async with asyncio.timeout(READY_S):
            while self.state not in ("replaying", "live"):
                self._changed.clear()
                await self._changed.wait()
        self.began()

    def _told(self, what: str, value: dict[str, Any]) -> None:
        if what == "event":
            self._rendered(value, "replay" if value["replayed"] else "live")
        elif what == "state":
            self.state = value["state"]
            self._changed.set()
            if self.state == "failed":
                self.failed(value["cause"])
        else:
            gap = value["gap"]
            if gap is not None:
                self.gap(gap["reason"], gap.get("missed"), gap.get("oldest"), value["status"])
            for event in value["fresh"]:
                self._rendered(event, "turn")

    def _rendered(self, event: dict[str, Any], source: str) -> None:
        self.rendered(event["id"], event["seq"], event["type"], event["data"], event["key"], source)

    async def start_task(self, input: Any, handler: str) -> str:
        """By the page's own stream."""
        script = "([input, handler]) => stream.startTask(input, handler)"
        return str(await self.page.evaluate(script, [input, handler]))

    async def close(self) -> None:
        if not self.page.is_closed():
            self.resumed(await self.page.evaluate("() => ({ ...stream.statistics })"))
            await self.page.close()


def browser_path() -> str | None:
    """Of a browser of the system. None: there is none, or nothing to drive it with."""
    try:
        import playwright.async_api  # noqa: F401 -- is it there?
    except ImportError:
        return None
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@asynccontextmanager
async def pages(clients: Clients) -> AsyncIterator[Browser]:
    """A browser for one row. Raises RuntimeError without one."""
    path = browser_path()
    if path is None:
        raise RuntimeError(MISSING)
    from playwright.async_api import async_playwright

    async with asyncio.timeout(START_S):
        driving = await async_playwright().start()
    try:
        # A container's root has no user namespaces for the sandbox; nothing but our own page is loaded.
        browser = await driving.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-gpu"], timeout=START_S * 1000
        )
        try:
            yield Browser(clients, browser)
        finally:
            await browser.close()
    finally:
        await driving.stop()


class Browser:
    """Made by :func:`pages`."""

    def __init__(self, clients: Clients, browser: Any) -> None:
        self._clients = clients
        self._browser = browser

    async def reader(self, account: Account, session: str, *, door: str) -> PageReader:
        """A page that is ready."""
        page = await self._browser.new_page()
        made = PageReader(self._clients, self._clients.name("page"), session, page)
        await made.open(door, await self._clients.token(account))
        return made
