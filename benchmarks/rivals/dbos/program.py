"""DBOS: workflows of ten steps, and a queue whose poll interval is the shortest that still makes sense."""

from __future__ import annotations

import concurrent.futures
import threading
import time


from dbos import DBOS

from benchmarks.rivals.protocol import Answer, Question, Watch, digest, serve

_POLL_S = 0.01
_done: list[int] = []
_lock = threading.Lock()


@DBOS.step()
def produce(text: str) -> str:
    """Return a result of 1,000 characters."""
    return text


@DBOS.workflow()
def ten_steps(seed: int, texts: list[str]) -> str:
    """Run ten steps one after the other."""
    return digest([str(seed), *(produce(text) for text in texts)])


@DBOS.workflow()
def nothing(number: int) -> None:
    """Do nothing."""
    with _lock:
        _done.append(number)


def _launch(url: str) -> None:
    # A thread for each workflow comes from a pool that DBOS sizes itself.
    database = url.replace("postgresql://", "postgresql+psycopg://")
    DBOS(config={"name": "bench-dbos", "system_database_url": database, "log_level": "ERROR", "executor_id": "bench"})
    DBOS.launch()


def steps(question: Question) -> Answer:
    """Run workflows of ten steps, some of them at once."""
    _launch(question["url"])
    runs, watch = question["runs"], Watch()

    def run(number: int) -> str:
        began = time.monotonic()
        result: str = ten_steps(number, runs[number])
        watch.note(number, began)
        return result

    with concurrent.futures.ThreadPoolExecutor(question["callers"]) as callers:
        watch.start()
        results = list(callers.map(run, range(len(runs))))
        watch.stop()
    DBOS.destroy()
    return watch.answer(results=results)


def queue(question: Question) -> Answer:
    """Queue jobs that do nothing; DBOS begins with them at once, so the clock runs from the first to the last."""
    _launch(question["url"])
    _done.clear()
    jobs, watch = question["jobs"], Watch()
    # Nothing is taken from the queue before it is listened to, which the registration does.
    begin = time.monotonic()
    DBOS.register_queue("jobs", polling_interval_sec=3600)
    for number in range(jobs):
        DBOS.enqueue_workflow("jobs", nothing, number)
    queued_s = time.monotonic() - begin
    DBOS.destroy()
    _done.clear()
    _launch(question["url"])
    watch.start()
    DBOS.register_queue("jobs", polling_interval_sec=_POLL_S, on_conflict="update")
    while len(_done) < jobs:
        time.sleep(0.002)
    watch.stop()
    DBOS.destroy()
    return watch.answer(queued_s=queued_s, done=sorted(_done))


serve(("dbos",), {"steps": steps, "queue": queue})
