"""Agents: a model, tools, and the loop between them; every call is an ordinary recorded step.

The adapters for providers are in modules of their own: `lash.agents.openai` and `lash.agents.anthropic`.
`lash.agents.mcp` has the tools of MCP servers.
"""

from lash.agents.agent import Agent as Agent
from lash.agents.approvals import Approval as Approval
from lash.agents.approvals import ApprovalRequest as ApprovalRequest
from lash.agents.approvals import PendingApproval as PendingApproval
from lash.agents.approvals import decide as decide
from lash.agents.approvals import pending_approvals as pending_approvals
from lash.agents.budget import Budget as Budget
from lash.agents.budget import Price as Price
from lash.agents.context import Context as Context
from lash.agents.errors import LengthReached as LengthReached
from lash.agents.errors import ModelError as ModelError
from lash.agents.errors import ModelRefused as ModelRefused
from lash.agents.errors import ModelTimedOut as ModelTimedOut
from lash.agents.errors import ModelUnavailable as ModelUnavailable
from lash.agents.errors import OutputMismatch as OutputMismatch
from lash.agents.errors import RateLimited as RateLimited
from lash.agents.errors import RequestRefused as RequestRefused
from lash.agents.errors import ToolsUnavailable as ToolsUnavailable
from lash.agents.errors import TooManyRounds as TooManyRounds
from lash.agents.scripted import ScriptedModel as ScriptedModel
from lash.agents.scripted import call as call
from lash.agents.source import ToolSource as ToolSource
from lash.agents.tools import Tool as Tool
from lash.agents.tools import tool as tool
from lash.agents.vocabulary import Model as Model
from lash.agents.vocabulary import ModelReply as ModelReply
from lash.agents.vocabulary import ModelRequest as ModelRequest
from lash.agents.vocabulary import Piece as Piece
from lash.agents.vocabulary import Stop as Stop
from lash.agents.vocabulary import Thought as Thought
from lash.agents.vocabulary import ToolCall as ToolCall
from lash.agents.vocabulary import ToolSpec as ToolSpec
