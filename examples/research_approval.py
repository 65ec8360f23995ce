"""A research job that asks a human before it publishes, and wakes the conversation with the result.

    python examples/research_approval.py "the Roman aqueducts" [--url postgresql://user@host/database]

It prints a link with a key. The key is enough to approve, from any machine and at any time. This command does what the
web server behind the link would do:

    python examples/research_approval.py --approve KEY     (or --reject KEY)

Until then the job waits in the database only. Stop the program and start it again days later with the same topic, and
approve before or after: no model call is repeated. The model is OpenAI's, or the fake one: see
examples/model_server.py.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import getpass

from openai import AsyncOpenAI

import lash

parser = argparse.ArgumentParser(description="Research with an approval.")
parser.add_argument("topic", nargs="?", default="the Roman aqueducts")
parser.add_argument("--url", default="sqlite:///research_approval.db")
parser.add_argument("--pause", type=float, default=5, help="seconds to pause before the report")
parser.add_argument("--approve", metavar="KEY")
parser.add_argument("--reject", metavar="KEY")
options = parser.parse_args()

deciding = options.approve or options.reject
app = lash.App(options.url, worker=not deciding)
MODEL = "gpt-4.1-mini"


async def ask_model(question: str, request_id: str) -> str:
    async with AsyncOpenAI() as model:
        completion = await model.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": question}],
            extra_headers={"X-Client-Request-Id": request_id},
        )
    return completion.choices[0].message.content or ""


def send_mail(subject: str, link: str) -> None:
    print(f"mail: {subject} {link}", flush=True)


@app.process
async def research(ctx: lash.Context, topic: str, pause_s: float) -> str:
    plan = await ctx.step("plan", ask_model, f"Three questions about {topic}, one in a line.", f"{topic}: plan")
    questions = plan.splitlines()
    findings = await ctx.gather(
        *(ctx.step("find", ask_model, question, f"{topic}: {question}") for question in questions)
    )
    await ctx.sleep(pause_s)  # parked: any worker continues when it is due
    report = await ctx.step("report", ask_model, "Sum up: " + " ".join(findings), f"{topic}: report")
    key = await ctx.wait_key("approval")
    await ctx.step(send_mail, f"May the report on {topic} be published?", f"https://example.com/approve/{key}")
    try:
        approver = await ctx.wait("approval", timeout_s=7 * 86_400, of_type=str)
    except (lash.WaitRejected, TimeoutError):
        await ctx.wake(f"The report on {topic} was not approved.")
        return "withdrawn"
    await ctx.wake(f"The report on {topic}, approved by {approver}: {report}")
    return "published"


@app.agent
async def assistant(turn: lash.Turn) -> str:
    if turn.wakes:
        return f"News for you. {turn.wakes[-1].input}"
    await turn.start(research, turn.text, options.pause)
    return f"I will look into {turn.text} and come back to you."


async def chat() -> None:
    """Request research and print the conversation until the result arrives."""
    async with app:
        session = app.session(f"research: {options.topic}", assistant)
        async with contextlib.aclosing(session.observe(await session.cursor())) as changes:
            await session.send(options.topic, key="request")
            shown = 0
            while True:
                for message in (await session.messages())[shown:]:
                    print(f"{message.role}: {message.text}", flush=True)
                    shown += 1
                if shown == 4:  # noqa: PLR2004 (the request and a reply, the result and a reply)
                    return
                await anext(changes)


async def decide() -> None:
    """Do what the web server behind the link would do."""
    async with app:
        if options.approve:
            first = await app.resolve(options.approve, getpass.getuser())
        else:
            first = await app.reject(options.reject, "rejected", f"by {getpass.getuser()}")
        print("done" if first else "already decided")


if __name__ == "__main__":
    asyncio.run(decide() if deciding else chat())
