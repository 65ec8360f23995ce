"""The audit reports vulnerable releases, and an audit that could not be made."""

import json

import pytest

from tools.audit import Advisory, Unreachable, audit, main

OLD = ("shop", "1.0")
NEW = ("shop", "2.0")
OWN = ("private", "1")


def ask(url: str) -> bytes | None:
    """Answer as PyPI does: one release has an advisory and a withdrawn one, one has none, one is unknown."""
    bad = {"id": "PYSEC-1", "aliases": ["CVE-1"], "fixed_in": ["2.0"], "withdrawn": None, "details": "…"}
    withdrawn = {"id": "PYSEC-2", "withdrawn": "2024-01-01T00:00:00Z"}
    answers = {
        "https://pypi.org/pypi/requests/2.19.0/json": {"info": {}, "vulnerabilities": [bad | {"aliases": []}]},
        "https://pypi.org/pypi/shop/1.0/json": {"info": {}, "vulnerabilities": [bad, withdrawn]},
        "https://pypi.org/pypi/shop/2.0/json": {"info": {}, "vulnerabilities": []},
    }
    return json.dumps(answers[url]).encode() if url in answers else None


def unreachable(url: str) -> bytes | None:
    raise Unreachable(url)


def mirror(url: str) -> bytes | None:
    """Answer as a mirror without advisories does."""
    return b'{"info": {}, "vulnerabilities": []}'


def test_a_vulnerable_release_is_told() -> None:
    """The report has the advisory and the fixed release; withdrawn advisories and unknown packages are left out."""
    assert audit([NEW, OLD, OWN], ask) == [Advisory("shop", "1.0", "PYSEC-1", ("2.0",))]


def test_an_accepted_advisory_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """An advisory is accepted by any of its ids."""
    monkeypatch.setattr("tools.audit.ACCEPTED", {"CVE-1": "we do not run a shop"})
    assert audit([OLD], ask) == []


def test_the_exit_status_says_what_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A vulnerability fails; an audit that could not be made is reported, and fails only with --strict."""
    monkeypatch.setattr("tools.audit.installed", lambda: [OLD])
    assert main([], ask) == 1
    assert "shop 1.0: PYSEC-1 (fixed in 2.0)" in capsys.readouterr().out
    for deaf in (unreachable, mirror, lambda _: None, lambda _: b"<html>"):
        assert main([], deaf) == 0
        assert "NOTHING WAS AUDITED" in capsys.readouterr().err
        assert main(["--strict"], deaf) == 2
    monkeypatch.setattr("tools.audit.installed", lambda: [NEW])
    assert main([], ask) == 0
