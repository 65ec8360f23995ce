"""The scopes of ADK's state, which the keys name by prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.adk.sessions.state import State
from pydantic_core import to_jsonable_python

from lash.adapters.formats.adk_state import Delta, Values


def split(state: Mapping[str, Any]) -> Delta:
    """Return changes of state by scope, without those of one invocation (``temp:``).

    A value that has no JSON form becomes text, as in ADK's own services.
    """
    scopes: dict[str, Values] = {State.APP_PREFIX: {}, State.USER_PREFIX: {}, "": {}}
    for key, value in state.items():
        if key.startswith(State.TEMP_PREFIX):
            continue
        scope = next(prefix for prefix in scopes if key.startswith(prefix))
        scopes[scope][key.removeprefix(scope)] = to_jsonable_python(value, serialize_unknown=True)
    return Delta(scopes[State.APP_PREFIX], scopes[State.USER_PREFIX], scopes[""])


def merged(session: Values, app: Values, user: Values) -> Values:
    """Return the state as agents see it, with the prefixes of the scopes."""
    of_app = {State.APP_PREFIX + key: value for key, value in app.items()}
    return session | of_app | {State.USER_PREFIX + key: value for key, value in user.items()}
