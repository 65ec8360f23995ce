"""An agent behind A2A: ``python -m tests.protocols.a2a.program URL PORT`` serves it with a worker in the same process.

It streams its words, sleeps while the file ``hold`` exists, and asks the client what "buy" costs.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from a2a.server.routes.agent_card_routes import create_agent_card_routes
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill
from starlette.applications import Starlette

import lash
from lash.cli.serving import Server, listening
from lash.model.wait import Question
from lash.protocols.a2a import AgentHandler

HOLD = "hold"


def build(url: str, directory: Path) -> tuple[lash.App, lash.AgentDefinition]:
    """Return the application and its agent."""
    app = lash.App(url, options=lash.WorkerOptions(poll_s=0.1))

    async def speak(turn: lash.Turn, text: str) -> str:
        words = f"You said {text}".split()
        for word in words:
            turn.activity({"text": f"{word} "})
        return " ".join(words)

    @app.agent(retry=lash.Retry(max_attempts=1))
    async def parrot(turn: lash.Turn) -> str:
        if turn.text == "fail":
            raise ValueError("a secret")
        if turn.text == "buy":
            price = await turn.wait("price", ask=Question(text="For how much?", schema={"type": "integer"}))
            return f"bought for {price}"
        if turn.text == "approve":
            return str(await turn.wait("approval:refund:1", ask=Question(text="Run the tool refund?")))
        if turn.text == "stutter":
            turn.activity({"text": "I mean"})
            turn.activity({"model_call": 2})
        said = await turn.step("speak", speak, turn, turn.text)
        while (directory / HOLD).exists():  # noqa: ASYNC110 (the test removes it)
            await asyncio.sleep(0.02)
        return said

    return app, parrot


def site(app: lash.App, agent: lash.AgentDefinition, address: str, **options: object) -> Starlette:
    """Return the routes of the agent."""
    card = AgentCard(
        name="parrot",
        description="Repeats what you say.",
        version="1",
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[AgentSkill(id="repeat", name="Repeat", description="Repeats a text.", tags=["text"])],
        supported_interfaces=[AgentInterface(url=f"{address}a2a", protocol_binding="JSONRPC", protocol_version="1.0")],
    )
    handler = AgentHandler(app, agent, **options)  # type: ignore[arg-type]
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/a2a")])


async def main(url: str, port: int, directory: Path) -> None:
    app, agent = build(url, directory)
    with listening("127.0.0.1", port) as listener:
        async with app:
            await Server(site(app, agent, f"http://127.0.0.1:{port}/"), extra="a2a").run(listener)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])))
