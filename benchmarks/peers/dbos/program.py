"""DBOS: workflows of ten steps, and a queue whose poll interval is the shortest that still makes sense."""

from __future__ import annotations

import concurrent.futures
import threading
import time

from dbos import DBOS, DBOSClient, SetWorkflowID

from benchmarks.peers.protocol import Answer, Crew, Hang, Question, Watch, digest, serve

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


def _database(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg://")


def _launch(url: str) -> None:
    DBOS(config={"name": "bench-dbos", "system_database_url": _database(url), "log_level": "ERROR"})
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
    """Queue jobs that do nothing from a client, then let one process do them all."""
    url, jobs, watch = question["url"], question["jobs"], Watch()
    _launch(url)
    DBOS.register_queue("jobs", polling_interval_sec=_POLL_S)
    DBOS.destroy()
    client = DBOSClient(system_database_url=_database(url))
    begin = time.monotonic()
    for number in range(jobs):
        client.enqueue({"queue_name": "jobs", "workflow_name": nothing.__qualname__}, number)
    queued_s = time.monotonic() - begin
    client.destroy()
    _done.clear()
    watch.start()
    _launch(url)
    while len(_done) < jobs:
        time.sleep(0.002)
    watch.stop()
    DBOS.destroy()
    return watch.answer(queued_s=queued_s, done=sorted(_done))


_hang: list[Hang] = []


@DBOS.step()
def first() -> str:
    """Leave a line."""
    return _hang[-1].first()


@DBOS.step()
def second() -> str:
    """Leave a line, and hang if this is the run that will be killed."""
    return _hang[-1].second()


@DBOS.workflow()
def job() -> str:
    """Run two steps."""
    first()
    return second()


def recover(question: Question) -> Answer:
    """Run a job of two steps, or go on with it: a process recovers what one of its own name has left when it starts."""
    _hang.append(Hang(question))
    _launch(question["url"])
    if question["standby"]:
        handle = DBOS.retrieve_workflow("job")
    else:
        with SetWorkflowID("job"):
            handle = DBOS.start_workflow(job)
    result = handle.get_result()
    DBOS.destroy()
    return {"entered": float(result)}


_crew: list[Crew] = []


@DBOS.workflow()
def short_job(number: int) -> None:
    """Note that it was run."""
    _crew[-1].done(number)


def fleet_prepare(question: Question) -> Answer:
    """Create the tables, and a queue whose options are the default ones."""
    _launch(question["url"])
    DBOS.register_queue("fleet")
    DBOS.destroy()
    return {}


def fleet_worker(question: Question) -> Answer:
    """Work until the runner ends the fleet."""
    _crew.append(Crew(question))
    _launch(question["url"])
    _crew[-1].begin()
    while not _crew[-1].must_end():
        time.sleep(0.1)
    DBOS.destroy()
    return {}


def fleet_send(question: Question) -> Answer:
    """Queue jobs at a steady rate."""
    crew = Crew(question)
    client = DBOSClient(system_database_url=_database(question["url"]))
    client.enqueue({"queue_name": "fleet", "workflow_name": short_job.__qualname__}, -1)
    crew.begin()
    while not crew.may_go():
        time.sleep(0.01)
    for number in range(question["jobs"]):
        client.enqueue({"queue_name": "fleet", "workflow_name": short_job.__qualname__}, number)
        time.sleep(question["every_s"])
    client.destroy()
    return {}


_FLEET = {"fleet_prepare": fleet_prepare, "fleet_worker": fleet_worker, "fleet_send": fleet_send}
serve(("dbos",), {"steps": steps, "queue": queue, "recover": recover, **_FLEET})
