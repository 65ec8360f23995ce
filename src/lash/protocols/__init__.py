"""Protocols: how other programs reach agents and storages, each an optional module."""
