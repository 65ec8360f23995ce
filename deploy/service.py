"""The application of the container image: replace it with your own. Its storage is named by LASH_URL."""

from __future__ import annotations

import os

import lash

app = lash.App(os.environ["LASH_URL"], worker=False)


def weather(city: str) -> str:
    """Stand for a call of a model or of another service."""
    return f"rain in {city}"


@app.agent
async def assistant(turn: lash.Turn) -> str:
    return await turn.step(weather, turn.text)
