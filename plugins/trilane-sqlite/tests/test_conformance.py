"""The conformance suite for session stores, with two stores over one file."""

from __future__ import annotations

import pytest

from trilane.sessions import (
    CanBackUp,
    CanCheck,
    CanDelete,
    CanFork,
    CanKeepBlobs,
    CanList,
    CanRename,
    CanSearch,
    CanSkip,
)
from trilane.testing.stores import CHECKS
from trilane_sqlite import SqliteStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_conformance(store: SqliteStore, other: SqliteStore, name: str) -> None:
    await CHECKS[name](store, other)


def test_it_has_every_capability(store: SqliteStore) -> None:
    for capability in (
        CanBackUp,
        CanCheck,
        CanDelete,
        CanFork,
        CanKeepBlobs,
        CanList,
        CanRename,
        CanSearch,
        CanSkip,
    ):
        assert isinstance(store, capability)
