"""Dark and light: every text can be read. Narrow: nothing sticks out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from ..site import SETUP_APART
from .test_console import sign_in

pytestmark = SETUP_APART

CONTRAST = 4.5
"""WCAG 2.2, 1.4.3 (AA), for text of normal size."""

TEXTS = [("ink", "card"), ("ink", "ground"), ("soft", "card"), ("soft", "ground"), ("soft", "tint")]
TEXTS += [("accent", "card"), ("accent", "tint"), ("on-accent", "accent"), ("ink", "tint")]
TEXTS += [(name, "card") for name in ("good", "warn", "bad")] + [("bad", "ground")]


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), TEXTS)
def test_contrast(folder: Path, theme: str, text: str, ground: str) -> None:
    blocks = re.findall(r":root \{(.*?)\}", (folder / "console.css").read_text(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+);", blocks[theme == "dark"]))
    lighter, darker = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_follows_the_system(page: Page, scheme: str) -> None:
    await page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    ground = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    channels = [int(part) for part in re.findall(r"\d+", ground)]
    assert (sum(channels) / 3 > 128) == (scheme == "light")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_narrow_window(page: Page) -> None:
    await page.set_viewport_size({"width": 360, "height": 700})
    await sign_in(page)
    await expect(page.locator("#events")).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
