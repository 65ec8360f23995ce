"""Checks without a host: only what the host would know is assumed."""

from __future__ import annotations

import pytest

from lash.lang.diagnostic import ProgramError
from lash.lang.host.assumed import assumed_environment
from lash.lang.link import link
from lash.lang.parse import parse

REGISTER = "await triggers.register({ source: clock.Every({ cron: 'x' }), target: p, inputs: {"


def check(source: str) -> None:
    program = parse(source)
    link(program, assumed_environment(program), source=source)


@pytest.mark.parametrize(
    "source",
    [
        "x = await web.fetch({ url: 'a' })? submit x.text",
        "process p(l: Ledger) { l.refund({}) } start p(l: accounts.main)",
        f"process p(t: clock.Tick, m: Mail) {{ m.send(t.at) }} {REGISTER} t: trigger.event, m: mail.work }} }})",
        f"process p(event: any) {{}} {REGISTER} event: trigger.event }} }})",
        "x = unknown_variable",
    ],
)
def test_names_of_the_host_are_assumed(source: str) -> None:
    """Modules, operations, resource types, constructors and events may exist."""
    check(source)


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ("process p() { finish x }", "unknown-name"),
        ("process p(a: str) {} start p()", "missing-argument"),
        ("x = lenn(1)", "unknown-builtin"),
        ("x = 1 x.send()", "unresolved-receiver"),
        ("process p() -> int { finish 'x' }", "return-mismatch"),
        ("process p(l: Ledger) {} start p(l: 1)", "argument-authority"),
    ],
)
def test_other_errors_are_found(source: str, kind: str) -> None:
    """What does not depend on the host is checked."""
    with pytest.raises(ProgramError) as caught:
        check(source)
    assert caught.value.kind == kind
