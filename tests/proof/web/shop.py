"""The storage of a shop whose agents have worked for an hour: what the pictures of the documentation show."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import lash
from lash.model.queue import ClaimedTurn
from lash.model.session.message import Role
from lash.model.wait import Question, Resolved
from lash.runtime.acting import acting
from lash.testing.clock import ManualClock
from tests.factories.session import owner

SESSION: Final = "support-4711"
"""The session that has something of everything."""
PROCESS: Final = "refund-4711"
LIVE: Final = "support-4720"
"""The session whose turn runs while the shop is looked at."""
_MINUTES: Final = 57
_QUESTIONS: Final = (
    "Where is my order {}?",
    "Can I change the address of order {}?",
    "The lamp of order {} does not light up. What now?",
    "I would like an invoice for order {}.",
)
_APPROVAL: Final = {
    "type": "object",
    "properties": {
        "approved": {"type": "boolean"},
        "amount": {"type": "number", "title": "amount in euros"},
        "note": {"type": "string"},
    },
    "required": ["approved"],
}


class Shop:
    """The agents and processes of the shop; ``clock`` moves with the work of their steps if there is one."""

    def __init__(self, url: str, clock: ManualClock | None = None, *, worker: bool = False) -> None:
        self.clock = clock
        self.app = lash.App(url, clock=clock, worker=worker) if clock else lash.App(url, worker=worker)
        self.takes_time = False
        """Whether steps take as long as they say."""
        self.released = asyncio.Event()
        """Ends the turn that speaks."""
        self.support = self.app.agent(name="support")(self._support)
        self.writer = self.app.agent(name="writer")(self._writer)
        self.stock = self.app.agent(name="stock", retry=lash.Retry(max_attempts=1))(self._stock)
        self.refund = self.app.process(name="refund")(self._refund)
        self.notify = self.app.process(name="notify")(self._notify)
        self.sync = self.app.process(name="sync", retry=lash.Retry(max_attempts=1))(self._sync)
        self.app.cron("0 7 * * 1-5", self.notify, time_zone="Europe/Berlin")
        self.app.cron("*/15 * * * *", self.sync)
        self.app.on("shop.returned", self.notify)

    async def _support(self, turn: lash.Turn) -> str:
        number = turn.text.partition("order ")[2][:4].rstrip("?. ") or "4711"
        if turn.text.startswith("List all"):
            await turn.step("search the catalogue", self._work, 0.12)
            return await turn.step("reply", self._speak, turn)
        await turn.step("find the order", self._work, 0.06)
        order = {"order": number, "status": "shipped", "carrier": "DHL"}
        turn.add_tool_call("call-1", "find_order", {"order": number}, order)
        await turn.step("ask the model", self._work, 0.18)
        turn.usage("gpt-5-mini", input_tokens=1_840 + len(turn.text), cached_input_tokens=1_024, output_tokens=212)
        turn.state["last_order"] = number
        if "lamp" in turn.text:
            await turn.step("draft the return label", self._work, 0.09)
            await turn.attach(b"label", "application/pdf", label=f"return-{number}.pdf")
            return f"I am sorry. Order {number} can be returned free of charge; the label is attached."
        return f"Order {number} was shipped on Monday and arrives on Thursday."

    async def _writer(self, turn: lash.Turn) -> str:
        turn.usage("gpt-5", input_tokens=3_200, output_tokens=940, reasoning_tokens=310)
        return f"A draft about {turn.text}."

    async def _stock(self, turn: lash.Turn) -> str:
        raise ConnectionError("the warehouse does not answer: connect timeout after 30 s")

    async def _refund(self, ctx: lash.Context, order: str) -> object:
        await ctx.step("check the payment", self._work, 0.08)
        await ctx.step("compute the amount", self._work, 0.05)
        details = {"order": order, "amount": 84.9, "reason": "broken"}
        ask = Question(text=f"Refund order {order}?", schema=_APPROVAL, details=details)
        answer = await ctx.wait("approval", ask=ask)
        await ctx.step("send the money", self._work, 0.15)
        await ctx.start(self.notify)
        return answer

    async def _notify(self, ctx: lash.Context) -> str:
        await ctx.step("write the mail", self._work, 0.04)
        await ctx.step("send the mail", self._work, 0.06)
        return "sent"

    async def _sync(self, ctx: lash.Context) -> None:
        await ctx.step("read the feed", self._work, 0.01)
        raise LookupError("the feed has no column 'ean'")

    async def _work(self, seconds: float) -> None:
        if self.takes_time:
            await asyncio.sleep(seconds)
        if self.clock is not None:
            await self.clock.advance(round(seconds * 1_000))

    async def _speak(self, turn: lash.Turn) -> str:
        words = "Our catalogue has 34 lamps. The brightest is Polaris, with 1,200 lumen; the smallest is Kiruna."
        for word in words.split():
            turn.activity({"type": "text", "text": f"{word} "})
        await self.released.wait()
        return words


async def fill_shop(url: str) -> None:
    """Let an hour of work pass, which ends now."""
    clock = ManualClock(time.time_ns() // 1_000_000 - _MINUTES * 60_000 - 60_000)
    shop = Shop(url, clock)
    async with shop.app:
        await _past_hour(shop, clock)
        shop.takes_time = True
        await _conversation(shop, clock)
        await _background(shop, clock)


async def _past_hour(shop: Shop, clock: ManualClock) -> None:
    """Answer customers minute by minute; the warehouse fails now and then."""
    chance = random.Random(4)  # always the same shop
    shop_app = shop.app
    for minute in range(_MINUTES):
        busy = 1 + round(2 * abs(chance.gauss(0, 1))) if minute % 7 else 0
        for number in range(busy):
            order, customer = 4_100 + minute * 10 + number, chance.choice(("ada", "linus", "grace", "edsger"))
            session_id = f"support-{order}"
            labels = {"shop": chance.choice(("berlin", "wien")), "channel": chance.choice(("web", "mail"))}
            await shop_app.storage.sessions.create(session_id, owner=customer, labels=labels)
            agent = shop.support if number < 2 else shop.writer
            await shop_app.session(session_id, agent).send(chance.choice(_QUESTIONS).format(order))
        if minute in (12, 13, 40):
            await shop_app.session(f"stock-{minute}", shop.stock).send(f"How many lamps are in hall {minute}?")
        await shop_app.drain()
        await clock.advance(60_000)


async def _conversation(shop: Shop, clock: ManualClock) -> None:
    """Make a conversation with an edit, a fork, a lost attempt, and queued input."""
    storage = shop.app.storage
    await storage.sessions.create(SESSION, name="Lamp of order 4711", owner="ada", labels={"shop": "berlin"})
    chat = shop.app.session(SESSION, shop.support)
    await chat.send("Where is my order 4711?")
    await shop.app.drain()
    await chat.send("The lamp of order 4712 does not light up.")
    await shop.app.drain()
    wrong = [message for message in await chat.messages() if message.role is Role.USER][-1]
    await chat.send("The lamp of order 4711 does not light up.", instead_of=wrong.id)
    # A worker that takes the message and dies: its lease ends, and another attempt follows.
    lost = await storage.queue.claim_turn(SESSION, owner("worker-1"), ttl_ms=1)
    assert isinstance(lost, ClaimedTurn)
    await clock.advance(400)
    await shop.app.drain()
    async with acting(storage, "grace", "fork", f"{SESSION}-trial", session_id=SESSION):
        await chat.fork(f"{SESSION}-trial", at=(await chat.messages())[1].id)
    async with acting(storage, "grace", "cancel", SESSION, session_id=SESSION):
        await chat.cancel("not needed")


async def _background(shop: Shop, clock: ManualClock) -> None:
    """Start processes that end, wait and fail."""
    storage = shop.app.storage
    await shop.app.starting(process_id=PROCESS).start(shop.refund, "4711")
    await shop.app.starting(process_id="refund-4690").start(shop.refund, "4690")
    await shop.app.starting(process_id="sync-31").start(shop.sync)
    await shop.app.drain()
    await clock.advance(700)
    for wait in await storage.waits.pending():
        if wait.ask is not None and "4711" in wait.ask.text:
            async with acting(storage, "ada", "resolve", wait.key_id, process_id=PROCESS):
                await storage.waits.resolve_id(wait.key_id, Resolved(value={"approved": True, "amount": 84.9}))
    await shop.app.drain()
    letter = (await storage.queue.dead())[0]
    async with acting(storage, "linus", "requeue", letter.batch.batch_id, session_id=letter.batch.session_id):
        await storage.queue.requeue(letter.batch.session_id, letter.batch.batch_id)
    await shop.app.drain()
    await shop.app.session("support-4721").send("Is anyone there?")


@asynccontextmanager
async def open_shop(url: str) -> AsyncIterator[None]:
    """Keep a worker of the shop busy with one turn that shows words."""
    shop = Shop(url, worker=True)
    shop.takes_time = True
    async with shop.app:
        await shop.app.session(LIVE, shop.support).send("List all of your lamps.")
        try:
            yield
        finally:
            shop.released.set()
