"""The deliberate bugs still fit the sources, are told of in the page about them, and some of them are tried."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutants.__main__ import main
from tests.mutants.mutant import ROOT, Mutant, ours, read
from tests.mutants.running import Outcome, applies, run

MUTANTS_MIN = 25
SAMPLE = ("fence-not-checked", "half-tool-pair", "replay-overturns")
HARMLESS = """\
--- a/consistency/noosphere/consistency/clock.py
+++ b/consistency/noosphere/consistency/clock.py
@@ -1 +1,2 @@
+# Nothing is different.
 {first}
"""


@pytest.mark.parametrize("mutant", ours(), ids=lambda mutant: str(mutant.name))
def test_each_still_fits_the_sources_and_names_tests_that_are_there(mutant: Mutant) -> None:
    assert applies(mutant), "the source has changed: make the patch anew"
    assert mutant.about.endswith(".")
    paths = [argument for argument in mutant.tests if argument.startswith("tests/")]
    assert paths
    assert all((ROOT / path).exists() for path in paths), paths


def test_there_are_enough_and_the_page_names_each() -> None:
    page = (ROOT / "docs" / "robustness.md").read_text()
    assert len(ours()) >= MUTANTS_MIN
    assert [mutant.name for mutant in ours() if f"`{mutant.name}`" not in page] == []


def test_a_patch_of_elsewhere_is_tried_on_what_is_near_and_nonsense_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "mine.patch"
    patch.write_text("--- a/client/noosphere/client/_near.py\n+++ b/client/noosphere/client/_near.py\n")
    assert read(patch).tests == ("tests/unit", "tests/integration", "-k", "client")
    patch.write_text("+++ b/README.md\n")
    with pytest.raises(ValueError, match=r"README\.md"):
        read(patch)
    patch.write_text("no patch")
    with pytest.raises(ValueError, match="no unified diff"):
        read(patch)
    with pytest.raises(SystemExit):
        main(["--only", "no-such-bug"])


@pytest.mark.campaign
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_test_fails_for_a_deliberate_bug(name: str) -> None:
    (mutant,) = (mutant for mutant in ours() if mutant.name == name)
    verdict = run(mutant)
    assert verdict.outcome is Outcome.CAUGHT, verdict


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_patch_that_changes_nothing_survives(tmp_path: Path) -> None:
    first = (ROOT / "consistency/noosphere/consistency/clock.py").read_text().splitlines()[0]
    patch = tmp_path / "harmless.patch"
    patch.write_text("Tests: tests/unit/consistency/test_clock.py\n" + HARMLESS.format(first=first))
    assert run(read(patch)).outcome is Outcome.SURVIVED
    assert main(["--patch", str(patch)]) == 1


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_patch_whose_tests_do_not_run_proves_nothing(tmp_path: Path) -> None:
    first = (ROOT / "consistency/noosphere/consistency/clock.py").read_text().splitlines()[0]
    patch = tmp_path / "harmless.patch"
    patch.write_text("Tests: tests/unit/consistency/test_clock.py -k nothing_at_all\n" + HARMLESS.format(first=first))
    assert run(read(patch)).outcome is Outcome.UNTESTED


@pytest.mark.campaign
@pytest.mark.timeout(900)
def test_a_patch_that_cannot_be_imported_proves_nothing(tmp_path: Path) -> None:
    first = (ROOT / "consistency/noosphere/consistency/clock.py").read_text().splitlines()[0]
    broken = HARMLESS.replace("# Nothing is different.", "this is no Python")
    patch = tmp_path / "broken.patch"
    patch.write_text("Tests: tests/unit/consistency/test_clock.py\n" + broken.format(first=first))
    verdict = run(read(patch))
    assert verdict.outcome is Outcome.UNTESTED
    assert "SyntaxError" in verdict.output
