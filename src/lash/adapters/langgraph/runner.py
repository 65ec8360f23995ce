"""Graphs that are fed from the queue of a session: inputs of one thread run one after the other, on any worker."""

from __future__ import annotations

import base64
from typing import Any, Final, cast

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.pregel import Pregel

from lash.base.shapes import read_json
from lash.errors import ConfigError
from lash.model.queue import Enqueued
from lash.runtime.app import App
from lash.runtime.policy import TURN_RETRY, Retry
from lash.runtime.turns.turn import Turn

_TURN: Final = "lash_turn"
"""The key in the metadata of checkpoints that names the turn which runs the graph."""


class ThreadRunner:
    """Runs a graph as an agent of an app: ``runner = ThreadRunner(app, graph)``, ``await runner.ask("42", input)``.

    An input is durable once it is sent. The inputs of a thread wait for each other, whichever process sends them, so
    none of them is lost in a race; other threads run beside them. A run whose worker dies goes on from its last
    checkpoint on another worker. The graph needs a checkpointer, such as a `LashSaver` on the storage of the app.
    """

    def __init__(
        self,
        app: App,
        graph: Pregel[Any, Any, Any, Any],
        *,
        name: str | None = None,
        config: RunnableConfig | None = None,
        retry: Retry = TURN_RETRY,
    ) -> None:
        checkpointer = graph.checkpointer
        if checkpointer is None or isinstance(checkpointer, bool):
            raise ConfigError("expected a graph with a checkpointer; compile it with checkpointer=LashSaver(url)")
        self._app = app
        self._graph = graph
        self._config = config or {}
        self._serde: SerializerProtocol = checkpointer.serde
        self._agent = app.agent(name=name or graph.get_name(), retry=retry)(self._run)

    async def send(self, thread_id: str, given: object, *, key: str | None = None) -> Enqueued:
        """Send an input to a thread and return at once; the key makes it idempotent."""
        return await self._app.session(thread_id, self._agent).send(self._encode(given), key=key)

    async def ask(
        self, thread_id: str, given: object, *, key: str | None = None, timeout_s: float | None = None
    ) -> Any:  # noqa: ANN401 (what the graph returns)
        """Send an input and return what the graph returns for it.

        A graph that is interrupted returns its state with ``__interrupt__``; answer it with an input of
        ``Command(resume=...)``.
        """
        reply = await self._app.session(thread_id, self._agent).ask(self._encode(given), key=key, timeout_s=timeout_s)
        return self._decode(str(reply))

    async def _run(self, turn: Turn) -> str:
        named = {**self._config.get("configurable", {}), "thread_id": turn.session_id}
        metadata = {**self._config.get("metadata", {}), _TURN: turn.turn_id}
        config = cast("RunnableConfig", {**self._config, "configurable": named, "metadata": metadata})
        state = await self._graph.aget_state(config)
        if (state.metadata or {}).get(_TURN) != turn.turn_id:
            return await self._invoke(self._decode(turn.text), config)
        # An earlier attempt has stored the input: the graph goes on from the last checkpoint.
        if state.next and not state.interrupts:
            return await self._invoke(None, config)
        interrupts = {"__interrupt__": list(state.interrupts)} if state.interrupts else {}
        return self._encode({**state.values, **interrupts} if isinstance(state.values, dict) else state.values)

    async def _invoke(self, given: object, config: RunnableConfig) -> str:
        # A step begins once the checkpoint of the step before is stored: after a crash no finished step runs again.
        return self._encode(await self._graph.ainvoke(given, config, durability="sync"))

    def _encode(self, value: object) -> str:
        name, content = self._serde.dumps_typed(value)
        return msgspec.json.encode([name, base64.b64encode(content).decode()]).decode()

    def _decode(self, text: str) -> object:
        name, content = read_json(text, tuple[str, str])
        return self._serde.loads_typed((name, base64.b64decode(content)))
