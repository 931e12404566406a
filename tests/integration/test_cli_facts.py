"""Facts from the command line: every command in both forms, and errors that name what is wrong."""

from __future__ import annotations

import json
import uuid
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.cli import Cli, holds
from tests.support.known import make_known
from tests.support.process import ServerProcess

from noosphere.client import Candidate, FactEvidence
from noosphere.client.sync import connect
from noosphere.server.cli import facts_shapes as shapes

METRIC: dict[str, Any] = {
    "text": "Anna prefers metric units",
    "subject": "Anna",
    "predicate": "units",
    "object": "metric",
    "trust": 0.5,
    "evidence": [{"reference": "msg:s9/17", "quote": "metric, please", "content_hash": "ab" * 32}],
    "valid_from": "2026-05-01T12:00:00.000Z",
    "pinned": True,
}
CAT: dict[str, Any] = {"text": "Anna owns a cat", "trust": 0.5}
POOR: dict[str, Any] = {"text": "Anna owns a castle", "trust": 0.1}


@pytest.fixture
def cli(binary: ServerProcess) -> Cli:
    return Cli(binary.address)


@pytest.fixture
def user() -> str:
    return f"user/{uuid.uuid4().hex[:12]}"


def imported(cli: Cli, user: str, *documents: dict[str, Any]) -> Any:
    """Imports facts; returns what became of them."""
    lines = "".join(json.dumps({"owner": user, **document}) + "\n" for document in documents)
    document = cli.ok("facts", "import", "-", "--json", stdin=lines.encode()).json
    holds(shapes.ImportedShape, document)
    return document


@pytest.fixture
def filled(binary: ServerProcess, user: str) -> str:
    """What an import of METRIC, CAT and POOR leaves, without a process for it."""
    common: dict[str, Any] = {"owner": user, "said_by": "internal", "producer": "import/1"}
    (source,) = METRIC["evidence"]
    evidence = FactEvidence(source["reference"], source["quote"], bytes.fromhex(source["content_hash"]))
    metric = Candidate(
        METRIC["text"],
        subject=METRIC["subject"],
        predicate=METRIC["predicate"],
        object=METRIC["object"],
        evidence=[evidence],
        claimed_trust=METRIC["trust"],
        valid_from=datetime.fromisoformat(METRIC["valid_from"]),
        pinned=METRIC["pinned"],
        **common,
    )
    others = [Candidate(one["text"], claimed_trust=one["trust"], **common) for one in (CAT, POOR)]
    assert make_known(binary.address, [metric, *others]) == ["written", "written", "rejected"]
    return user


def fact_of(cli: Cli, user: str, text: str) -> Any:
    (found,) = [one for one in cli.ok("facts", "list", user, "--json").json_lines if one["text"] == text]
    return found


def test_what_is_known_is_found_and_listed(cli: Cli, filled: str) -> None:
    found, listed, of_others, nothing = cli.run_all(
        ["facts", "search", "which units?", "--owner", filled, "--json"],
        ["facts", "list", filled, "--json"],
        ["facts", "list", filled, "--owner", "user/nobody", "--json"],
        ["facts", "search", "units", "--owner", filled, "--predicate", "colour"],
    )
    holds(shapes.FactSearchShape, found.json)
    assert found.json["hits"][0]["fact"]["text"] == METRIC["text"]
    for document in listed.json_lines:
        holds(shapes.FactShape, document)
    assert {document["text"] for document in listed.json_lines} == {METRIC["text"], CAT["text"]}
    assert (of_others.text, nothing.text) == ("", "nothing found\n")


def test_people_see_tables(cli: Cli, filled: str) -> None:
    fact = fact_of(cli, filled, METRIC["text"])["id"]
    found, listed, shown, history = cli.run_all(
        ["facts", "search", "which units?", "--owner", filled, "--limit", "1"],
        ["facts", "list", filled],
        ["facts", "show", fact],
        ["facts", "history", fact],
    )
    assert found.lines[0].split() == ["RANK", "RELEVANCE", "TRUST", "VERSION", "FACT", "TEXT", "WHY"]
    assert found.lines[1].split()[2:5] == ["0.50", "v1", fact]
    assert "keywords +" in found.lines[1]
    assert [line.split()[3] for line in listed.lines] == ["STANDS", "current", "current"]
    fields = dict(line.split("  ", 1) for line in shown.lines[:13])
    assert fields["text"].strip() == METRIC["text"]
    assert fields["says"].strip().endswith('= "metric"')
    assert fields["stands"].strip() == "current, in the profile"
    assert fields["so since"].strip() == METRIC["valid_from"]
    assert shown.lines[-1].split() == ["msg:s9/17", "ab" * 6, "metric,", "please"]
    assert history.lines[1].split()[1:4] == [METRIC["valid_from"], fact, "v1"]


def test_a_fact_has_a_path_and_so_has_what_is_none(cli: Cli, filled: str) -> None:
    fact = fact_of(cli, filled, METRIC["text"])["id"]
    (refused,) = cli.ok("facts", "candidates", filled, "--status", "rejected", "--json").json_lines
    holds(shapes.CandidateShape, refused)
    path, none, plain, plain_none = cli.run_all(
        ["facts", "why", fact, "--query", "which units?", "--json"],
        ["facts", "why", refused["id"], "--json"],
        ["facts", "why", fact, "--query", "which units?"],
        ["facts", "why", refused["id"]],
    )
    for done in (path, none):
        holds(shapes.FactPathShape, done.json)
    assert (path.json["fact"]["id"], path.json["rank"]) == (fact, 1)
    assert path.json["fact"]["evidence"][0]["reference"] == "msg:s9/17"
    (candidate,) = path.json["candidates"]
    assert candidate["decision"]["fact"] == fact
    assert (none.json["fact"], none.json["candidates"]) == (None, [refused])
    assert f"became      written, {fact} v1" in plain.lines
    assert plain.lines[-1].startswith("for 'which units?': rank 1, relevance ")
    assert "low_trust" in plain_none.lines[-1]
    followed = cli.ok("facts", "why", candidate["id"])
    assert followed.lines[0].split() == ["fact", f"{fact},", "version", "1"]


def test_candidates_say_why(cli: Cli, filled: str) -> None:
    every, last, refused = cli.run_all(
        ["facts", "candidates", filled],
        ["facts", "candidates", filled, "--last", "1", "--json"],
        ["facts", "candidates", filled, "--status", "rejected"],
    )
    assert every.lines[0].split() == ["DECIDED", "STATUS", "CANDIDATE", "TRUST", "TEXT", "WHY"]
    assert len(every.lines) == 4
    assert len(last.json_lines) == 1
    assert "0.1" in refused.lines[1].partition(POOR["text"])[2]


def test_an_operator_reviews(cli: Cli, filled: str) -> None:
    (refused,) = cli.ok("facts", "candidates", filled, "--status", "rejected", "--json").json_lines
    denied = cli.run("facts", "review", refused["id"], "accept", "--agent", "planner-0")
    assert (denied.code, denied.error.split(":")[0]) == (1, "PERMISSION_DENIED")
    done = cli.ok("facts", "review", refused["id"], "reject", "--json").json
    holds(shapes.FactDecisionShape, done)
    assert (done["status"], done["reasons"][-1]["step"]) == ("rejected", "review")
    again = cli.ok("facts", "review", refused["id"], "reject")
    assert again.lines[0] == "rejected"


def test_a_policy_is_shown_and_changed(cli: Cli, user: str, tmp_path: Path) -> None:
    default = cli.ok("facts", "policy", user, "--json").json
    holds(shapes.FactPolicyShape, default)
    assert (default["trust_min"], default["single_valued"]) == (0.5, [])
    change = {"single_valued": ["mood"], "trust_min": 0.25, "ttl": {"working": 3600}, "aliases": {"乌班图": "Ubuntu"}}
    changed = cli.ok("facts", "policy", user, "--set", json.dumps(change), "--json").json
    assert changed == {**default, **change}
    rules = tmp_path / "rules.json"
    rules.write_text('{"trust_min": null, "conflict_rule": "keep_both"}')
    again = cli.ok("facts", "policy", user, "--set", f"@{rules}")
    fields = dict(line.split("  ", 1) for line in again.lines)
    assert fields["gate"].strip() == "importance 0.6, confidence 0.7, trust 0.5"
    assert (fields["contradictions"].strip(), fields["single valued"].strip()) == ("keep both", "mood")
    assert (fields["lives for"].strip(), fields["aliases"].strip()) == ("working 1 h", "乌班图 → Ubuntu")


def test_upkeep_is_shown_planned_and_run(cli: Cli, filled: str) -> None:
    planned, ran = cli.run_all(
        ["facts", "upkeep", filled, "--dry-run", "--json"], ["facts", "upkeep", filled, "--run", "--json"]
    )
    for done, dry_run in ((planned, True), (ran, False)):
        holds(shapes.UpkeepRunShape, done.json)
        assert (done.json["looked_at"], done.json["dry_run"]) == (2, dry_run)
    kept, plain = cli.run_all(["facts", "upkeep", filled, "--json"], ["facts", "upkeep", filled])
    holds(shapes.FactUpkeepShape, kept.json)
    assert [one["scope"] for one in kept.json["rounds"]] == [filled]
    assert plain.lines[0].split() == ["SCOPE", "ENDED", "FACTS", "CHANGED", "FAILURE"]


def test_extraction_is_waited_for_or_looked_up(cli: Cli, user: str, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text("My name is Anna. I live in Oslo.")
    done = cli.ok("facts", "extract", "--owner", user, "--document", str(page), "--json").json
    holds(shapes.ExtractionShape, done)
    assert (done["state"], done["failure"]) == ("done", None)
    looked_up, begun = cli.run_all(
        ["facts", "job", done["id"], "--json"],
        ["facts", "extract", "--owner", user, "--document", str(page), "--document-id", "p2", "--no-wait"],
    )
    assert looked_up.json == done
    assert begun.lines[0].split()[0] == "job"
    for candidate in cli.ok("facts", "candidates", user, "--json").json_lines:
        assert candidate["trust"] == 0


def test_what_an_extraction_found_is_told_with_its_fate(cli: Cli, user: str) -> None:
    name = uuid.uuid4().hex
    with connect(cli.server, agent="guide") as guide, guide.session(name) as session:
        session.append({"role": "user", "content": "I live in Oslo. I like tea."})
    told = cli.ok("facts", "extract", "--owner", user, "--session", name).lines
    heading = told.index("") + 1
    assert told[heading].split() == ["DECIDED", "STATUS", "CANDIDATE", "TRUST", "TEXT", "WHY"]
    rows = told[heading + 1 :]
    assert [row.split()[1] for row in rows] == ["written", "written"]
    texts = {row.partition(" 0.50 ")[2].partition(".")[0].strip() for row in rows}
    assert texts == {"The user likes tea", "The user lives in Oslo"}


# Exchange.


def test_an_export_is_imported_elsewhere(cli: Cli, filled: str, user: str, tmp_path: Path) -> None:
    plain, flagged = cli.run_all(["facts", "export", filled], ["facts", "export", filled, "--json"])
    assert plain.out == flagged.out
    for document in plain.json_lines:
        holds(shapes.FactShape, document)
    file = tmp_path / "facts.jsonl"
    file.write_bytes(plain.out)
    other = f"{filled}-2"
    assert cli.ok("facts", "import", str(file), "--owner", other).text == "2 read: 2 written\n"
    kept = ("text", "subject", "predicate", "object", "memory_type", "trust", "importance", "valid_from", "pinned")
    before, after = (
        sorted(([one[name] for name in kept] for one in cli.ok("facts", "export", scope).json_lines), key=str)
        for scope in (filled, other)
    )
    assert before == after
    moved = fact_of(cli, other, METRIC["text"])
    assert (moved["owner"], moved["scope"]) == (other, other)
    assert moved["evidence"] == fact_of(cli, filled, METRIC["text"])["evidence"]


def test_a_file_may_be_imported_again(cli: Cli, user: str) -> None:
    """Each fact has one source however often it comes, so it does not become surer."""
    assert imported(cli, user, METRIC, CAT, POOR)["statuses"] == {"written": 2, "rejected": 1}
    before = cli.ok("facts", "export", user).json_lines
    assert imported(cli, user, METRIC, CAT)["statuses"] == {"merged": 2}
    after = cli.ok("facts", "export", user).json_lines
    for one in ("source_count", "confidence", "trust"):
        assert [document[one] for document in before] == [document[one] for document in after]


def test_what_was_superseded_is_not_imported(cli: Cli, user: str) -> None:
    slot = {"subject": "Anna", "predicate": "mood", "trust": 0.5}
    cli.ok("facts", "policy", user, "--set", '{"single_valued": ["mood"]}')
    imported(cli, user, {"text": "Anna is glad", "object": "glad", "valid_from": "2026-05-01T12:00Z", **slot})
    second = {"text": "Anna is sad", "object": "sad", "valid_from": "2026-05-02T12:00Z", **slot}
    assert imported(cli, user, second)["statuses"] == {"superseded": 1}
    current, every = cli.run_all(["facts", "export", user], ["facts", "export", user, "--superseded"])
    assert [one["text"] for one in current.json_lines] == ["Anna is sad"]
    assert sorted(one["text"] for one in every.json_lines) == ["Anna is glad", "Anna is sad"]
    done = cli.ok("facts", "import", "-", "--owner", f"{user}-2", stdin=every.out)
    assert done.text == "2 read: 1 written, 1 skipped\n"
    shown = cli.ok("facts", "search", "Anna mood", "--owner", user, "--superseded")
    assert "superseded by " in shown.text


def test_only_an_operator_imports(cli: Cli, user: str) -> None:
    line = json.dumps({"owner": user, **CAT}).encode()
    denied = cli.run("facts", "import", "-", "--agent", "planner-0", stdin=line)
    assert (denied.code, denied.error.split(":")[0]) == (1, "TRUST_DENIED")
    assert cli.ok("facts", "candidates", user).text == "no candidates\n"


def test_a_line_that_is_none_stops_an_import_before_it_begins(cli: Cli, user: str) -> None:
    good = json.dumps({"owner": user, **CAT})
    failed = cli.run("facts", "import", "-", stdin=f"{good}\n\n[]\n".encode())
    assert (failed.code, failed.error) == (2, "-:3: is not a JSON object")
    assert cli.ok("facts", "candidates", user).text == "no candidates\n"


@pytest.mark.parametrize(
    ("arguments", "reason", "said"),
    [
        (["search", "units", "--owner", "nobody"], "INVALID_FIELD", "'nobody' is not agent/<id>"),
        (["show", "{}#abc"], "INVALID_FIELD", "24 hexadecimal digits"),
        (["show", "{}#000000000000000000000000"], "ENTRY_NOT_FOUND", "{}#"),
        (["why", "{}#c000000000000000000000000"], "ENTRY_NOT_FOUND", "no candidate"),
        (["history", "{}#000000000000000000000000"], "ENTRY_NOT_FOUND", "{}#"),
        (["extract", "--owner", "{}", "--session", "no-such-session"], "SESSION_NOT_FOUND", "no-such-session"),
        (["policy", "{}", "--set", '{{"trust_min": 2}}'], "INVALID_FIELD", "trust_min"),
        (["policy", "{}", "--set", '{{"writers": "a"}}'], "INVALID_FIELD", "policy.writers: 'a' is str"),
    ],
    ids=lambda value: "-".join(value[:2]).replace("{}", "user") if isinstance(value, list) else "",
)
def test_an_error_names_what_is_wrong(cli: Cli, user: str, arguments: list[str], reason: str, said: str) -> None:
    failed = cli.run("facts", *(argument.format(user) for argument in arguments), "--json").json_error
    assert failed["reason"] == reason
    assert said.format(user) in failed["message"]
