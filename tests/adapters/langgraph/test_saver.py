"""What graphs and their operators rely on beyond the suites of LangGraph."""

from __future__ import annotations

import asyncio
import itertools
import operator
import threading
from typing import Annotated, Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.message import add_messages
from typing_extensions import TypedDict

import lash
import lash.sync
from lash.adapters.langgraph import LashSaver, ThreadMoved, threads
from lash.adapters.langgraph.codec import Place
from lash.adapters.langgraph.items import KnownList


class Chat(TypedDict):
    messages: Annotated[list[Any], add_messages]


def _answer(state: Chat) -> dict[str, Any]:
    return {"messages": [AIMessage(f"answer {len(state['messages'])}", id=f"a{len(state['messages'])}")]}


def _graph(saver: LashSaver) -> Any:  # noqa: ANN401 (a compiled graph)
    builder = StateGraph(Chat)
    builder.add_node("answer", _answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    return builder.compile(checkpointer=saver)


def _config(thread_id: str = "t") -> Any:  # noqa: ANN401 (a RunnableConfig)
    return {"configurable": {"thread_id": thread_id}}


def _say(text: str) -> dict[str, Any]:
    return {"messages": [HumanMessage(text, id=text)]}


def _texts(saver: LashSaver, thread_id: str = "t") -> list[str]:
    return [message.content for message in _graph(saver).get_state(_config(thread_id)).values.get("messages", [])]


def test_two_savers_on_one_url_share_threads(url: str) -> None:
    """A saver sees what another one has stored, whichever of the two stored last."""
    one, other = LashSaver(url), LashSaver(url)
    for text in ("1", "2", "3", "4"):
        _graph(one).invoke(_say(text), _config())
        _graph(other).invoke(_say(f"{text}b"), _config())
    expected = [text for turn in range(1, 5) for text in (str(turn), f"{turn}b")]
    assert _texts(one)[::2] == expected
    assert _texts(one) == _texts(other)


async def test_an_open_storage_is_used_as_it_is(url: str) -> None:
    """A storage that the program opened serves the saver, also from threads, and stays open."""
    async with await lash.open(url) as storage:
        saver = LashSaver(storage)
        await _graph(saver).ainvoke(_say("hello"), _config())
        assert (await asyncio.to_thread(saver.get_tuple, _config())) is not None
        with pytest.raises(lash.errors.ConfigError, match="async method"):
            saver.get_tuple(_config())
        assert await storage.sessions.open(Place("t", "", None).session_id) is not None


def test_a_deleted_thread_stays_deleted(url: str) -> None:
    """A run that goes on after its thread was deleted does not bring it back; a new run starts empty."""
    saver = LashSaver(url)
    _graph(saver).invoke(_say("hello"), _config())
    late = saver.get_tuple(_config())
    assert late is not None
    saver.delete_thread("t")
    saver.put_writes(late.config, [("messages", "late")], "task")
    saver.put(late.config, {**empty_checkpoint(), "id": "z"}, {"source": "loop"}, {})
    LashSaver(url).put(late.config, {**empty_checkpoint(), "id": "z"}, {"source": "loop"}, {})
    assert saver.get_tuple(_config()) is None
    assert list(saver.list(None)) == []
    _graph(saver).invoke(_say("again"), _config())
    assert _texts(saver) == ["again", "answer 1"]


def test_a_checkpoint_that_is_put_twice_is_stored_once(url: str) -> None:
    """The second put of an id replaces the first."""
    saver = LashSaver(url)
    checkpoint = empty_checkpoint()
    for step in (1, 2):
        values = {**checkpoint, "channel_values": {"n": step}, "channel_versions": {"n": step}}
        saver.put({"configurable": {"thread_id": "t", "checkpoint_ns": ""}}, values, {"step": step}, {"n": step})
    (only,) = saver.list(_config())
    assert only.checkpoint["channel_values"] == {"n": 2}
    assert only.metadata["step"] == 2


def test_objects_are_not_shared_between_readers(url: str) -> None:
    """A reader that changes a message in place changes nothing for others, and nothing that is stored."""
    saver = LashSaver(url)
    for text in ("1", "2", "3"):
        _graph(saver).invoke(_say(text), _config())
    before = _texts(saver)
    state = saver.get_tuple(_config())
    assert state is not None
    state.checkpoint["channel_values"]["messages"][0].content = "changed"
    state.checkpoint["channel_values"]["messages"][1].additional_kwargs["changed"] = True
    assert _texts(saver) == before == _texts(LashSaver(url))


def test_an_item_that_is_changed_in_place_is_stored(url: str) -> None:
    """A node that changes an old message in place and returns the list stores the change, as with other savers."""

    def edit(state: Chat) -> dict[str, Any]:
        state["messages"][0].content = "edited"
        return {"messages": [AIMessage("done", id="done")]}

    saver = LashSaver(url)
    for text in ("1", "2", "3"):
        _graph(saver).invoke(_say(text), _config())
    builder = StateGraph(Chat)
    builder.add_node("edit", edit)
    builder.add_edge(START, "edit")
    builder.add_edge("edit", END)
    builder.compile(checkpointer=saver).invoke(_say("4"), _config())
    assert _texts(LashSaver(url)) == _texts(saver)
    assert _texts(saver)[0] == "edited"


def _chain(saver: LashSaver, **nodes: Any) -> Any:  # noqa: ANN401 (functions of nodes; a compiled graph)
    """Return a graph whose nodes run one after the other."""
    builder = StateGraph(Chat)
    for name, node in nodes.items():
        builder.add_node(name, node)
    for before, after in itertools.pairwise((START, *nodes, END)):
        builder.add_edge(before, after)
    return builder.compile(checkpointer=saver)


def _changes(place: int, text: str) -> Any:  # noqa: ANN401 (the function of a node)
    def node(state: Chat) -> dict[str, Any]:
        state["messages"][place].content = text
        return {"messages": [AIMessage(f"after {text}", id=text)]}

    return node


def _talk(saver: LashSaver, length: int = 60) -> None:
    """Store a thread of old messages, of which most are not among the newest."""
    _chain(saver, answer=_answer).invoke(
        {"messages": [HumanMessage(f"old {n}", id=f"old {n}") for n in range(length)]}, _config()
    )


def test_changes_in_place_are_stored_with_their_step_or_at_the_end_of_the_run(url: str) -> None:
    """A change of one of the newest items is in the checkpoint of its step, that of an older one in the last one."""
    saver = LashSaver(url)
    _talk(saver)
    nodes = {"old": _changes(3, "old edited"), "new": _changes(-2, "new edited"), "end": _answer}
    _chain(saver, **nodes).invoke(_say("edit"), _config(), durability="sync")
    stored = {
        each.next: [message.content for message in each.values["messages"]]
        for each in _chain(LashSaver(url), **nodes).get_state_history(_config())
        if each.metadata["source"] == "loop"
    }
    assert stored["new",][3] == "old 3"
    assert stored["end",][-3:] == ["new edited", "after old edited", "after new edited"]
    assert _texts(LashSaver(url))[3] == "old edited"
    assert _texts(LashSaver(url)) == _texts(saver)


def test_a_change_in_place_survives_a_run_that_fails(url: str) -> None:
    """The process goes on with the changed item, and stores it at the end of the run that continues."""
    saver, failures = LashSaver(url), [ValueError("once")]

    def fail(state: Chat) -> dict[str, Any]:
        if failures:
            raise failures.pop()
        return {"messages": [AIMessage(state["messages"][3].content, id="seen")]}

    _talk(saver)
    graph = _chain(saver, old=_changes(3, "edited"), fail=fail)
    with pytest.raises(ValueError, match="once"):
        graph.invoke(_say("edit"), _config())
    graph.invoke(None, _config())
    assert _texts(LashSaver(url))[3] == "edited"
    assert _texts(LashSaver(url))[-1] == "edited"


def test_a_run_compares_the_whole_list_twice(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many nodes it has: when the list is read, and at the checkpoint that ends the run."""
    compared, count = list[int](), KnownList.count_unchanged

    def counted(known: KnownList) -> int:
        compared.append(len(known))
        return count(known)

    saver = LashSaver(url)
    _talk(saver)
    monkeypatch.setattr(KnownList, "count_unchanged", counted)
    nodes = {f"node {n}": lambda state: {"messages": [AIMessage(f"{len(state['messages'])}")]} for n in range(5)}
    _chain(saver, **nodes).invoke(_say("go"), _config(), durability="sync")
    assert compared == [61, 66]


async def test_a_change_while_a_checkpoint_is_being_stored_is_not_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of the next step run while LangGraph stores a checkpoint; the next one has what they have changed."""
    messages = [HumanMessage(f"old {n}", id=f"old {n}") for n in range(6)]
    saver, publish = LashSaver(url), threads.publish

    async def slow(*arguments: Any) -> None:  # noqa: ANN401 (those of publish)
        await publish(*arguments)
        messages[2].content = "changed"

    monkeypatch.setattr(threads, "publish", slow)
    config: Any = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for step in (1, 2):
        values = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": {"messages": step},
        }
        config = await saver.aput(config, {**values, "id": f"c{step}"}, {"source": "loop"}, {"messages": step})
    stored = await LashSaver(url).aget_tuple(_config())
    assert stored is not None
    assert stored.checkpoint["channel_values"]["messages"][2].content == "changed"


@pytest.mark.parametrize("keeps_result", [False, True])
def test_what_a_caller_changes_in_a_result_is_not_stored(url: str, *, keeps_result: bool) -> None:
    """Neither in an old item nor in a new one, and no later run sees it."""
    saver = LashSaver(url)
    _talk(saver)
    before = _texts(LashSaver(url))
    result = _graph(saver).invoke(_say("one more"), _config())
    for place in (0, 20, -1):
        result["messages"][place].content = "changed by the caller"
    if not keeps_result:
        del result
    answered = _graph(saver).invoke(_say("again"), _config())
    assert [each.content for each in answered["messages"]][: len(before)] == before
    assert "changed by the caller" not in _texts(LashSaver(url))


def test_a_long_list_grows_by_what_is_new(url: str) -> None:
    """A turn adds its own messages to the storage, not the whole history."""
    saver = LashSaver(url)
    for turn in range(30):
        _graph(saver).invoke(_say(f"m{turn}"), _config())
    nodes = lash.sync.shared(url).session(Place("t", "", None).session_id).load(lash.model.FullGraph())
    assert nodes is not None
    assert len(nodes.graph.nodes) == 60


class _Counted(JsonPlusSerializer):
    """Counts the messages that are encoded and decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = 0

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:  # noqa: ANN401 (LangGraph's signature)
        self.messages += sum(isinstance(each, BaseMessage) for each in (obj if isinstance(obj, list) else [obj]))
        return super().dumps_typed(obj)

    def loads_typed(self, data: tuple[str, bytes]) -> Any:  # noqa: ANN401 (LangGraph's signature)
        loaded = super().loads_typed(data)
        self.messages += isinstance(loaded, BaseMessage)
        return loaded


@pytest.mark.parametrize("frozen_items", [False, True])
def test_a_turn_encodes_and_decodes_what_is_new(url: str, *, frozen_items: bool) -> None:
    """Turn 30 encodes and decodes as many messages as turn 5: the old ones are known."""
    serde = _Counted()
    graph, counts = _graph(LashSaver(url, serde=serde, frozen_items=frozen_items)), []
    for turn in range(30):
        before = serde.messages
        graph.invoke(_say(f"m{turn}"), _config())
        counts.append(serde.messages - before)
    assert len(set(counts[4:])) == 1
    assert _texts(LashSaver(url))[::2] == [f"m{turn}" for turn in range(30)]


def test_a_single_writer_is_refused_when_another_run_was_first(url: str) -> None:
    """The second of two runs that continue from one checkpoint gets an error, and the first loses nothing."""
    saver = LashSaver(url, single_writer=True)
    _graph(saver).invoke(_say("1"), _config())
    began, overtaken = threading.Event(), threading.Event()

    def slow(state: Chat) -> dict[str, Any]:
        began.set()
        overtaken.wait(60)
        return {"messages": [AIMessage("slow", id="slow")]}

    builder = StateGraph(Chat)
    builder.add_node("slow", slow)
    builder.add_edge(START, "slow")
    builder.add_edge("slow", END)
    graph, errors = builder.compile(checkpointer=saver), []

    def run() -> None:
        try:
            graph.invoke(_say("slow"), _config())
        except ThreadMoved as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(60)
    _graph(LashSaver(url)).invoke(_say("2"), _config())
    overtaken.set()
    thread.join(60)
    assert [str(error).partition(" is at ")[0] for error in errors] == ["thread 't'"]
    assert _texts(saver)[-2:][0] == "2"


async def test_parallel_puts_on_one_thread_are_all_stored(url: str) -> None:
    """Subgraphs store their checkpoints at the same time, from one saver and from another."""
    savers = [LashSaver(url), LashSaver(url)]

    async def put(number: int) -> None:
        items = [f"{number}.{place}" for place in range(6)]
        values = {**empty_checkpoint(), "channel_values": {"items": items}, "channel_versions": {"items": 1}}
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": f"sub:{number}|" * 40}}
        await savers[number % 2].aput(config, values, {"step": number}, {"items": 1})

    await asyncio.gather(*(put(number) for number in range(12)))
    stored = [each async for each in savers[0].alist(_config())]
    assert sorted(each.checkpoint["channel_values"]["items"][5] for each in stored) == sorted(
        f"{number}.5" for number in range(12)
    )


def test_pruning_keeps_what_delta_channels_are_built_from(url: str) -> None:
    """The ancestors up to the last stored value of a delta channel stay; what lies before them goes."""
    saver, config = LashSaver(url), {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
    for step in range(6):
        stored = {"log": [step]} if step == 2 else {}
        checkpoint = {
            **empty_checkpoint(),
            "id": f"c{step}",
            "channel_values": stored,
            "channel_versions": {"log": step},
        }
        counters = {"log": (step, step)}
        config = saver.put(config, checkpoint, {"step": step, "counters_since_delta_snapshot": counters}, {"log": step})
        saver.put_writes(config, [("log", step)], f"task{step}")
    before = saver.get_delta_channel_history(config=config, channels=["log"])
    saver.prune(["t"])
    assert [each.checkpoint["id"] for each in saver.list(_config())] == ["c5", "c4", "c3", "c2"]
    assert saver.get_delta_channel_history(config=config, channels=["log"]) == before


def test_pruning_frees_the_items_of_what_is_removed(url: str) -> None:
    """A list that was replaced goes with the checkpoints that had it; the list of the latest stays whole."""

    class Log(TypedDict):
        lines: Annotated[list[str], operator.add]

    builder = StateGraph(Log)
    builder.add_node("log", lambda state: {"lines": [f"line {len(state['lines'])}"]})
    builder.add_edge(START, "log")
    builder.add_edge("log", END)
    saver = LashSaver(url)
    graph = builder.compile(checkpointer=saver)
    for _ in range(4):
        graph.invoke({"lines": ["in"]}, _config())
    first = next(each for each in graph.get_state_history(_config()) if len(each.values["lines"]) == 5)
    graph.invoke({"lines": ["other"]}, first.config)
    latest = graph.get_state(_config()).values["lines"]
    saver.prune(["t"])
    assert graph.get_state(_config()).values["lines"] == latest
    session = lash.sync.shared(url).session(Place("t", "", None).session_id)
    read = session.load(lash.model.FullGraph())
    assert read is not None
    assert len(read.graph.nodes) == len(latest)
    graph.invoke({"lines": ["more"]}, _config())
    assert graph.get_state(_config()).values["lines"][: len(latest)] == latest
