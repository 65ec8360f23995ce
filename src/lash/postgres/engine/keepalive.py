"""Dead peers: both ends of a connection find out when the other machine is gone.

Without this, a server keeps the locks of a client whose machine lost power for two hours, and a listener whose server
is gone waits for notifications that never come.
"""

from __future__ import annotations

import socket
from typing import Final

from lash.postgres.engine.options import PostgresOptions

_PROBES: Final = 3
"""The number of unanswered keepalive probes after which a connection is dead."""
_IDLE_OPTION: Final = getattr(socket, "TCP_KEEPIDLE", getattr(socket, "TCP_KEEPALIVE", None))
"""Linux and macOS have different names for the option."""


def server_keepalive(options: PostgresOptions) -> dict[str, str]:
    """Return the session settings that make the server notice a dead client; it ignores them on a unix socket."""
    if options.peer_timeout_s == 0:
        return {}
    idle_s, interval_s = _times(options)
    return {
        "tcp_keepalives_idle": str(idle_s),
        "tcp_keepalives_interval": str(interval_s),
        "tcp_keepalives_count": str(_PROBES),
        "tcp_user_timeout": str(round(options.peer_timeout_s * 1000)),
    }


def keep_alive(connection: object, options: PostgresOptions) -> None:
    """Make the client's socket notice a dead server. Does nothing on a unix socket."""
    # The driver has no public way to its socket.
    transport = getattr(connection, "_transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family not in {socket.AF_INET, socket.AF_INET6} or options.peer_timeout_s == 0:
        return
    idle_s, interval_s = _times(options)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    values = {
        _IDLE_OPTION: idle_s,
        getattr(socket, "TCP_KEEPINTVL", None): interval_s,
        getattr(socket, "TCP_KEEPCNT", None): _PROBES,
        # Only Linux has it. Data that stays unacknowledged ends the connection, too.
        getattr(socket, "TCP_USER_TIMEOUT", None): round(options.peer_timeout_s * 1000),
    }
    for option, value in values.items():
        if option is not None:
            found.setsockopt(socket.IPPROTO_TCP, option, value)


def _times(options: PostgresOptions) -> tuple[int, int]:
    """Return the seconds before the first probe and between probes; together they make up the limit."""
    interval_s = max(1, round(options.peer_timeout_s / 6))
    return max(1, round(options.peer_timeout_s) - _PROBES * interval_s), interval_s
