"""The one plugin that a server registers passes the conformance kit for plugins."""

from __future__ import annotations

import json

from trilane.testing import assert_plugin
from trilane_web.lanes import LaneTap


def test_the_plugin_conforms() -> None:
    shown: list[str] = []

    def show(session: str, run_id: str, name: str, data: object) -> None:
        shown.append(json.dumps([session, run_id, name, data]))

    assert_plugin(lambda: LaneTap(show), backends=["asyncio"], import_seconds=2)  # a busy machine is no fault of it
    assert shown
