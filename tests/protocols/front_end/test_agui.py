"""AG-UI, as its official JavaScript client sees it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.protocols.front_end.clients import Line, Programs, kill
from tests.protocols.front_end.program import HELD

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


def are_held(*names: str) -> Any:  # noqa: ANN401 (a condition)
    """Return a condition that holds when each of the runs has shown what comes before the gate."""
    left = dict.fromkeys(names, HELD)

    def check(line: Line) -> bool:
        if line["name"] in left and line.get("event", {}).get("type") == "TEXT_MESSAGE_CONTENT":
            left[line["name"]] -= 1
        return not any(left.values())

    return check


def test_runs_stream_text_tools_state_and_errors(programs: Programs) -> None:
    """Eight runs at once get their own text live, tool calls with results, state, questions and errors."""
    programs.server()
    runs = [
        *(run_of(programs, f"hold-{number}", user(f"hold {number}")) for number in range(4, 8)),
        run_of(programs, "tools", user("weather Rome Nowhere")),
        run_of(programs, "fails", user("fail")),
        run_of(programs, "state", user("hold 4"), path="/plain/agui", state={"old": True}),
        run_of(programs, "asks", user("ask"), path="/plain/agui"),
    ]
    with programs.client(_SCRIPT, runs) as client:
        # None of these turns can end before the gate is open: what is shown until then comes live.
        lines = client.until(are_held("hold-4", "hold-5", "hold-6", "hold-7", "state"))
        programs.open_gate()
        lines += client.lines()
    for number in range(4, 8):
        name, whole = f"hold-{number}", "".join(f"{each} " for each in range(number))
        shown = [each["delta"] for each in events(lines, name) if each["type"] == "TEXT_MESSAGE_CONTENT"]
        assert (shown[:HELD], "".join(shown)) == (["0 ", "1 ", "2 "], whole), "each piece comes as it is made"
        assert texts(end(lines, name)["messages"]) == [("user", f"hold {number}"), ("assistant", whole)]
        assert texts(programs.get(f"/agui/{name}")["messages"]) == [("user", f"hold {number}"), ("assistant", whole)]
    assert not [line for line in lines if "warning" in line]

    call = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
    text = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
    thought = ["REASONING_START", "REASONING_MESSAGE_START", "REASONING_MESSAGE_CONTENT"]
    thought += ["REASONING_MESSAGE_END", "REASONING_END"]
    assert types(lines, "tools") == [
        "RUN_STARTED", *thought, *text, *call, *call, "TOOL_CALL_RESULT", *text, "RUN_FINISHED",
    ]  # fmt: skip
    question, spoken, *results, reply = (
        each for each in end(lines, "tools")["messages"] if each["role"] != "reasoning"
    )
    # Tools run side by side, and a client keeps their results in the order in which they returned.
    rome, nowhere = sorted(results, key=lambda each: str(each["toolCallId"]))
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
    server = programs.server()
    run = run_of(programs, "kill", user("hold 12"))
    with programs.client(_SCRIPT, [run]) as client:
        client.until(are_held("kill"))
        kill(server)
        left = client.until(lambda line: "end" in line)[-1]["end"]
    assert left["error"] is not None
    partial = left["messages"]
    assert texts(partial) == [("user", "hold 12"), ("assistant", "0 1 2 ")]

    programs.open_gate()
    programs.server()
    lines = programs.run(_SCRIPT, {**run, "messages": partial})
    whole = [("user", "hold 12"), ("assistant", "".join(f"{each} " for each in range(12)))]
    assert texts(end(lines, "kill")["messages"]) == whole
    assert texts(programs.get("/agui/kill")["messages"]) == whole
    assert events(lines, "kill")[-1]["outcome"] == {"type": "success"}
    # A third time: the reply is there, and nothing runs again.
    calls = programs.calls("model")
    lines = programs.run(_SCRIPT, {**run, "messages": [user("hold 12")]})
    assert texts(end(lines, "kill")["messages"]) == whole
    assert programs.calls("model") == calls == 2


def test_a_stream_continues_after_a_kill_of_the_worker(programs: Programs) -> None:
    """The stream of a turn whose worker is killed drops the half reply, and shows that of the next worker."""
    programs.server("--no-worker")
    worker = programs.worker()
    runs = [run_of(programs, "loop", user("hold 9")), run_of(programs, "plain", user("hold 9"), path="/plain/agui")]
    with programs.client(_SCRIPT, runs) as client:
        client.until(are_held("loop", "plain"))
        kill(worker)
        programs.open_gate()
        programs.worker()
        lines = list(client.lines())
    for name in ("loop", "plain"):
        whole = "".join(f"{each} " for each in range(9))
        assert "MESSAGES_SNAPSHOT" in types(lines, name), "the half reply is taken back"
        shown = [each["delta"] for each in events(lines, name) if each["type"] == "TEXT_MESSAGE_CONTENT"]
        assert "".join(shown).endswith(whole)
        assert texts(end(lines, name)["messages"]) == [("user", "hold 9"), ("assistant", whole)]
        assert end(lines, name)["error"] is None
        assert texts(programs.get(f"/agui/{name}")["messages"]) == [("user", "hold 9"), ("assistant", whole)]


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
