"""Which drivers a configuration makes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from pydantic import SecretStr
from tests.support.endpoint import answering, completion, open_endpoint

from noosphere.server.config import ConfigError, Settings
from noosphere.server.models import ExtractiveSummariser, build
from noosphere.server.ports.models import SourceMessage, SummariserError

TALK = [SourceMessage("user", "kim", "Please build the importer.")]


async def test_by_default_no_model_is_needed() -> None:
    models = build(Settings())
    assert models.summariser is models.fallback
    summary = await models.summariser.summarise(None, TALK, 100, models.tokenizers.named("o200k_base"))
    assert summary.goals == ("Please build the importer.",)
    await models.aclose()


def test_a_server_without_a_model_does_not_import_its_package() -> None:
    program = (
        "import sys; from noosphere.server.config import Settings; from noosphere.server.models import build; "
        "build(Settings()); print({'openai', 'httpx2'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


async def test_an_endpoint_is_used_as_configured() -> None:
    answer = {"goals": ["G"], "decisions": [], "open_questions": [], "entities": [], "narrative": "N"}
    async with open_endpoint(answering(completion(json.dumps(answer)))) as endpoint:
        settings = Settings(
            summariser="openai",
            summariser_url=endpoint.url,
            summariser_model="tiny",
            summariser_key=SecretStr("sk-1"),
            summariser_hourly_calls_max=1,
            summariser_json_schema=False,
        )
        models = build(settings)
        tokenizer = models.tokenizers.named("o200k_base")
        assert models.summariser.name == "tiny"
        assert isinstance(models.fallback, ExtractiveSummariser)
        assert (await models.summariser.summarise(None, TALK, 100, tokenizer)).narrative == "N"
        with pytest.raises(SummariserError, match="budget is spent: 1 calls"):
            await models.summariser.summarise(None, TALK, 100, tokenizer)
        await models.aclose()
    assert endpoint.asked[0].headers["authorization"] == "Bearer sk-1"
    assert "response_format" not in endpoint.asked[0].body


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match="'openai' needs the extra `models` of noosphere"):
        build(Settings(summariser="openai", summariser_model="tiny"))
