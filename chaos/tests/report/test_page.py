"""The page: whole, safe, and drawn by a real browser without a request to anywhere."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Browser, async_playwright

from moorage_chaos.history import History
from moorage_chaos.report import PAGE, write
from moorage_chaos.report.data import of_run
from moorage_chaos.report.page import deciding, fraction, html
from moorage_chaos.report.replay import only

from ._story import Story, run_of, whole

CHROMIUM = shutil.which("chromium")
WANTED = "Chromium is not installed: apt-get install chromium"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    whole().save(tmp_path / "a-row" / "history.jsonl")
    write(run_of(), tmp_path)
    return tmp_path


def test_everything_is_in_one_file_and_nothing_is_fetched(folder: Path) -> None:
    page = (folder / PAGE).read_text()
    assert "uPlot" in page
    assert not re.search(r"<(?:script|img|link|iframe)[^>]+(?:src|href)=\"(?!data:|#)", page)
    assert "default-src 'none'" in page


def test_what_histories_and_promises_say_cannot_become_markup(folder: Path) -> None:
    page = (folder / PAGE).read_text()
    assert "<script>alert(1)" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    story = Story()
    story.call(0, 1, group="</script><script>alert(2)</script>", target="<b>")
    story.history.save(folder / "a-row" / "history.jsonl")
    assert "<script>alert(2)" not in html(of_run(run_of(), folder))


def test_the_page_names_seed_commands_versions_and_mutants(folder: Path) -> None:
    (folder / "mutants.json").write_text(
        '{"format":1,"seed":7,"driver":"local","red":1,"mutants":[{"mutant":"hang-call","sentence":"one call in five",'
        '"row":"a-row","verdict":"failed","red":true,"seconds":1,"by":["calls: 4/5"]}]}'
    )
    page = html(of_run(run_of("drop-event"), folder))
    for text in (
        "./run_all.py --seed 7 --only a-row",
        "3.11",
        "hang-call",
        "calls: 4/5",
        "drop-event",
        "seed 7",
    ):
        assert text in page, text


@pytest.mark.parametrize(
    ("promise", "expected"),
    [
        (("<= 50", 12.5), 0.25),
        (("<= 50", 500), 1.0),
        (("70/70", "35/70"), 0.5),
        (("100 %", "9/10"), 0.9),
        (("0", 3), None),
        (("<= 50", None), None),
        (("<= 0", 0), None),
        (("0/0", "0/0"), None),
    ],
)
def test_the_part_of_its_bar_that_a_figure_takes(promise: tuple[str, Any], expected: float | None) -> None:
    assert fraction({"bar": promise[0], "measured": promise[1], "verdict": "passed"}) == expected


def test_the_command_of_a_row_names_it_alone() -> None:
    assert only("", "a") == ""
    assert only("./run_all.py --seed 5", "a") == "./run_all.py --seed 5 --only a"
    assert (
        only("./run_all.py --seed 5 --only a,b --mutant m", "b")
        == "./run_all.py --seed 5 --mutant m --only b"
    )


def test_the_figure_of_a_row_is_what_decided_or_what_was_timed() -> None:
    [row, empty] = run_of()["rows"]
    assert deciding(row)["measured"] == "69/70"  # type: ignore[index]
    assert deciding({**row, "verdict": "passed"})["measured"] == 12.0  # type: ignore[index]
    assert deciding(empty) is None


def crowded() -> History:
    """100,000 calls, a tenth of them slow or wrong."""
    story = Story(replicas=["replica-1-aa"])
    for n in range(100_000):
        story.call(
            n * 0.6,
            0.3 + (n * 7919 % 997) / 50 * (10 if n % 10 == 0 else 1),
            "timeout" if n % 50 == 0 else "ok",
        )
    story.fault(20_000, "pause", "replica-1-aa", lasts=5_000)
    return story.history


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail(WANTED)
        pytest.skip(WANTED)
    async with async_playwright() as playwright:
        running = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        await running.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_browser_draws_every_chart_without_an_error_and_without_a_request(
    browser: Browser, folder: Path, scheme: Literal["light", "dark"]
) -> None:
    page = await browser.new_page(color_scheme=scheme)
    troubles: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: troubles.append(message.text))
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    await page.goto((folder / PAGE).as_uri())
    await page.click("button[data-open=yes]")
    await page.wait_for_function("document.querySelectorAll('#row-a-row canvas').length === 6")
    drawn = await page.eval_on_selector_all(
        "#row-a-row canvas",
        "all => all.map(c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some(v => v > 0))",
    )
    assert drawn == [True] * 6
    assert troubles == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []


async def test_a_link_to_a_row_opens_it(browser: Browser, folder: Path) -> None:
    run = run_of()
    run["rows"][0]["verdict"] = "passed"
    write(run, folder)
    page = await browser.new_page()
    await page.goto((folder / PAGE).as_uri())
    assert not await page.eval_on_selector("#row-a-row", "row => row.open")
    await page.click("a[href='#row-a-row']")
    await page.wait_for_selector("#row-a-row canvas")


@pytest.mark.timeout(180)  # of six seconds of work
async def test_a_crowded_row_is_drawn_from_what_was_kept(browser: Browser, tmp_path: Path) -> None:
    crowded().save(tmp_path / "a-row" / "history.jsonl")
    write(run_of(), tmp_path)
    assert (tmp_path / PAGE).stat().st_size < 2_000_000, "a page that can be sent"
    page = await browser.new_page()
    await page.goto((tmp_path / PAGE).as_uri())
    await page.wait_for_selector("#row-a-row canvas", timeout=60_000)
    drawn = await page.evaluate(
        "JSON.parse(document.getElementById('charts').textContent)['a-row'].calls.scatter"
    )
    assert drawn["of"] == 100_000
    assert len(drawn["x"]) < 25_000
