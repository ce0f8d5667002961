"""The plugin passes the conformance kit for plugins."""

from __future__ import annotations

from trilane.testing import assert_plugin
from trilane_compact import CompactPlugin


def test_the_plugin_conforms() -> None:
    assert_plugin("compact")


def test_the_plugin_conforms_where_it_compacts_whenever_it_can() -> None:
    # The model of the kit answers whatever it is asked, a summary too.
    assert_plugin(lambda: CompactPlugin(context_tokens=1), backends=["trio"], without=["import", "blocking", "residue"])
