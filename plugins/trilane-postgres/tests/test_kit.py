"""The plugin passes the conformance kit for plugins."""

from __future__ import annotations

from trilane.testing import assert_plugin


def test_the_plugin_conforms() -> None:
    assert_plugin("postgres")
