"""From a syntax tree and a host to a module: names are resolved, and what the host must provide is recorded."""

from lash.lang.link.linker import LinkedModule as LinkedModule
from lash.lang.link.linker import link as link
