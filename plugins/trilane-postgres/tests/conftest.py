"""Every async test runs on both backends, against a real server that lives as long as the tests."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trilane_postgres import PostgresStore
from trilane_postgres.testing import TemporaryServer, find_programs

SERVER = "PostgreSQL"

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def server() -> Iterator[TemporaryServer]:
    if not find_programs():
        pytest.skip(f"not installed: {SERVER}")
    with TemporaryServer() as running:
        yield running


@pytest.fixture
def dsn(server: TemporaryServer) -> str:
    """A schema of its own for each test."""
    return f"{server.dsn}&schema=test_{next(_numbers)}"


@pytest.fixture
def make(dsn: str) -> Iterator[Callable[..., PostgresStore]]:
    """Makes stores over the schema of the test."""
    made: list[PostgresStore] = []

    def store(address: str = dsn, **options: object) -> PostgresStore:
        made.append(PostgresStore(address, **options))  # type: ignore[arg-type]
        return made[-1]

    yield store
    for one in made:
        one.close()


@pytest.fixture
def store(make: Callable[..., PostgresStore]) -> PostgresStore:
    return make()


@pytest.fixture
def other(make: Callable[..., PostgresStore]) -> PostgresStore:
    """A second user of the same data."""
    return make()


@pytest.fixture
def sql(server: TemporaryServer, dsn: str, store: PostgresStore) -> Callable[..., list[Any]]:
    """Executes a statement in the schema of the test, past the store."""
    import psycopg

    def execute(statement: str, *values: object) -> list[Any]:
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {dsn.rpartition('=')[2]}")
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    return execute
