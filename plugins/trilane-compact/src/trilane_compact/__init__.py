"""Compaction of long conversations for Trilane agents: `Agent(plugins=[compact()])`."""

from __future__ import annotations

from .marks import pinned
from .plugin import CompactPlugin, compact

__all__ = ["CompactPlugin", "compact", "pinned"]
