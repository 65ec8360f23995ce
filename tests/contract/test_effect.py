"""The public contract of effects on our own backends."""

from __future__ import annotations

from lash.testing.contract.effect import EffectContract
from lash.testing.contract.effect_claim import EffectClaimContract, EffectOnceContract
from lash.testing.contract.effect_fence import EffectFenceContract
from lash.testing.contract.effect_group import EffectGroupContract
from lash.testing.contract.effect_life import EffectLifeContract


class TestEffect(EffectContract):
    """On each backend."""


class TestEffectFence(EffectFenceContract):
    """On each backend."""


class TestEffectClaim(EffectClaimContract):
    """On each backend."""


class TestEffectOnce(EffectOnceContract):
    """On each backend."""


class TestEffectGroup(EffectGroupContract):
    """On each backend."""


class TestEffectLife(EffectLifeContract):
    """On each backend."""
