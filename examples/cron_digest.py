"""A digest of the last day's notes every morning, exactly once, however many workers run.

    python examples/cron_digest.py notes/ [--cron "0 7 * * 1-5"] [--url postgresql://user@host/database]

It runs until Ctrl-C. Start it on as many machines as you like: each tick makes one digest. If no worker ran at a tick,
the next one to start makes its digest; of several missed ticks, only the last counts. The model is OpenAI's, or the
fake one: see examples/model_server.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from datetime import datetime, timedelta
from pathlib import Path

from openai import AsyncOpenAI

import lash

parser = argparse.ArgumentParser(description="A digest by the clock.")
parser.add_argument("directory", type=Path, help="directory with the notes, as text files")
parser.add_argument("--cron", default="0 7 * * 1-5", help="when a digest is made")
parser.add_argument("--time-zone", default="Europe/Berlin")
parser.add_argument("--url", default="sqlite:///cron_digest.db")
options = parser.parse_args()

app = lash.App(options.url)
MODEL = "gpt-4.1-mini"


def read_notes(directory: str, since: datetime) -> list[str]:
    """Return the notes written since then, in the order of their names."""
    files = sorted(Path(directory).glob("*.txt"))
    return [file.read_text() for file in files if file.stat().st_mtime >= since.timestamp()]


async def sum_up(notes: list[str], request_id: str) -> str:
    async with AsyncOpenAI() as model:
        completion = await model.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Sum up: " + " ".join(notes)}],
            extra_headers={"X-Client-Request-Id": request_id},
        )
    return completion.choices[0].message.content or ""


def deliver(day: str, text: str) -> None:
    """Stand in for sending a mail."""
    print(f"digest of {day}: {text}", flush=True)


@app.process
async def digest(ctx: lash.Context, directory: str, scheduled_at: datetime) -> str:
    # The scheduled time of the tick, not the current time: it is the same in every run.
    notes = await ctx.step(read_notes, directory, scheduled_at - timedelta(days=1))
    text = await ctx.step(sum_up, notes, ctx.process_id) if notes else "nothing new"
    await ctx.step(deliver, f"{scheduled_at:%Y-%m-%d %H:%M}", text)
    return text


app.cron(
    options.cron,
    digest,
    key="digest",
    time_zone=options.time_zone,
    inputs={"directory": str(options.directory.resolve()), "scheduled_at": lash.pointer("/scheduled_at")},
    catch_up="last",
)


async def main() -> None:
    async with app:
        print(f"digests of {options.directory} at {options.cron!r}; Ctrl-C ends", flush=True)
        await app.run()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())
