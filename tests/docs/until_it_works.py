"""``python -m tests.docs.until_it_works worker module:app``: run a worker until it says that it works, then stop it.

Ends with the exit code of the worker, and shows what it logged if that is an error.
"""

from __future__ import annotations

import signal
import subprocess
import sys


def main() -> int:
    """Start the worker, read its log until it is ready, and send it SIGTERM."""
    command = [sys.executable, "-m", "lash", *sys.argv[1:]]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
        assert worker.stderr is not None
        log: list[str] = []
        for line in worker.stderr:
            log.append(line)
            if "lash.worker: working" in line:
                worker.send_signal(signal.SIGTERM)
    if worker.returncode:
        sys.stderr.writelines(log)
    return worker.returncode


if __name__ == "__main__":
    sys.exit(main())
