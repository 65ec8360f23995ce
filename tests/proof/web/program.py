"""The application whose storage the browser tests look at: ``python -m tests.proof.web.program URL``."""

from __future__ import annotations

import asyncio
import sys

import lash

WORDS = 40

app = lash.Router()


async def speak(turn: lash.Turn) -> str:
    """Show words slowly."""
    for number in range(WORDS):
        turn.activity({"type": "text", "text": f"word{number} "})
        await asyncio.sleep(0.1)
    return "all words"


@app.agent
async def speaker(turn: lash.Turn) -> str:
    return await turn.step("speak", speak, turn) if turn.text == "speak" else f"you said {turn.text}"


@app.agent(retry=lash.Retry(max_attempts=1))
async def broken(turn: lash.Turn) -> str:
    raise LookupError(f"no such order: {turn.text}")


@app.process
async def approval(ctx: lash.Context) -> object:
    """Ask a person."""
    schema = {"type": "object", "properties": {"approved": {"type": "boolean"}}, "required": ["approved"]}
    return await ctx.wait("refund", ask=lash.model.Question(text="refund order 17?", schema=schema))


def declared(url: str, *, worker: bool = True) -> lash.App:
    """Return the application on a storage."""
    found = lash.App(url, worker=worker)
    found.include(app)
    return found


async def main(url: str) -> None:
    async with declared(url):
        print("ready", flush=True)  # noqa: T201 (what the test waits for)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
