"""The UI message stream, as the official package of the AI SDK sees it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.protocols.front_end.clients import Line, Programs, kill

pytestmark = pytest.mark.parametrize("backend_name", ["sqlite", "postgres"], indirect=True)

_SCRIPT = "vercel.mjs"


def send(text: str, *more: Line, message_id: str = "m1") -> Line:
    return {"send": {"id": message_id, "parts": [{"type": "text", "text": text}, *more]}}


def chat(programs: Programs, name: str, *acts: Line, path: str = "/chat", **more: Any) -> Line:  # noqa: ANN401
    return {"name": name, "api": f"{programs.address}{path}", "id": name, "acts": acts, **more}


def did(lines: list[Line], name: str) -> list[Line]:
    """Return the state of a chat after each of its acts."""
    return [line["did"] for line in lines if line["name"] == name and "did" in line]


def shown_texts(lines: list[Line], name: str) -> list[str]:
    """Return the text that was on the screen after each change, each one once in a row."""
    found = [text_of(line["shown"]) for line in lines if line["name"] == name and "shown" in line]
    return [each for place, each in enumerate(found) if each and (place == 0 or found[place - 1] != each)]


def text_of(parts: list[Line]) -> str:
    """Return the text as a front end shows it, without what is marked as superseded."""
    superseded = {"lash": {"superseded": True}}
    texts = [each for each in parts if each["type"] == "text" and each.get("providerMetadata") != superseded]
    return "".join(each["text"] for each in texts)


def words(count: int) -> str:
    return "".join(f"{each} " for each in range(count))


def is_shown(text: str) -> Any:  # noqa: ANN401 (a condition)
    return lambda line: text in text_of(line.get("shown", []))


def stored(programs: Programs, name: str) -> list[tuple[str, str]]:
    messages = programs.get(f"/chat/{name}")["messages"]
    return [(each["role"], text_of(each["parts"])) for each in messages]


def test_chats_stream_text_tools_questions_and_errors(programs: Programs) -> None:
    """Chats at once get their own text live, tool parts, questions and errors; a finished chat resumes to the same."""
    programs.server()
    file = {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{_encoded(b'hello')}"}
    chats = [
        chat(programs, "count", send("hold 5", file), {"resume": True}),
        chat(programs, "tools", send("weather Rome Nowhere"), {"resume": True}),
        chat(programs, "fails", send("fail")),
        chat(programs, "asks", send("ask"), {"answer": "Ada"}, path="/plain/chat"),
    ]
    with programs.client(_SCRIPT, chats) as client:
        # This turn cannot end before the gate is open: what is shown until then comes live.
        lines = client.until(is_shown("0 1 2 "))
        assert shown_texts(lines, "count") == [words(1), words(2), words(3)]
        programs.open_gate()
        lines += client.lines()
    for after in did(lines, "count"):
        assert (after["status"], after["error"]) == ("ready", None)
        assert [each["role"] for each in after["messages"]] == ["user", "assistant"]
        assert text_of(after["messages"][1]["parts"]) == words(5)

    parts: list[Line] = []
    for after in did(lines, "tools"):
        parts = [each for each in after["messages"][1]["parts"] if each["type"] != "reasoning"]
        assert [each["type"] for each in parts] == [
            "step-start", "text", "tool-weather", "tool-weather", "step-start", "text",
        ]  # fmt: skip
        rome, nowhere = parts[2:4]
        assert (rome["state"], rome["input"]) == ("output-available", {"city": "Rome"})
        assert rome["output"] == {"city": "Rome", "sky": "sunny"}
        assert (nowhere["state"], nowhere["errorText"]) == ("output-error", "ValueError: there is no such city")
    loaded = programs.get("/chat/tools")["messages"][1]
    assert (loaded["id"], loaded["parts"]) == (did(lines, "tools")[1]["messages"][1]["id"], parts)

    [failed] = did(lines, "fails")
    assert (failed["status"], failed["error"]) == ("error", "Error: The agent failed to answer.")
    [question] = [line["question"] for line in lines if "question" in line]
    assert question == {"text": "What is your name?", "schema": {"type": "string"}, "details": None}
    assert text_of(did(lines, "asks")[-1]["messages"][1]["parts"]) == "Hello Ada"


def test_a_chat_reconnects_after_a_kill_of_the_server(programs: Programs) -> None:
    """A chat whose server was killed in mid-stream resumes its stream, or sends again: one question, one reply."""
    server = programs.server()
    with programs.client(_SCRIPT, [chat(programs, "kill", send("hold 12"))]) as client:
        client.until(is_shown("0 1 2 "))
        kill(server)
        [left] = did(client.until(lambda line: "did" in line), "kill")
    assert left["status"] == "error"
    assert text_of(left["messages"][1]["parts"]) == "0 1 2 "

    programs.open_gate()
    programs.server()
    lines = programs.run(_SCRIPT, chat(programs, "kill", {"resume": True}, messages=left["messages"]))
    [after] = did(lines, "kill")
    assert [each["id"] for each in after["messages"]] == [each["id"] for each in left["messages"]]
    assert text_of(after["messages"][1]["parts"]) == words(12)
    assert stored(programs, "kill") == [("user", "hold 12"), ("assistant", words(12))]
    # The same message again, from a client that has lost the reply.
    lines = programs.run(_SCRIPT, chat(programs, "kill", send("hold 12")))
    assert text_of(did(lines, "kill")[0]["messages"][1]["parts"]) == words(12)
    assert stored(programs, "kill") == [("user", "hold 12"), ("assistant", words(12))]
    assert programs.calls("model") == 2


def test_a_chat_continues_after_a_kill_of_the_worker(programs: Programs) -> None:
    """The half reply of a killed worker is marked as superseded, and that of the next worker follows."""
    programs.server("--no-worker")
    worker = programs.worker()
    with programs.client(_SCRIPT, [chat(programs, "kill", send("hold 9"))]) as client:
        client.until(is_shown("0 1 2 "))
        kill(worker)
        programs.open_gate()
        programs.worker()
        lines = list(client.lines())
    [after] = did(lines, "kill")
    assert (after["status"], after["error"]) == ("ready", None)
    parts = after["messages"][1]["parts"]
    assert text_of(parts) == words(9)
    assert len([each for each in parts if each["type"] == "text"]) == 2
    assert stored(programs, "kill") == [("user", "hold 9"), ("assistant", words(9))]


def test_approvals_are_asked_for_and_decided_once(programs: Programs) -> None:
    """Tool calls wait for a decision over a restart; an approved one runs once, a denied one does not."""
    server = programs.server()
    lines = programs.run(_SCRIPT, chat(programs, "pay", send("refund o1 o2")))
    [asked] = did(lines, "pay")
    tools = [each for each in asked["messages"][1]["parts"] if each["type"] == "tool-refund"]
    assert [each["state"] for each in tools] == ["approval-requested", "approval-requested"]
    kill(server)
    programs.server()
    acts = {"decide": [{"approved": True}, {"approved": False, "reason": "no"}]}
    # A page that is loaded again shows what is stored, and resumes.
    loaded = programs.get("/chat/pay")["messages"]
    assert [each["role"] for each in loaded] == ["user"]
    lines = programs.run(_SCRIPT, chat(programs, "pay", {"resume": True}, acts, messages=loaded))
    resumed, decided = did(lines, "pay")
    states = [each["state"] for each in resumed["messages"][1]["parts"] if each["type"] == "tool-refund"]
    assert states == ["approval-requested", "approval-requested"]
    assert decided["error"] is None
    tools = [each for each in decided["messages"][1]["parts"] if each["type"] == "tool-refund"]
    assert [each["state"] for each in tools] == ["output-available", "output-denied"]
    assert tools[0]["output"] == "o1 refunded"
    assert programs.calls("refund") == 1
    assert stored(programs, "pay")[1] == ("assistant", "Let me see. o1 refundedThe call was denied. no")


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
