"""The suite that every provider adapter runs."""

from __future__ import annotations

from typing import Any

import pytest

from trilane.models import Model
from trilane.testing.providers import ProviderConformance
from trilane.testing.wire import WireServer
from trilane_openai import OpenAIModel


@pytest.mark.anyio
class TestConformance(ProviderConformance):
    format = "openai-chat"

    def make(self, server: WireServer, **settings: Any) -> Model:
        return OpenAIModel("wire-model", base_url=server.openai_url, preset="openai", api_key=self.key, **settings)
