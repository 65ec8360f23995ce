"""A program as a model writes it: it runs in a sandbox, calls tools, sleeps, and asks a person before it pays.

    python examples/written_program.py [PROGRAM.py] [--url postgresql://user@host/database]

Without a file it runs the program below. Stop it while it waits, with Ctrl-C or kill -9, and answer from anywhere:

    python examples/written_program.py --answer yes     (or no, or lash waits ls)

Start it again, and it goes on where it was: no tool is called twice. `lash program refunds` shows the source.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
from pathlib import Path

import lash
from lash.agents import tool

parser = argparse.ArgumentParser(description="Run a program that a model wrote.")
parser.add_argument("file", nargs="?", type=Path)
parser.add_argument("--url", default="sqlite:///written_program.db")
parser.add_argument("--pause", type=float, default=5, help="seconds that the program sleeps")
parser.add_argument("--answer", choices=("yes", "no"))
options = parser.parse_args()

WRITTEN = """\
import asyncio

late = [order for order in orders() if order["days"] > 7]
checks = await asyncio.gather(*[tracked(order["id"]) for order in late])
lost = [order for order, found in zip(late, checks) if not found]
await asyncio.sleep(pause)

total = sum(order["cents"] for order in lost)
if ask_human("Refund " + str(total) + " cents for " + str(len(lost)) + " lost orders?", {"type": "boolean"}):
    done = [await refund(order["id"], order["cents"]) for order in lost]
else:
    done = []
done
"""
app = lash.App(options.url, worker=options.answer is None)


@dataclasses.dataclass
class Order:
    """In the program it is a dict with these keys."""

    id: str
    days: int
    cents: int


def orders() -> list[Order]:
    """Return all orders: id, days since it was sent, and price in cents."""
    print("tool: orders", flush=True)
    return [Order("o1", 3, 500), Order("o2", 9, 700), Order("o3", 12, 900), Order("o4", 8, 100)]


async def tracked(order: str) -> bool:
    """Return whether the carrier knows where an order is."""
    print(f"tool: tracked {order}", flush=True)
    return order == "o3"


@tool(once=True)
async def refund(order: str, cents: int) -> str:
    """Pay back the price of an order."""
    print(f"tool: refund {order}", flush=True)
    return f"{order}: {cents} cents"


program = app.code_process("refunds", tools=[orders, tracked, refund])


async def answer() -> None:
    for wait in await app.storage.waits.pending():
        await app.storage.waits.resolve_id(wait.key_id, lash.model.Resolved(value=options.answer == "yes"))
        print(f"answered: {wait.ask and wait.ask.text}")


async def main() -> None:
    source = WRITTEN if options.file is None else await asyncio.to_thread(options.file.read_text)
    async with app:
        if options.answer is not None:
            await answer()
            return
        try:
            process = await app.starting(process_id="refunds").start(program, source, inputs={"pause": options.pause})
        except lash.errors.InvalidProgram as mistake:
            raise SystemExit(f"the program has a mistake:\n{mistake}") from None
        print(f"process: {process.process_id}", flush=True)
        print(f"result: {await process.result()}")


asyncio.run(main())
