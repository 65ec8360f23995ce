"""The version of lash. It is here so that every layer can name it."""

from typing import Final

VERSION: Final = "0.1.0.dev0"
