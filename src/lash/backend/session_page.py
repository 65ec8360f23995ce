"""The queries of lists of sessions."""

from __future__ import annotations

from typing import Final

PAGES: Final = {
    "newest": "session_page_newest",
    "oldest": "session_page_oldest",
    "active_newest": "session_page_active_newest",
    "active_oldest": "session_page_active_oldest",
    "agent_newest": "session_page_agent_newest",
    "agent_oldest": "session_page_agent_oldest",
    "label_newest": "session_page_label_newest",
    "label_oldest": "session_page_label_oldest",
    "label_active": "session_page_label_active",
    "prefix": "session_page_prefix",
    "source": "session_page_source",
    "search": "session_page_search",
    "state": "session_page_state",
}
"""The query for each way of reading (`lash.plan.session.page.PreparedPage.way`)."""
