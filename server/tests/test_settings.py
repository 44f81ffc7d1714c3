"""Configuration: one table, clear errors, no secret in any of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moorage import settings
from moorage.errors import ConfigurationError

KEY = "s3cret-" * 8


def test_empty_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "")
    monkeypatch.setenv("PORT", "")
    loaded = settings.load()
    assert loaded.redis_url is None
    assert loaded.port == 3005


def test_names_with_and_without_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "4000")
    monkeypatch.setenv("MOORAGE_DRAIN_MS", "77")
    monkeypatch.setenv("MOORAGE_CORS_ALLOWED_ORIGINS", "https://a.example, https://b.example")
    loaded = settings.load()
    assert (loaded.port, loaded.drain_ms) == (4000, 77)
    assert loaded.cors_allowed_origins == ["https://a.example", "https://b.example"]


def test_secret_is_required_with_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1")
    monkeypatch.delenv("SECRET_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="SECRET_KEY is required"):
        settings.load()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("PORT", "99999"),
        ("MOORAGE_PING_INTERVAL", "soon"),
        ("MOORAGE_LOG_LEVEL", "loud"),
        ("REDIS_URL", "http://x"),
        ("METRICS_ENABLED", "perhaps"),
        ("MOORAGE_BEAT_MISSES", "0"),
    ],
)
def test_error_names_the_variable(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv("SECRET_KEY", KEY)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigurationError, match=variable) as caught:
        settings.load()
    assert KEY not in str(caught.value)


@given(st.text(max_size=31).filter(lambda t: 0 < len(t.encode("utf-8", "replace")) < 32 and "\x00" not in t))
def test_short_key_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings.load(secret_key=key)
    # Word for word: a key may by chance be one that the message has anyway, such as SECRET_KEY.
    assert str(caught.value) == f"SECRET_KEY must have at least {settings.SECRET_KEY_MIN_BYTES} bytes"


def test_every_variable_is_in_the_table_with_a_meaning() -> None:
    rows = settings.table()
    assert len(rows) == len(settings.Settings.model_fields)
    assert all(meaning for _, _, meaning in rows)
    assert {"PORT", "METRICS_PORT", "REDIS_URL", "STATE_URL", "SECRET_KEY", "MOORAGE_DRAIN_MS"} <= {
        r[0] for r in rows
    }


def test_misspelt_variables_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOORAGE_DRAIN_MSS", "1")
    assert settings.unknown_variables() == ["MOORAGE_DRAIN_MSS"]


def test_the_page_is_the_table() -> None:
    """``make docs`` was run after the last change."""
    page = Path(__file__).parents[2] / "docs" / "settings.md"
    assert page.read_text() == settings.markdown()
