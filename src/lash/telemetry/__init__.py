"""OpenTelemetry for turns, processes and steps; needs the extra ``otel``."""

from lash.telemetry.otel import OpenTelemetryHook

__all__ = ["OpenTelemetryHook"]
