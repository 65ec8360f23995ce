"""The conformance package of LangGraph: every capability that it knows, on both databases."""

from __future__ import annotations

from collections.abc import AsyncIterator

from langgraph.checkpoint.conformance import checkpointer_test, validate

from lash.adapters.langgraph import LashSaver

_TESTS = {
    "put": 17,
    "put_writes": 10,
    "get_tuple": 10,
    "list": 16,
    "delete_thread": 5,
    "delete_for_runs": 7,
    "copy_thread": 8,
    "prune": 8,
}


async def test_every_capability_conforms(url: str) -> None:
    """81 tests in 8 capabilities; LangGraph's own savers have 5 or 6 of them."""

    @checkpointer_test(name="lash")
    async def saver() -> AsyncIterator[LashSaver]:
        yield LashSaver(url)

    report = await validate(saver, progress=None)
    assert {name: result.failures for name, result in report.results.items() if result.failures} == {}
    assert {name: result.tests_passed for name, result in report.results.items()} == _TESTS
