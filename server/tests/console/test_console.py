"""What a person does at /console: sign in, start a task, watch, answer, cut, resume, load anew."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from playwright.async_api import Page, expect

from ..client.replicas import Front
from ..site import SETUP_APART, Site

pytestmark = [pytest.mark.asyncio(loop_scope="session"), SETUP_APART]

QUICK = {"prompt": "p", "steps": 2, "pauseMs": 2, "deltas": 3}
LONG = {"prompt": "p", "steps": 12, "pauseMs": 25, "deltas": 5}
BOUND_MS = 20_000


async def sign_in(page: Page) -> None:
    await page.get_by_role("button", name="Sign in with this browser's key").click()
    await page.get_by_label("Tag").fill("t")
    await page.get_by_role("button", name="Open", exact=True).click()
    await expect(page.locator("#state")).to_have_text("live", timeout=BOUND_MS)


async def start(page: Page, input: dict[str, Any]) -> None:
    await page.get_by_label("Input").fill(json.dumps(input))
    await page.get_by_role("button", name="Start task").click()


async def ended(page: Page) -> None:
    await expect(page.locator("#events li[data-type=task_result]")).to_have_count(1, timeout=BOUND_MS)


async def seqs(page: Page) -> list[int]:
    """Numbers of all rows that are in the log, in the order shown."""
    texts = await page.locator("#events .seq").all_text_contents()
    return [int(text) for text in texts if text.isdigit()]


async def all_counted(page: Page, events: int) -> None:
    """Counts are drawn with the next frame, all at once: with these events, all else that is here by now."""
    await expect(page.locator("[data-count=events]")).to_have_text(str(events))


async def count(page: Page, name: str) -> int:
    return int(await page.locator(f"[data-count={name}]").inner_text())


async def some_rows(page: Page, number: int) -> None:
    await expect(page.locator("#events li").nth(number - 1)).to_be_attached(timeout=BOUND_MS)


async def test_a_task_is_started_and_watched(page: Page) -> None:
    await sign_in(page)
    await start(page, QUICK)
    await ended(page)
    types = await page.locator("#events .type").all_text_contents()
    assert types[0] == "session_created"
    assert types[-1] == "task_result"
    assert types.count("tool_call") == 2
    shown = await seqs(page)
    assert shown == list(range(1, len(shown) + 1))
    assert await page.locator("#events li.transient").count() == 1  # pieces of text grow in one row
    await all_counted(page, len(shown))
    assert await count(page, "unlogged") == 3
    assert (await count(page, "missed"), await count(page, "replayed")) == (0, 0)


async def test_cut_and_resume_by_the_buttons(page: Page) -> None:
    await sign_in(page)
    await start(page, LONG)
    await some_rows(page, 3)
    await page.get_by_role("button", name="Cut", exact=True).click()
    await expect(page.locator("#state")).to_have_text("closed")
    had = len(await seqs(page))
    await page.evaluate(
        """async (path) => {
          const { Moorage } = await import(path);
          const client = new Moorage(location.origin, sessionStorage.getItem("moorage:token"));
          for (let look = 0; look < 400; look++) {
            if ((await client.turn(sessionStorage.getItem("moorage:session"))).status === "done") return;
            await new Promise((resolve) => setTimeout(resolve, 25));
          }
        }""",
        "/client/moorage.js",
    )
    assert len(await seqs(page)) == had
    await page.get_by_role("button", name="Resume").click()
    await ended(page)
    await expect(page.locator("#state")).to_have_text("live")
    shown = await seqs(page)
    assert shown == list(range(1, len(shown) + 1))
    await all_counted(page, len(shown))
    assert await count(page, "replayed") == len(shown) - had
    assert await page.locator(".mark.replayed").count() == len(shown) - had
    assert await count(page, "missed") == 0


async def test_through_real_cuts_nothing_is_lost_or_doubled(page: Page, front: Front) -> None:
    await sign_in(page)
    await start(page, LONG)
    for connections, rows in ((2, 2), (3, 5)):
        await some_rows(page, rows)
        front.cut()
        # Not its state: whoever looks too seldom sees it live before and after.
        await expect(page.locator("[data-count=connections]")).to_have_text(
            str(connections), timeout=BOUND_MS
        )
        await expect(page.locator("#state")).to_have_text("live", timeout=BOUND_MS)
    await ended(page)
    shown = await seqs(page)
    assert shown == list(range(1, len(shown) + 1))
    await all_counted(page, len(shown))
    assert await count(page, "connections") == 3
    assert await count(page, "missed") == 0


async def test_a_question_is_answered_by_the_keyboard(page: Page) -> None:
    await sign_in(page)
    await start(page, QUICK | {"question": "Which berth?"})
    await expect(page.get_by_label("Which berth?")).to_be_focused(timeout=BOUND_MS)
    await page.keyboard.type("the second")
    await page.keyboard.press("Enter")
    await ended(page)
    await expect(page.locator("#question")).to_be_hidden()
    assert "the second" in await page.locator("#events li[data-type=task_result] .text").inner_text()


async def test_loaded_anew_in_mid_turn(page: Page) -> None:
    await sign_in(page)
    await start(page, LONG | {"question": True})
    await expect(page.locator("#question")).to_be_visible(timeout=BOUND_MS)
    before = await seqs(page)
    await page.reload()
    await expect(page.locator("#question")).to_be_visible(timeout=BOUND_MS)
    assert await seqs(page) == before
    await page.locator("#answer").fill("yes")
    await page.keyboard.press("Enter")
    await ended(page)
    shown = await seqs(page)
    assert shown == list(range(1, len(shown) + 1))


async def test_a_gap_is_said(page: Page, site: Site) -> None:
    await sign_in(page)
    await start(page, QUICK)
    await ended(page)
    await page.get_by_role("button", name="Cut", exact=True).click()
    session = await page.evaluate("sessionStorage.getItem('moorage:session')")
    await page.evaluate(
        """async (session) => {
          const { Moorage } = await import("/client/moorage.js");
          const client = new Moorage(location.origin, sessionStorage.getItem("moorage:token"));
          const path = client.path(session, "/events");
          for (let n = 0; n < 3; n++) await client.request("POST", path, { type: "note", data: n });
        }""",
        session,
    )
    with redis.Redis.from_url(site.redis.url) as direct:
        assert direct.delete(f"moorage:events:{{{session}}}") == 1
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#events li.gap")).to_contain_text(
        "expired: 3 events are lost", timeout=BOUND_MS
    )
    await expect(page.locator("[data-count=missed]")).to_have_text("3")
    await expect(page.locator("#events li[data-type=task_result]")).to_contain_text(
        "status: done · result: {"
    )


async def test_the_same_key_is_the_same_account(page: Page) -> None:
    await sign_in(page)
    who = await page.locator("#who").inner_text()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.locator("#desk")).to_be_hidden()
    await sign_in(page)
    assert await page.locator("#who").inner_text() == who


async def test_a_token_that_is_none(page: Page) -> None:
    await page.get_by_label("or with a token").fill("nonsense")
    await page.get_by_role("button", name="Use token").click()
    await expect(page.get_by_role("alert")).to_have_text("Invalid token")
    await expect(page.locator("#entry")).to_be_visible()


async def test_input_that_is_no_json(page: Page) -> None:
    await sign_in(page)
    await page.get_by_label("Input").fill("{")
    await page.get_by_role("button", name="Start task").click()
    await expect(page.get_by_role("alert")).to_contain_text("not JSON")
    await page.get_by_label("Input").fill("{}")
    await page.get_by_label("Handler").fill("there-is-none")
    await page.get_by_role("button", name="Start task").click()
    await expect(page.get_by_role("alert")).to_contain_text("Unknown handler")


async def test_by_keyboard_alone(page: Page) -> None:
    await page.keyboard.press("Tab")
    await expect(page.locator("#use-key")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#tag")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#state")).to_have_text("live", timeout=BOUND_MS)
    reached = []
    for _ in range(12):
        await page.keyboard.press("Tab")
        reached.append(await page.evaluate("document.activeElement.id"))
    wanted = ["handler", "input", "start", "cut", "blip", "events"]
    assert [name for name in reached if name in wanted][: len(wanted)] == wanted


async def test_a_new_session_asks_for_nothing_that_is_not_there(page: Page) -> None:
    refused: list[str] = []
    page.on("response", lambda answer: refused.append(answer.url) if answer.status >= 400 else None)
    await sign_in(page)
    await start(page, QUICK)
    await ended(page)
    assert refused == []
    shown = await seqs(page)
    assert shown == list(range(1, len(shown) + 1))


async def test_keys_are_shown_and_what_was_heard_is_not_what_is(page: Page) -> None:
    await sign_in(page)
    await start(page, LONG | {"question": True})  # it runs until somebody answers
    await expect(page.locator("#events .mark.key").first).to_have_text("step-1/thought", timeout=BOUND_MS)
    await expect(page.locator("#turn")).to_have_text("· latest turn: running")
    await page.get_by_role("button", name="Cut", exact=True).click()
    await expect(page.locator("#turn")).to_have_text("· latest turn, when last heard: running")
    await page.get_by_role("button", name="Resume").click()
    await expect(page.locator("#question")).to_be_visible(timeout=BOUND_MS)
    await page.locator("#answer").fill("yes")
    await page.keyboard.press("Enter")
    await ended(page)
    await expect(page.locator("#turn")).to_have_text("· latest turn: ended")
