"""The public contract of artifacts on our own backends."""

from __future__ import annotations

from lash.testing.contract.artifact import ArtifactContract


class TestArtifact(ArtifactContract):
    """On each backend."""
