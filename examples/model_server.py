"""A fake model: a local HTTP server that speaks OpenAI's chat-completions protocol.

    python examples/model_server.py
    export OPENAI_BASE_URL=http://127.0.0.1:8089/v1 OPENAI_API_KEY=none

It follows a script: the first rule that matches the last message decides, so the same request always gets the same
answer. Put your own rules into a file, ``--script rules.json``; see RULES for the format. Every word and every tool
call counts as a token. ``GET /calls`` returns how often each ``X-Client-Request-Id`` was seen. To use a real model
instead, set OPENAI_API_KEY and do not set OPENAI_BASE_URL.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]

# A rule has the role of the last message, words that it must contain, and either the text of the answer, in which
# {content} is replaced by the last message, or tool calls.
RULES: list[Json] = [
    {"role": "user", "contains": "weather", "calls": [["clock", {}], ["weather", {"city": "Rome"}]]},
    {"role": "user", "contains": "trip", "calls": [["book", {"what": what}] for what in ("flight", "hotel", "museum")]},
    {"role": "user", "contains": "Three questions about", "text": "Who did it?\nWhen was it?\nWhat remains?"},
    {"role": "user", "contains": "Sum up", "text": "In short: {content}"},
    {"role": "tool", "contains": "", "text": "Here is what I found for you: {content}"},
    {"role": "user", "contains": "", "text": "You said: {content}"},
]


class ModelServer(ThreadingHTTPServer):
    """The server: its rules, its pace, and how often it was called."""

    daemon_threads = True

    def __init__(self, port: int, rules: list[Json], word_delay_s: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.rules = rules
        self.word_delay_s = word_delay_s
        self.calls: Counter[str] = Counter()
        self.lock = threading.Lock()

    def answer(self, messages: list[Json]) -> Json:
        """Return the assistant's message that the first fitting rule gives."""
        last = messages[-1]
        content = str(last.get("content") or "")
        for rule in self.rules:
            if rule["role"] == last["role"] and rule["contains"] in content:
                break
        else:
            rule = {"text": "I have nothing to say about that."}
        if "calls" not in rule:
            return {"role": "assistant", "content": rule["text"].replace("{content}", content)}
        calls = [
            {
                "id": f"call-{len(messages)}-{index}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for index, (name, arguments) in enumerate(rule["calls"])
        ]
        return {"role": "assistant", "content": None, "tool_calls": calls}


class Handler(BaseHTTPRequestHandler):
    server: ModelServer

    def do_GET(self) -> None:
        with self.server.lock:
            self.reply(dict(self.server.calls))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            self.server.calls[self.headers.get("X-Client-Request-Id", "")] += 1
        message = self.server.answer(request["messages"])
        read = sum(len(str(each.get("content") or "").split()) for each in request["messages"])
        said = len((message["content"] or "").split()) + len(message.get("tool_calls", ()))
        usage = {"prompt_tokens": read, "completion_tokens": said, "total_tokens": read + said}
        reason = "tool_calls" if "tool_calls" in message else "stop"
        common: Json = {"id": "chatcmpl-stand-in", "created": 0, "model": request["model"]}
        if not request.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            self.reply({**common, "object": "chat.completion", "choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        common["object"] = "chat.completion.chunk"
        for delta in deltas(message):
            self.event({**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
            time.sleep(self.server.word_delay_s)
        self.event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
        if (request.get("stream_options") or {}).get("include_usage"):
            self.event({**common, "choices": [], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")

    def reply(self, body: Json) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def event(self, chunk: Json) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name that http.server wants)
        """Write no log."""


def deltas(message: Json) -> Iterator[Json]:
    """Return a message in pieces, as it is streamed: word by word, or one call of a tool after the other."""
    yield {"role": "assistant", "content": None if "tool_calls" in message else ""}
    for index, call in enumerate(message.get("tool_calls", [])):
        yield {"tool_calls": [{"index": index, **call, "function": {**call["function"], "arguments": ""}}]}
        yield {"tool_calls": [{"index": index, "function": {"arguments": call["function"]["arguments"]}}]}
    before = ""
    for word in (message["content"] or "").split():
        yield {"content": before + word}
        before = " "


def main() -> None:
    parser = argparse.ArgumentParser(description="A stand-in for a model.")
    parser.add_argument("--port", type=int, default=8089, help="0 takes any that is free")
    parser.add_argument("--script", type=Path, help="a JSON file with a list of rules")
    parser.add_argument("--word-delay", type=float, default=0.03, help="seconds between the words of a stream")
    options = parser.parse_args()
    rules = json.loads(options.script.read_text()) if options.script else RULES
    server = ModelServer(options.port, rules, options.word_delay)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
