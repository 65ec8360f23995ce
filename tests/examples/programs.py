"""Starts examples and reads what they print."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class Program:
    """One running example."""

    def __init__(self, process: subprocess.Popen[str], errors: Path) -> None:
        self.process = process
        self.lines: list[str] = []
        self._errors = errors

    def read_until(self, words: str) -> str:
        """Return the first printed line that contains these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            if words in line:
                return self.lines[-1]
        raise AssertionError(f"{words!r} was never printed, but: {self.lines}\n{self.errors()}")

    def read_error_until(self, words: str) -> None:
        """Return once these words were written to stderr."""
        while words not in self.errors():
            assert self.process.poll() is None, self.errors()
            time.sleep(0.05)

    def finish(self) -> int:
        """Read the rest of the output and return the exit code."""
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            self.lines += stdout.read().splitlines()
        return self.process.wait()

    def errors(self) -> str:
        """Return stderr without reports of a blocked event loop: the machine may be busy."""
        lines = self._errors.read_text().splitlines(keepends=True)
        return "".join(line for line in lines if not line.startswith("loop.blocked "))


class Programs:
    """All examples that a test has started."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._all: list[Program] = []

    def set_model(self, url: str) -> None:
        """Use this model for programs started from now on."""
        self._environment["OPENAI_BASE_URL"] = url

    def start(self, name: str, *arguments: str) -> Program:
        command = [sys.executable, str(EXAMPLES / name), *arguments]
        errors = self._folder / f"stderr-{len(self._all)}.txt"
        with errors.open("w") as stderr:
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._environment, stdout=subprocess.PIPE, stderr=stderr, text=True
            )
        self._all.append(Program(process, errors))
        return self._all[-1]

    def run(self, name: str, *arguments: str) -> Program:
        """Run an example to its end."""
        program = self.start(name, *arguments)
        program.finish()
        return program

    def kill_all(self) -> None:
        for program in self._all:
            if program.process.poll() is None:
                program.process.kill()
            if program.process.stdout is not None:
                program.process.stdout.close()
            program.process.wait()
