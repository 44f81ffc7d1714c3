"""The console in headless Chromium (Debian's), driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from ..client.replicas import Front
from ..site import Site
from ..valkey import Valkey

ACTION_BOUND_MS = 15_000


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where it is. Missing: skipped, and with ``CI=true`` a failure."""
    found = shutil.which("chromium")
    if found is None:
        refuse = pytest.fail if os.environ.get("CI", "").lower() == "true" else pytest.skip
        refuse("Chromium is not installed: apt-get install chromium")
        raise AssertionError
    return found


@pytest.fixture(scope="session")
def site(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    redis = Valkey()
    redis.start()
    site = Site(redis, tmp_path_factory.mktemp("site"))
    try:
        site.start_all()
        yield site
    finally:
        site.stop()
        redis.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def front(site: Site) -> AsyncIterator[Front]:
    """Connections go to the two replicas by turns."""
    front = Front(site.processes)
    front.next = ["a", "b"] * 500
    async with front.serving():
        yield front


@pytest_asyncio.fixture(loop_scope="session")
async def context(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context(viewport={"width": 1200, "height": 800})
    context.set_default_timeout(ACTION_BOUND_MS)
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext, front: Front) -> AsyncIterator[Page]:
    """The console, not signed in. What the page complains about fails the test."""
    page = await context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            # the browser's own words about a connection that a test has cut or refused
            if message.type == "error"
            and "WebSocket connection" not in message.text
            and "Failed to load resource" not in message.text
            else None
        ),
    )
    await page.goto(f"{front.url}/console")
    yield page
    assert complaints == []


@pytest.fixture
def folder() -> Path:
    """The console's files."""
    import moorage

    return Path(moorage.__file__).parent / "console"
