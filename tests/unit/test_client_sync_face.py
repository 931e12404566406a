"""The sync client has the async client's face: every name, every method, every parameter."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts.sync_source import attribute_docs

import noosphere.client as aio
import noosphere.client.sync as sync
from noosphere.client._claim import ClaimScope
from noosphere.client.sync import _generated

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = {("connect", "channel"), ("connect", "interceptors")}
SPECIAL = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__", "__anext__": "__next__"}


def is_asynchronous(kind: type) -> bool:
    members = inspect.getmembers(kind, inspect.isfunction)
    return any(inspect.iscoroutinefunction(function) for name, function in members if not name.startswith("_")) or any(
        hasattr(kind, name) for name in SPECIAL
    )


CLASSES: list[type] = [kind for name in aio.__all__ if inspect.isclass(kind := getattr(aio, name))]
TWINS: list[tuple[type, type]] = [
    (kind, getattr(sync, kind.__name__)) for kind in CLASSES if getattr(sync, kind.__name__) is not kind
] + [(ClaimScope, _generated.ClaimScope)]


def test_the_names_are_those_of_the_async_client_and_one_more() -> None:
    assert sync.__all__ == sorted([*aio.__all__, "ForkedClient"])
    assert not [name for name in sync.__all__ if not hasattr(sync, name)]


def test_the_generated_modules_are_those_of_the_present_async_client() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "scripts.gen_sync_client", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_whatever_is_asynchronous_has_a_twin() -> None:
    assert {kind for kind in CLASSES if is_asynchronous(kind)} <= {kind for kind, _ in TWINS}
    assert {"Client", "Namespace", "Key", "Record", "Board", "Claim", "Watch"} <= {twin.__name__ for _, twin in TWINS}


def test_exceptions_are_the_same_classes() -> None:
    errors = [kind for kind in CLASSES if issubclass(kind, BaseException)]
    assert len(errors) > 20
    assert [kind for kind in errors if getattr(sync, kind.__name__) is not kind] == []
    assert issubclass(sync.ForkedClient, aio.NoosphereError)


def members(kind: type) -> Iterator[tuple[str, Any]]:
    for name in dir(kind):
        if (not name.startswith("_") and name not in ("count", "index")) or name in SPECIAL:
            yield name, inspect.getattr_static(kind, name)


@pytest.mark.parametrize(("kind", "twin"), TWINS, ids=lambda kind: kind.__qualname__)
def test_a_twin_has_every_member_with_the_same_parameters(kind: type, twin: type) -> None:
    for name, member in members(kind):
        there = inspect.getattr_static(twin, SPECIAL.get(name, name), None)
        assert there is not None, name
        assert type(there) is type(member) or isinstance(there, property), name
        if inspect.isfunction(member):
            assert parameters(there) == parameters(member), name
            assert not inspect.iscoroutinefunction(there), name
            assert inspect.getdoc(there), name
    # And nothing of its own.
    documented = attribute_docs(inspect.getdoc(kind) or "")
    known = {SPECIAL.get(name, name) for name, _ in members(kind)} | set(fields(kind)) | set(documented)
    assert {name for name in dir(twin) if not name.startswith("_") and name not in ("count", "index")} <= known


@pytest.mark.parametrize(("kind", "twin"), TWINS, ids=lambda kind: kind.__qualname__)
def test_a_twin_has_the_same_fields_and_attributes(kind: type, twin: type) -> None:
    for name in fields(kind):
        assert hasattr(twin, name) or name in fields(twin), name
    for name in attribute_docs(inspect.getdoc(kind) or ""):
        assert hasattr(twin, name) or name in fields(twin), name
    if issubclass(twin, tuple) or dataclasses.is_dataclass(twin):
        assert fields(twin) == fields(kind)
        assert parameters(twin.__init__) == parameters(kind.__init__)  # type: ignore[misc] # of plain data


def fields(kind: type) -> list[str]:
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind) if not field.name.startswith("_")]
    return list(getattr(kind, "_fields", ()))


def parameters(function: Any) -> list[tuple[str, object, object]]:
    return [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]


def test_functions_have_the_same_parameters() -> None:
    wanted = [p for p in parameters(aio.connect) if ("connect", p[0]) not in LEFT_OUT]
    assert parameters(sync.connect) == wanted
    assert sync.new_request_id is aio.new_request_id


def test_annotations_can_be_evaluated() -> None:
    """For those who look at them at run time, as dependency injectors and documentation tools do."""
    for _, twin in TWINS:
        for name, member in vars(twin).items():
            if inspect.isfunction(member) and not name.startswith("_"):
                inspect.get_annotations(member, eval_str=True)


def test_the_sync_client_loads_only_what_the_async_one_does() -> None:
    program = (
        "import sys, noosphere.client\n"
        "before = set(sys.modules)\n"
        "import noosphere.client.sync\n"
        "print(*sorted(n for n in set(sys.modules) - before if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert all(name.startswith("noosphere.client.sync") for name in done.stdout.split())
