"""The suite that every provider adapter runs."""

from __future__ import annotations

from typing import Any

import pytest

from trilane.models import Model
from trilane.testing.providers import ProviderConformance
from trilane.testing.wire import WireServer
from trilane_anthropic import AnthropicModel


@pytest.mark.anyio
class TestConformance(ProviderConformance):
    format = "anthropic"

    def make(self, server: WireServer, **settings: Any) -> Model:
        return AnthropicModel("wire-model", base_url=server.url, api_key=self.key, **settings)
