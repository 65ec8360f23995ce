"""Names of ADK as ids and keys of lash."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from lash.adapters.names import short
from lash.base.limits import MAX_TEXT_LENGTH
from lash.model.value import JSONObject

SESSION_PREFIX: Final = "adk:"
ARTIFACTS_PREFIX: Final = "adk-artifacts:"
FRAMEWORK: Final = "adk"
APP_LABEL: Final = "adk.app"
USER_LABEL: Final = "adk.user"
ARTIFACTS_LABEL: Final = "adk.artifacts"
_ID_LENGTH: Final = 230
"""Ids have at most 255 characters, prefix included."""
_PART_LENGTH: Final = 80
"""Three parts and two slashes fit into a key."""


class SessionName(NamedTuple):
    """What names a session of ADK."""

    app_name: str
    user_id: str
    session_id: str

    @classmethod
    def of(cls, app_name: str, user_id: str, session_id: str | None) -> Self:
        """Return the name for an id as callers give it: without spaces around it; None names no session."""
        return cls(app_name, user_id, (session_id or "").strip())

    @property
    def shown(self) -> str:
        """The name of its lash session."""
        return short(self.session_id, MAX_TEXT_LENGTH)

    @property
    def lash_id(self) -> str:
        """The id of its lash session."""
        return SESSION_PREFIX + short(_joined(self), _ID_LENGTH)

    @property
    def owner(self) -> str | None:
        """The owner of its lash session: the user, if its id can be one."""
        return self.user_id if self.user_id.strip() and short(self.user_id, _ID_LENGTH) == self.user_id else None

    @property
    def labels(self) -> dict[str, str]:
        """The labels by which lists find the session."""
        return {"framework": FRAMEWORK, **user_label(self.app_name, self.user_id), **app_label(self.app_name)}

    @property
    def metadata(self) -> JSONObject:
        """The metadata of its lash session: the names, which the id may have only as a hash."""
        return {"app_name": self.app_name, "user_id": self.user_id, "session_id": self.session_id}


def app_label(app_name: str) -> dict[str, str]:
    """Return the label of all sessions of an app."""
    return {APP_LABEL: short(app_name, _ID_LENGTH)}


def user_label(app_name: str, user_id: str) -> dict[str, str]:
    """Return the label of all sessions of a user of an app."""
    return {USER_LABEL: short(_joined((app_name, user_id)), _ID_LENGTH)}


def artifacts_label(app_name: str, user_id: str) -> dict[str, str]:
    """Return the label of all lash sessions that hold artifacts of a user of an app."""
    return {ARTIFACTS_LABEL: short(_joined((app_name, user_id)), _ID_LENGTH)}


def artifacts_id(app_name: str, user_id: str, session_id: str | None) -> str:
    """Return the id of the lash session that holds the artifacts of a session, or of a user."""
    parts = (app_name, user_id) if session_id is None else (app_name, user_id, session_id)
    return ARTIFACTS_PREFIX + short(_joined(parts), _ID_LENGTH)


def key_prefix(*parts: str) -> str:
    """Return the start of the keys of an app, or of a user of an app; one or two parts."""
    return "".join(f"{short(_escaped(part), _PART_LENGTH)}/" for part in parts)


def key_part(text: str) -> str:
    """Return the last part of a key."""
    return short(_escaped(text), _PART_LENGTH)


def _joined(parts: tuple[str, ...]) -> str:
    return "/".join(_escaped(part) for part in parts)


def _escaped(part: str) -> str:
    return part.replace("%", "%25").replace("/", "%2F")
