"""A local HTTP server that speaks the protocols of OpenAI and Anthropic, with streaming, for the real clients.

``python -m tests.agents.stand_in FILE`` serves the script of the README, and writes its URL to the file.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

Body = dict[str, Any]
Event = tuple[str | None, Any]


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """What the server replies: in any protocol, or an error."""

    text: tuple[str, ...] = ()
    calls: tuple[tuple[str, str, Body], ...] = ()
    thinking: str = ""
    stop: str = "end"
    input_tokens: int = 100
    cached_tokens: int = 40
    output_tokens: int = 20
    reasoning_tokens: int = 5
    status: int = 200
    headers: dict[str, str] = {}
    error: str = ""
    breaks: bool = False
    """Whether an error comes in the middle of the stream."""
    hangs: bool = False


Script = Callable[[Body], Reply]


class StandIn:
    """One server. ``requests`` are the bodies that it got, ``problems`` what was wrong with them."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[Body] = []
        self.problems: list[str] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, body = await _read(reader)
            await self._answer(path, body, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, path: str, body: Body, writer: asyncio.StreamWriter) -> None:
        self.requests.append(body)
        protocol = PROTOCOLS[path]
        problem = protocol.problem(body)
        if problem is not None:
            self.problems.append(problem)
        reply = Reply(status=400, error=problem) if problem is not None else self.script(body)
        if reply.hangs:
            await asyncio.sleep(3_600)
        if reply.status != 200:
            error = {"type": "error", "error": {"type": "api_error", "message": reply.error, "code": reply.error}}
            await _send(writer, reply.status, "application/json", json.dumps(error).encode(), reply.headers)
            return
        await _send(writer, 200, "text/event-stream", b"", reply.headers)
        events = list(protocol.events(reply))
        for name, data in events[: len(events) // 2 if reply.breaks else len(events)]:
            writer.write(_event(name, data))
            await writer.drain()
        if reply.breaks:
            error = {"type": "overloaded_error", "message": "busy", "code": "server_error"}
            writer.write(_event("error", {"type": "error", "error": error}))
            await writer.drain()


@contextlib.asynccontextmanager
async def stand_in(script: Script) -> AsyncIterator[StandIn]:
    """Serve a script on a free port."""
    made = StandIn(script)
    handlers: set[asyncio.Task[None]] = set()

    def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(made.serve(reader, writer))
        handlers.add(task)
        task.add_done_callback(handlers.discard)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


async def _read(reader: asyncio.StreamReader) -> tuple[str, Body]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body: Body = json.loads(await reader.readexactly(int(headers["content-length"])))
    return first.split()[1], body


async def _send(writer: asyncio.StreamWriter, status: int, kind: str, body: bytes, headers: dict[str, str]) -> None:
    lines = [f"HTTP/1.1 {status} Answer", f"Content-Type: {kind}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    await writer.drain()


def _event(name: str | None, data: object) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data)
    return (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode()


def _seal(text: str) -> str:
    """Return the signature of reasoning, which must come back unchanged."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _Responses:
    """OpenAI's Responses API."""

    def problem(self, body: Body) -> str | None:
        called: list[str] = []
        answered: list[str] = []
        for item in body["input"]:
            kind = item.get("type")
            if kind == "reasoning" and item["encrypted_content"] != _seal(item["id"]):
                return "the reasoning was changed"
            called += [item["call_id"]] if kind == "function_call" else []
            answered += [item["call_id"]] if kind == "function_call_output" else []
        if called != answered:
            return f"calls {called} have the outputs {answered}"
        return None if body.get("stream") and body.get("store") is False else "expected a stream that is not stored"

    def events(self, reply: Reply) -> Iterator[Event]:
        response: Body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "stand-in-1", "output": []}
        response |= {"status": "in_progress", "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        yield self._named("response.created", response=response)
        items = list(self._items(reply))
        for index, item in enumerate(items):
            yield self._named("response.output_item.added", output_index=index, item=item)
            if item["type"] == "message":
                for piece in reply.text if item["content"][0]["type"] == "output_text" else ():
                    place = {"item_id": "msg_1", "output_index": index, "content_index": 0, "logprobs": []}
                    yield self._named("response.output_text.delta", **place, delta=piece)
            if item["type"] == "reasoning":
                place = {"item_id": item["id"], "output_index": index, "summary_index": 0}
                yield self._named("response.reasoning_summary_text.delta", **place, delta=reply.thinking)
            yield self._named("response.output_item.done", output_index=index, item=item)
        usage = {
            "input_tokens": reply.input_tokens,
            "input_tokens_details": {"cached_tokens": reply.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": reply.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
            "total_tokens": reply.input_tokens + reply.output_tokens,
        }
        end = "incomplete" if reply.stop == "length" else "completed"
        details = {"reason": "max_output_tokens"} if end == "incomplete" else None
        whole = {**response, "status": end, "incomplete_details": details, "output": items, "usage": usage}
        yield self._named(f"response.{end}", response=whole)

    def _items(self, reply: Reply) -> Iterator[Body]:
        if reply.thinking:
            summary = [{"type": "summary_text", "text": reply.thinking}]
            yield {"type": "reasoning", "id": "rs_1", "summary": summary, "encrypted_content": _seal("rs_1")}
        if reply.text:
            content: Body = {"type": "output_text", "text": "".join(reply.text), "annotations": [], "logprobs": []}
            if reply.stop == "refused":
                content = {"type": "refusal", "refusal": "".join(reply.text)}
            yield {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
        for call_id, name, arguments in reply.calls:
            call = {"type": "function_call", "id": f"fc_{call_id}", "status": "completed"}
            yield {**call, "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}

    def _named(self, kind: str, **data: object) -> Event:
        return kind, {"type": kind, "sequence_number": 0, **data}


class _Chat:
    """OpenAI's Chat Completions API."""

    def problem(self, body: Body) -> str | None:
        waiting: list[str] = []
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    return f"tool_call_id {message['tool_call_id']} was not called"
                waiting.remove(message["tool_call_id"])
            elif waiting:
                return f"calls {waiting} have no results"
            waiting += [call["id"] for call in message.get("tool_calls", ())]
            if "signature" in message and message["signature"] != _seal(message["reasoning_content"]):
                return "the reasoning was changed"
        return None if body.get("stream") else "expected a stream"

    def events(self, reply: Reply) -> Iterator[Event]:
        yield self._chunk({"role": "assistant", "content": ""})
        if reply.thinking:
            half = len(reply.thinking) // 2
            yield self._chunk({"reasoning_content": reply.thinking[:half]})
            yield self._chunk({"reasoning_content": reply.thinking[half:], "signature": _seal(reply.thinking)})
        for piece in reply.text:
            yield self._chunk({"refusal" if reply.stop == "refused" else "content": piece})
        for index, (call_id, name, arguments) in enumerate(reply.calls):
            text = json.dumps(arguments)
            begun = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
            yield self._chunk({"tool_calls": [begun]})
            for piece in (text[:3], text[3:]):
                yield self._chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        finish = {"length": "length", "refused": "stop"}.get(reply.stop, "tool_calls" if reply.calls else "stop")
        yield self._chunk({}, finish_reason=finish)
        usage = {
            "prompt_tokens": reply.input_tokens,
            "completion_tokens": reply.output_tokens,
            "total_tokens": reply.input_tokens + reply.output_tokens,
            "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": reply.reasoning_tokens},
        }
        yield None, {**_CHUNK, "choices": [], "usage": usage}
        yield None, "[DONE]"

    def _chunk(self, delta: Body, finish_reason: str | None = None) -> Event:
        return None, {**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


_CHUNK: Final = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "stand-in-1"}


class _Messages:
    """Anthropic's Messages API."""

    def problem(self, body: Body) -> str | None:
        waiting: list[str] = []
        for index, message in enumerate(body["messages"]):
            if message["role"] != ("assistant" if index % 2 else "user"):
                return f"message {index} is of the {message['role']}"
            blocks = message["content"]
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if results != waiting:
                return f"calls {waiting} have the results {results}"
            waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
            for block in blocks:
                if block["type"] == "thinking" and block["signature"] != _seal(block["thinking"]):
                    return "the thinking was changed"
        return None if body.get("stream") and body["max_tokens"] > 0 else "expected a stream and max_tokens"

    def events(self, reply: Reply) -> Iterator[Event]:
        usage = {"input_tokens": reply.input_tokens - reply.cached_tokens, "output_tokens": 1}
        usage |= {"cache_read_input_tokens": reply.cached_tokens, "cache_creation_input_tokens": 0}
        message: Body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "stand-in-1", "content": []}
        message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        yield self._named("message_start", message=message)
        for index, (block, deltas) in enumerate(self._blocks(reply)):
            yield self._named("content_block_start", index=index, content_block=block)
            for delta in deltas:
                yield self._named("content_block_delta", index=index, delta=delta)
            yield self._named("content_block_stop", index=index)
        reasons = {"length": "max_tokens", "refused": "refusal", "paused": "pause_turn"}
        reason = reasons.get(reply.stop, "tool_use" if reply.calls else "end_turn")
        spent: Body = {"output_tokens": reply.output_tokens}
        spent |= {"output_tokens_details": {"thinking_tokens": reply.reasoning_tokens}}
        yield self._named("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=spent)
        yield self._named("message_stop")

    def _blocks(self, reply: Reply) -> Iterator[tuple[Body, list[Body]]]:
        if reply.thinking:
            thinking = [{"type": "thinking_delta", "thinking": reply.thinking}]
            signature = [{"type": "signature_delta", "signature": _seal(reply.thinking)}]
            yield {"type": "thinking", "thinking": "", "signature": ""}, thinking + signature
        if reply.text:
            yield {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in reply.text]
        for call_id, name, arguments in reply.calls:
            text = json.dumps(arguments)
            pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:3], text[3:])]
            yield {"type": "tool_use", "id": call_id, "name": name, "input": {}}, pieces

    def _named(self, kind: str, **data: object) -> Event:
        return kind, {"type": kind, **data}


PROTOCOLS: Final[dict[str, _Responses | _Chat | _Messages]] = {
    "/v1/responses": _Responses(),
    "/v1/chat/completions": _Chat(),
    "/v1/messages": _Messages(),
}


def readme_script(body: Body) -> Reply:
    """Reply to the program of the README: look for the order, refund it, and say so."""
    outputs = [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
    if not outputs:
        return Reply(text=("Let me ", "look. "), calls=(("call_1", "find_order", {"order": "7"}),), thinking="Order 7?")
    if len(outputs) == 1:
        return Reply(calls=(("call_2", "refund", {"order": "7", "cents": 500}),))
    return Reply(text=("It was lost; ", f"{outputs[-1]}."))


async def _main(file: Path) -> None:
    async with stand_in(readme_script) as server:
        file.with_suffix(".new").write_text(server.url)
        file.with_suffix(".new").rename(file)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1])))
