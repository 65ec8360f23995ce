"""Programs in sandboxed Python, as a model writes them: durable processes, and a tool for agents.

The sandbox is pydantic-monty, of the extra ``code``. It has no access to files, the network or the environment: a
program reaches only the functions that it is given.
"""

from lash.code.engine import CodeEngine as CodeEngine
from lash.code.engine import CodeProcess as CodeProcess
from lash.code.limits import CodeLimits as CodeLimits
from lash.code.sandbox import SandboxCrashed as SandboxCrashed
from lash.code.tool import run_code as run_code
