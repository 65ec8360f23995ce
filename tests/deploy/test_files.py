"""The files in ``deploy/``: what they name exists, and their commands work together without containers."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from lash.testing.postgres_server import PostgresServer
from tests.backends import scratch_database
from tests.debian_programs import find_program

_ROOT: Final = Path(__file__).parents[2]
_LASH: Final = (sys.executable, "-m", "lash")


@pytest.fixture
def compose() -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((_ROOT / "compose.yaml").read_text())
    services: dict[str, Any] = read["services"]
    return services


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


@pytest.mark.timeout(240)
def test_the_services_answer_together(postgres_server: PostgresServer, compose: dict[str, Any], tmp_path: Path) -> None:
    """The commands of compose.yaml, on a real server: the agent answers, the console opens, Prometheus scrapes all."""
    web, workers = _free_port(), [_free_port() for _ in range(compose["worker"]["deploy"]["replicas"])]
    token = tmp_path / "web_token"
    token.write_text("t" * 32)

    def command(service: str, http: int, *more: str) -> list[str]:
        addresses = {"0.0.0.0:9090": f"127.0.0.1:{http}", "0.0.0.0": "127.0.0.1"}
        return [*_LASH, *(addresses.get(word, word) for word in compose[service]["command"]), *more]

    with scratch_database(postgres_server.url) as url, ExitStack() as running:
        given = {**os.environ, "LASH_URL": url, "LASH_WEB_TOKEN": token.read_text()}
        where: dict[str, Any] = {"cwd": _ROOT / "deploy", "env": given}
        subprocess.run(command("migrate", 0), check=True, capture_output=True, **where)
        services = [command("worker", http) for http in workers] + [command("console", 0, "--port", str(web))]
        prometheus = _prometheus(tmp_path, workers, web, token)
        for words in (*services, prometheus):
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **where)
            running.callback(process.wait, 60)
            running.callback(process.terminate)
        answer = subprocess.run([*_LASH, "ask", "chat-1", "Rome"], check=True, capture_output=True, text=True, **where)
        assert answer.stdout.strip() == "rain in Rome"
        assert "chat-1" in _until_served(f"http://127.0.0.1:{web}/?token={token.read_text()}")
        for path in (f"{workers[0]}/ready", f"{workers[1]}/live", f"{web}/ready"):
            _until_served(f"http://127.0.0.1:{path}")
        asked = f"http://{prometheus[-1].rpartition('=')[2]}/api/v1"
        _until_scraped(asked, 'sum(up{job=~"lash.*"})', 3)
        _until_scraped(asked, "max(lash_workers_live)", 2)
        _until_scraped(asked, 'sum(lash_turn_duration_seconds_count{agent="assistant",outcome="committed"})', 1)
        _until_scraped(asked, 'max(lash_dead_letters{job="lash-console"})', 0)
        rules = httpx.get(f"{asked}/rules", timeout=30).json()["data"]["groups"][0]["rules"]
        assert len(rules) == 6


def _prometheus(directory: Path, workers: list[int], web: int, token: Path) -> list[str]:
    """Return the command of Prometheus, with its configuration of deploy/ and the addresses of this machine."""
    deployed = _ROOT / "deploy" / "prometheus"
    configuration = yaml.safe_load((deployed / "prometheus.yml").read_text())
    configuration["global"]["scrape_interval"] = "1s"
    by_name, console = configuration["scrape_configs"]
    assert by_name.pop("dns_sd_configs")[0]["names"] == ["worker"]
    by_name["static_configs"] = [{"targets": [f"127.0.0.1:{port}" for port in workers]}]
    assert console["static_configs"] == [{"targets": ["console:8137"]}]
    console["static_configs"] = [{"targets": [f"127.0.0.1:{web}"]}]
    console["authorization"]["credentials_file"] = str(token)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    shutil.copy(deployed / "lash.rules.yaml", directory)
    program = find_program("prometheus", "usr/bin/prometheus", "LASH_TEST_PROMETHEUS")
    files = (f"--config.file={directory / 'prometheus.yml'}", f"--storage.tsdb.path={directory / 'data'}")
    return [str(program), *files, f"--web.listen-address=127.0.0.1:{_free_port()}"]


def _until_scraped(asked: str, query: str, value: float) -> None:
    """Wait until a query of Prometheus has this value."""
    deadline, found = time.monotonic() + 60, None
    while found != value:
        assert time.monotonic() < deadline, f"{query} is {found}"
        time.sleep(0.1)
        try:
            result = httpx.get(f"{asked}/query", params={"query": query}, timeout=30).json()
        except httpx.TransportError:
            continue
        found = float(result["data"]["result"][0]["value"][1]) if result["data"]["result"] else None


def _until_served(url: str) -> str:
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = httpx.get(url, timeout=30, follow_redirects=True)
        except httpx.TransportError:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            continue
        assert answer.status_code == 200
        return answer.text


def test_the_services_of_compose_depend_on_each_other(compose: dict[str, Any]) -> None:
    """Workers and console wait for the migration, and a worker has longer to stop than its grace time."""
    for name in ("worker", "console"):
        assert compose[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}
    words = compose["worker"]["command"]
    assert int(words[words.index("--grace") + 1]) < int(compose["worker"]["stop_grace_period"].removesuffix("s"))


def test_the_image_has_what_it_copies_and_is_not_root() -> None:
    """Everything that the Dockerfile copies from here exists and is sent to the builder; the last user is a number."""
    lines = (_ROOT / "Dockerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") and "--from" not in line for word in line.split()[1:-1]]
    sent = {line.removeprefix("!") for line in (_ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    assert set(copied) == sent
    assert all((_ROOT / each).exists() for each in copied)
    assert [line for line in lines if line.startswith("USER")] == ["USER 10001"]


def test_the_manifests_name_each_other() -> None:
    """The Deployment, its budget and its probes fit together; the pod outlives the grace time of its worker."""
    manifests = list(yaml.safe_load_all((_ROOT / "deploy" / "kubernetes" / "lash.yaml").read_text()))
    job, deployment, budget = manifests
    assert [each["kind"] for each in manifests] == ["Job", "Deployment", "PodDisruptionBudget"]
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert labels == deployment["spec"]["selector"]["matchLabels"] == budget["spec"]["selector"]["matchLabels"]
    (worker,) = pod["spec"]["containers"]
    assert worker["env"] == job["spec"]["template"]["spec"]["containers"][0]["env"]
    words, ports = worker["args"], {each["name"]: each["containerPort"] for each in worker["ports"]}
    assert words[words.index("--http") + 1] == f"0.0.0.0:{ports['http']}"
    assert int(words[words.index("--grace") + 1]) < pod["spec"]["terminationGracePeriodSeconds"]
    probes = {name: worker[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert {name: each["path"] for name, each in probes.items()} == {
        "startup": "/ready",
        "liveness": "/live",
        "readiness": "/ready",
    }


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="this machine has no systemd-analyze")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    """systemd-analyze finds nothing wrong; the command of the unit is replaced by one that exists here."""
    unit = (_ROOT / "deploy" / "systemd" / "lash-worker.service").read_text()
    made = tmp_path / "lash-worker.service"
    made.write_text(re.sub("^ExecStart=[^ ]+", f"ExecStart={sys.executable}", unit, flags=re.MULTILINE))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(made)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


def test_a_worker_reports_to_systemd(tmp_path: Path) -> None:
    """A worker reports ready, then that it lives, and that it stops."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(60)
        given = {
            **os.environ,
            "LASH_URL": f"sqlite:///{tmp_path}/lash.db",
            "NOTIFY_SOCKET": str(tmp_path / "notify"),
            "WATCHDOG_USEC": "100000",
        }
        command = [*_LASH, "worker", "service:app"]
        with subprocess.Popen(command, cwd=_ROOT / "deploy", env=given, stderr=subprocess.DEVNULL) as worker:
            assert [systemd.recv(64) for _ in range(4)] == [b"READY=1", *[b"WATCHDOG=1"] * 3]
            worker.terminate()
            while (state := systemd.recv(64)) == b"WATCHDOG=1":
                pass
            assert state == b"STOPPING=1"
            assert worker.wait(60) == 0
