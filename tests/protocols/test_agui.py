"""AG-UI, as its official JavaScript client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.clients import Line, Programs, kill

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_SCRIPT = "agui.mjs"


def user(text: str, message_id: str = "u1") -> Line:
    return {"id": message_id, "role": "user", "content": text}


def run_of(programs: Programs, thread: str, *messages: Line, path: str = "/agui", **more: Any) -> Line:  # noqa: ANN401
    url = f"{programs.address}{path}"
    return {"name": thread, "url": url, "threadId": thread, "runId": f"run-{thread}", "messages": messages, **more}


def events(lines: list[Line], name: str) -> list[Line]:
    return [line["event"] for line in lines if line["name"] == name and "event" in line]


def types(lines: list[Line], name: str) -> list[str]:
    """Return the kinds of the events, each one once in a row."""
    found = [event["type"] for event in events(lines, name)]
    return [each for place, each in enumerate(found) if place == 0 or found[place - 1] != each]


def end(lines: list[Line], name: str) -> Line:
    [found] = [line["end"] for line in lines if line["name"] == name and "end" in line]
    assert isinstance(found, dict)
    return found


def texts(messages: list[Line]) -> list[tuple[str, str]]:
    return [(each["role"], each.get("content", "")) for each in messages if each["role"] != "reasoning"]


def is_delta(number: int) -> Any:  # noqa: ANN401 (a condition)
    """Return a condition that holds at the n-th piece of text."""
    seen = 0

    def check(line: Line) -> bool:
        nonlocal seen
        seen += line.get("event", {}).get("type") == "TEXT_MESSAGE_CONTENT"
        return bool(seen == number)

    return check


def test_runs_stream_text_tools_state_and_errors(programs: Programs) -> None:
    """Eight runs at once get their own text live, tool calls with results, state, questions and errors."""
    programs.server()
    counts = [run_of(programs, f"count-{number}", user(f"count {number}")) for number in range(3, 7)]
    lines = programs.run(
        _SCRIPT,
        *counts,
        run_of(programs, "tools", user("weather Rome Nowhere")),
        run_of(programs, "fails", user("fail")),
        run_of(programs, "state", user("count 2"), path="/plain/agui", state={"old": True}),
        run_of(programs, "asks", user("ask"), path="/plain/agui"),
    )
    for number in range(3, 7):
        name, whole = f"count-{number}", "".join(f"{each} " for each in range(number))
        shown = [each["delta"] for each in events(lines, name) if each["type"] == "TEXT_MESSAGE_CONTENT"]
        assert shown == [f"{each} " for each in range(number)], "each piece comes as it is made"
        assert texts(end(lines, name)["messages"]) == [("user", f"count {number}"), ("assistant", whole)]
        assert texts(programs.get(f"/agui/{name}")["messages"]) == [("user", f"count {number}"), ("assistant", whole)]
    assert not [line for line in lines if "warning" in line]

    call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    thought = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"]
    thought += ["REASONING_MESSAGE_END", "REASONING_END"]
    assert types(lines, "tools") == [
        "RUN_STARTED", *thought, *text, *call, *call, "TOOL_CALL_RESULT", *text, "RUN_FINISHED",
    ]  # fmt: skip
    question, spoken, rome, nowhere, reply = (
        each for each in end(lines, "tools")["messages"] if each["role"] != "reasoning"
    )
    assert [each["function"]["arguments"] for each in spoken["toolCalls"]] == ['{"city":"Rome"}', '{"city":"Nowhere"}']
    assert [rome["content"], nowhere["content"]] == [
        '{"city":"Rome","sky":"sunny"}', "ValueError: there is no such city",
    ]  # fmt: skip
    stored = programs.get("/agui/tools")["messages"]
    assert stored[1:] == [spoken, rome, nowhere, reply], "the stored messages have the same ids and content"
    assert (question["id"], stored[0]["content"]) == ("u1", "weather Rome Nowhere")

    assert events(lines, "fails")[-1] == {
        "type": "RUN_ERROR", "message": "The agent failed to answer.", "code": "turn_failed",
    }  # fmt: skip
    assert end(lines, "state")["state"] == {"turns": 1}
    assert "STATE_DELTA" in types(lines, "state")
    [interrupt] = end(lines, "asks")["interrupts"]
    assert (interrupt["reason"], interrupt["message"]) == ("input_required", "What is your name?")
    assert interrupt["responseSchema"] == {"type": "string"}


def test_the_same_request_continues_after_a_kill_of_the_server(programs: Programs) -> None:
    """A client whose server was killed in mid-stream posts the same again: one question, one whole reply."""
    server = programs.server(pause_s=0.1)
    run = run_of(programs, "kill", user("count 12"))
    with programs.client(_SCRIPT, [run]) as client:
        client.until(is_delta(3))
        kill(server)
        left = client.until(lambda line: "end" in line)[-1]["end"]
    assert left["error"] is not None
    partial = left["messages"]
    assert len(partial) == 2
    assert partial[1]["content"].startswith("0 1 2 ")

    programs.server()
    lines = programs.run(_SCRIPT, {**run, "messages": partial})
    whole = [("user", "count 12"), ("assistant", "".join(f"{each} " for each in range(12)))]
    assert texts(end(lines, "kill")["messages"]) == whole
    assert texts(programs.get("/agui/kill")["messages"]) == whole
    assert events(lines, "kill")[-1]["outcome"] == {"type": "success"}
    # A third time: the reply is there, and nothing runs again.
    calls = programs.calls("model")
    lines = programs.run(_SCRIPT, {**run, "messages": [user("count 12")]})
    assert texts(end(lines, "kill")["messages"]) == whole
    assert programs.calls("model") == calls == 2


def test_a_stream_continues_after_a_kill_of_the_worker(programs: Programs) -> None:
    """The stream of a turn whose worker is killed drops the half reply, and shows that of the next worker."""
    programs.server("--no-worker")
    worker = programs.worker(pause_s=0.1)
    runs = [run_of(programs, "loop", user("count 9")), run_of(programs, "plain", user("count 9"), path="/plain/agui")]
    with programs.client(_SCRIPT, runs) as client:
        client.until(is_delta(6))
        kill(worker)
        programs.worker()
        lines = list(client.lines())
    for name in ("loop", "plain"):
        whole = "".join(f"{each} " for each in range(9))
        assert "MESSAGES_SNAPSHOT" in types(lines, name), "the half reply is taken back"
        shown = [each["delta"] for each in events(lines, name) if each["type"] == "TEXT_MESSAGE_CONTENT"]
        assert "".join(shown).endswith(whole)
        assert texts(end(lines, name)["messages"]) == [("user", "count 9"), ("assistant", whole)]
        assert end(lines, name)["error"] is None
        assert texts(programs.get(f"/agui/{name}")["messages"]) == [("user", "count 9"), ("assistant", whole)]


def test_an_interrupt_outlives_the_server_and_is_answered_once(programs: Programs) -> None:
    """An approval is an interrupt: it is resumed after a restart, the same answer again is harmless, another is 409."""
    server = programs.server()
    asked = end(programs.run(_SCRIPT, run_of(programs, "pay", user("refund o1 o2"))), "pay")
    assert [each["reason"] for each in asked["interrupts"]] == ["tool_call", "tool_call"]
    calls = {each["toolCallId"]: each["id"] for each in asked["interrupts"]}
    assert sorted(calls) == ["refund o1 o2-0", "refund o1 o2-1"]
    assert programs.calls("refund") == 0
    kill(server)
    programs.server()
    # A client that has lost everything but its message gets the same interrupts again.
    again = end(programs.run(_SCRIPT, run_of(programs, "pay", user("refund o1 o2"))), "pay")
    assert sorted(each["id"] for each in again["interrupts"]) == sorted(calls.values())
    assert [each["id"] for each in again["messages"][2]["toolCalls"]] == ["refund o1 o2-0", "refund o1 o2-1"]

    yes = {"interruptId": calls["refund o1 o2-0"], "status": "resolved", "payload": True}
    no = {"interruptId": calls["refund o1 o2-1"], "status": "resolved", "payload": {"approved": False, "text": "no"}}
    resumed = run_of(programs, "pay", *asked["messages"], resume=[yes, no])
    results = ["o1 refunded", "The call was denied. no"]
    for _ in range(2):
        found = end(programs.run(_SCRIPT, resumed), "pay")
        assert found["error"] is None
        roles = ["user", "assistant", "tool", "tool", "assistant"]
        assert [role for role, _ in texts(found["messages"])] == roles
        assert [text for role, text in texts(found["messages"]) if role == "tool"] == results
        assert found["messages"][-1]["content"] == "".join(results)
        assert found["interrupts"] == []
    assert programs.calls("refund") == 1
    other = {**resumed, "resume": [{**yes, "payload": False}, no]}
    refused = end(programs.run(_SCRIPT, other), "pay")["error"]
    assert refused["status"] == 409
    assert "answered before" in refused["payload"]["error"]
