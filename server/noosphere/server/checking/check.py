"""Runs every checker on a history."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from .branches import branches_of, check_told
from .figures import count_figures
from .history import Call, History
from .reader import read_history
from .registers import Coverage, check_registers
from .revisions import check_revisions
from .search import STEPS_MAX
from .tallies import check_tallies
from .timeline import Timeline
from .verdict import Findings, Verdict


def check_history(path: Path | str, steps_max: int = STEPS_MAX) -> Verdict:
    """Reads a history and judges it.

    Args:
        path: the file.
        steps_max: bound of the register checker's search for each group of keys.

    Raises:
        HistoryError: the file is no readable history.
    """
    return check_calls(read_history(path), steps_max)


def check_calls(history: History, steps_max: int = STEPS_MAX) -> Verdict:
    """Judges a history that is in memory."""
    by_namespace: dict[str, list[Call]] = defaultdict(list)
    for call in history.calls:
        by_namespace[call.namespace].append(call)
    header = history.header
    found: list[Findings] = []
    timelines: list[Timeline] = []
    coverage: list[Coverage] = []
    notes = [f"the journal of {process} ends in a torn line" for process in header.torn]
    for namespace, calls in sorted(by_namespace.items()):
        complete = namespace in header.complete
        if not complete:
            notes.append(f"{namespace} may have had other writers: only its revisions, heads and times were checked")
        cuts = header.cuts.get(namespace, ())
        found.append(check_told(namespace, calls, cuts))
        for branch in branches_of(calls, cuts):
            findings, timeline = check_revisions(namespace, branch.calls, complete)
            found.append(findings)
            if branch.epoch:
                notes.append(f"{namespace} has lost {branch.lost} commits before epoch {branch.epoch}, judged apart")
            if not complete:
                continue
            findings, covered = check_registers(namespace, branch.calls, steps_max)
            found.append(findings)
            findings, tallied = check_tallies(namespace, branch.calls)
            found.append(findings)
            if not branch.epoch:
                left = {key: reason for key, reason in covered.uncovered.items() if key not in tallied}
                timelines.append(timeline)
                coverage.append(Coverage(covered.registers, left))
    figures = count_figures(history.calls, timelines, found, coverage)
    for reason, count in figures.uncovered.items():
        notes.append(f"{count} keys were checked by revisions only: {reason}")
    return Verdict(
        violations=tuple(violation for findings in found for violation in findings.violations),
        undecided=tuple(text for findings in found for text in findings.undecided),
        notes=tuple(notes),
        figures=figures,
    )
