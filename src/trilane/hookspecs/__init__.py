"""What can be hooked: the markers, the specification of every hook, and the catalogue that tools and docs read.

Who is active is in `plugins`; how hooks are called is in `_dispatch.py`.
"""

from __future__ import annotations

from .catalogue import HOOKS, HookInfo, HookMode
from .markers import Marks, hookimpl, hookspec
from .specs import HookSpecs

__all__ = ["HOOKS", "HookInfo", "HookMode", "HookSpecs", "Marks", "hookimpl", "hookspec"]
