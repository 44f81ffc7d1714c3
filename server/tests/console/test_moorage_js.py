"""moorage.js in Chromium on a page of its own, against real replicas, its connections cut at random."""

from __future__ import annotations

import asyncio
import random
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Page

from ..client.replicas import Front
from ..site import SETUP_APART

pytestmark = [pytest.mark.asyncio(loop_scope="session"), SETUP_APART]

BOUND_S = 30.0

SETUP = """async () => {
  const { EventStream, Moorage, storedAt } = await import("/client/moorage.js");
  const client = new Moorage(location.origin, localStorage.getItem("token"));
  if (!client.token) localStorage.setItem("token", await client.signIn(await Moorage.generateKey()));
  const session = await client.createSession("js");
  const stream = new EventStream(client, session.id, { storage: storedAt(localStorage, "checkpoint") });
  const got = JSON.parse(localStorage.getItem("got") ?? "[]");
  const rebuilt = [];
  stream.on("event", (event) => {
    got.push([event.id, event.type]);
    localStorage.setItem("got", JSON.stringify(got));
  });
  stream.on("rebuilt", (order) => rebuilt.push(order));
  stream.open();
  await stream.ready();
  window.test = { client, session, stream, got, rebuilt };
}"""

LOG = """async () => {
  const { client, session } = window.test;
  const ids = [];
  for (let after = "0-0"; after !== null; ) {
    const page = await client.events(session.id, after, 50);
    ids.push(...page.events.map(({ id }) => id));
    after = page.next;
  }
  return ids;
}"""

SSE = """async () => {
  const { client, session } = window.test;
  const leaving = new AbortController();
  const ids = [];
  let last = "";
  for await (const { id, frame } of client.sse(session.id, { lastEventId: "0-0", signal: leaving.signal })) {
    if (frame.type === "event") ids.push(frame.id);
    last = id;
    if (frame.type === "replay_done") break;
  }
  leaving.abort();
  return [ids, last];
}"""


async def eventually(page: Page, expression: str) -> None:
    """Playwright's own wait needs `eval` in the page, which the policy of the console forbids."""
    async with asyncio.timeout(BOUND_S):
        while not await page.evaluate(expression):
            await asyncio.sleep(0.02)


async def results(page: Page) -> int:
    return int(await page.evaluate("test.got.filter(([, type]) => type === 'task_result').length"))


async def start(page: Page, steps: int) -> None:
    await page.evaluate(
        "(steps) => test.stream.startTask({ steps, pauseMs: 20, deltas: 4 }, 'demo')",
        steps,
    )


async def logged(page: Page) -> list[str]:
    return [id_ for id_, _ in await page.evaluate("test.got") if id_ is not None]


async def turn_under_cuts(page: Page, front: Front, dice: random.Random, turns_before: int) -> None:
    """Start a task and cut the connection at random until its result is there."""
    await page.evaluate("test.stream.ready()")
    await start(page, dice.randrange(8, 16))
    while await results(page) == turns_before:
        await asyncio.sleep(dice.uniform(0.05, 0.6))
        if await page.evaluate("test.stream.state") == "live":
            front.cut()


async def test_cut_at_random_nothing_is_lost_doubled_or_out_of_order(page: Page, front: Front) -> None:
    seed = random.randrange(10**6)
    dice = random.Random(seed)
    await page.evaluate(SETUP)
    for turns in range(2):
        await turn_under_cuts(page, front, dice, turns)
    await page.evaluate("test.stream.ready()")
    statistics: dict[str, Any] = await page.evaluate("test.stream.statistics")
    assert await logged(page) == await page.evaluate(LOG), f"seed {seed}"
    assert await page.evaluate("test.rebuilt") == []
    assert statistics["connections"] > 1
    assert statistics["missed"] == statistics["malformed"] == 0


async def test_a_page_loaded_anew_goes_on_from_its_stored_checkpoint(page: Page) -> None:
    await page.evaluate(SETUP)
    await start(page, 12)
    await eventually(page, "test.got.length > 3")
    url = await page.evaluate("test.client.url + test.client.path(test.session.id, '/events')")
    token = await page.evaluate("test.client.token")
    await page.goto("about:blank")  # the task goes on without us
    # It may be over already, so that nothing more of it is missed.
    answer = await page.request.post(
        url, headers={"Authorization": f"Bearer {token}"}, data={"type": "note", "data": 1}
    )
    assert answer.ok, await answer.text()
    await page.go_back()
    await page.evaluate(SETUP)
    for type_ in ("task_result", "note"):
        await eventually(page, f"test.got.some(([, type]) => type === '{type_}')")
    ids = await logged(page)
    assert ids == await page.evaluate(LOG)
    assert await page.evaluate("test.rebuilt") == []
    assert await page.evaluate("test.stream.statistics.replayed") > 0


async def test_the_log_by_server_sent_events(page: Page) -> None:
    await page.evaluate(SETUP)
    await start(page, 2)
    await eventually(page, "test.got.some(([, type]) => type === 'task_result')")
    ids, last = await page.evaluate(SSE)
    assert ids == await logged(page)
    assert last.split(":")[1] == ids[-1]


async def test_the_example_of_the_page_about_clients(page: Page) -> None:
    docs = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
    found = re.search(r"In the browser: `moorage.js`.*?```js\n(.*?)```", docs, re.DOTALL)
    assert found is not None
    code = re.sub(r"import (\{.*?\}) from (\".*?\");", r"const \1 = await import(\2);", found[1])
    origin = await page.evaluate("location.origin")
    code = code.replace("https://realtime.example.com", origin)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await page.evaluate(f"async () => {{ {code} }}")
    async with asyncio.timeout(BOUND_S):
        while not any(line.startswith("task_result") for line in said):
            await asyncio.sleep(0.02)
    assert said[0] == "connecting null"
    assert any(line.startswith("thought") for line in said)


async def test_a_refused_token_and_a_deleted_session_end_it(page: Page) -> None:
    await page.evaluate(SETUP)
    await page.evaluate("test.client.deleteSession(test.session.id)")
    await eventually(page, "test.stream.state === 'failed'")
    assert await page.evaluate("test.stream.cause") == "Session not found"
    await page.evaluate(
        "test.stream.reconnect() && undefined"
    )  # refused before the upgrade, which browsers hide
    await eventually(page, "test.stream.state === 'failed' && test.stream.cause === 'Session not found'")
    await page.evaluate("() => { test.client.token = 'nonsense'; test.stream.reconnect(); }")
    await eventually(page, "test.stream.state === 'failed' && test.stream.cause === 'Invalid token'")
