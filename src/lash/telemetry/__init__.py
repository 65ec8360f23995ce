"""Telemetry: `OpenTelemetryHook`, which needs the extra ``otel``, and `PrometheusHook`, which needs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lash.telemetry.prometheus import PrometheusHook

if TYPE_CHECKING:
    from lash.telemetry.otel import OpenTelemetryHook

__all__ = ["OpenTelemetryHook", "PrometheusHook"]


def __getattr__(name: str) -> object:
    if name == "OpenTelemetryHook":
        from lash.telemetry.otel import OpenTelemetryHook

        return OpenTelemetryHook
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
