"""The conformance kit: `assert_plugin(MyPlugin)` as a test runs a plugin through everything a user may do to it.

What is checked is listed at `check_plugin`. Kits for the two wire formats of providers are in `trilane.testing.wire`.
"""

from __future__ import annotations

from .check import assert_plugin, check_plugin

__all__ = ["assert_plugin", "check_plugin"]
