"""The conformance suite for session stores, with two stores over one schema."""

from __future__ import annotations

import pytest

from trilane.sessions import (
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
from trilane_postgres import PostgresStore

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("name", CHECKS)
async def test_conformance(store: PostgresStore, other: PostgresStore, name: str) -> None:
    await CHECKS[name](store, other)


def test_it_has_every_capability_but_backups(store: PostgresStore) -> None:
    for capability in (CanCheck, CanDelete, CanFork, CanKeepBlobs, CanList, CanRename, CanSearch, CanSkip):
        assert isinstance(store, capability)
