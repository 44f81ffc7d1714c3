"""Static files: the JavaScript client always, the console where it is enabled, nothing from other hosts."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import PurePosixPath
from urllib.parse import urljoin

import pytest

from moorage.http.pages import CONSOLE, ROOT

from .conftest import World, make_world

MEDIA = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", "": "text/html"}


@pytest.fixture
def console() -> World:
    return make_world(console_enabled=True)


async def test_the_client_is_served_without_a_token(world: World) -> None:
    async with world.client(None) as client:
        answer = await client.get("/client/moorage.js", headers={"Origin": "https://app.example.com"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.headers["access-control-allow-origin"] == "*"  # a page of another origin may import it
    assert "export class EventStream" in answer.text


async def test_what_is_known_is_not_sent_again(world: World) -> None:
    async with world.client(None) as client:
        first = await client.get("/client/moorage.js")
        again = await client.get(
            "/client/moorage.js", headers={"If-None-Match": f'"x", {first.headers["etag"]}'}
        )
        other = await client.get("/client/moorage.js", headers={"If-None-Match": '"x"'})
        head = await client.head("/client/moorage.js")
    assert (again.status_code, again.content) == (304, b"")
    assert other.status_code == head.status_code == 200
    assert head.content == b""


async def test_the_console_is_off_unless_enabled(world: World) -> None:
    async with world.client() as client:
        for path in CONSOLE:
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]) == (404, "Not Found")


async def test_the_console_is_served_and_may_load_nothing_from_elsewhere(console: World) -> None:
    async with console.client(None) as client:
        for path in CONSOLE:
            answer = await client.get(path)
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith(MEDIA[PurePosixPath(path).suffix])
            assert answer.headers["x-content-type-options"] == "nosniff"
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'none'")
            assert "unsafe" not in policy
            assert "http" not in policy


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.inline: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.found += [value for name in ("src", "href") if (value := named.get(name))]
        self.inline += [name for name in named if name.startswith("on") or name == "style"]


async def test_all_it_links_to_is_served(console: World) -> None:
    links = Links()
    links.feed((ROOT / CONSOLE["/console"]).read_text())
    scripts = [ROOT / file for file in CONSOLE.values() if file.endswith(".js")]
    imports = [found for file in scripts for found in re.findall(r'from "([^"]+)"', file.read_text())]
    wanted = {urljoin("/console", link) for link in links.found}
    wanted |= {urljoin("/console/console.js", name) for name in imports}
    assert links.inline == []
    async with console.client(None) as client:
        for path in sorted(wanted):
            assert (await client.get(path)).status_code == 200, path


def test_every_file_of_the_console_is_served() -> None:
    files = {
        f"console/{file.name}"
        for file in (ROOT / "console").iterdir()
        if file.suffix in MEDIA and file.suffix
    }
    assert files | {"console/index.html"} == set(CONSOLE.values())
