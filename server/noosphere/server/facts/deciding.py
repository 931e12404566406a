"""Steps 1, 2 and 4 to 7 of the pipeline, on what was read: what becomes of a candidate, and why. Nothing here waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from noosphere.consistency import NEVER_MS

from ..ports.factstore import FactContent
from .conflicts import settle, trust_class
from .drafting import Draft
from .ledger import FactNote
from .likeness import Likeness
from .near import Near
from .policies import may_submit
from .sanitise import findings
from .types import BECAME_FACT, Candidate, Claim, Contender, Decision, FactState, Policy, Status, Why


class Case(NamedTuple):
    """A candidate with everything that was read for it; ``values`` are those of the facts in its slot, by id."""

    candidate: Candidate
    claim: Claim
    policy: Policy
    vector: Sequence[float] | None
    near: tuple[Near, ...]
    notes: Mapping[str, FactNote]
    contents: Mapping[str, FactContent]
    holder: FactNote | None
    slot: tuple[FactNote, ...]
    values: Mapping[str, str]
    now_ms: int


def words_apart(candidate: Candidate, decision: Decision) -> bool:
    """Tells whether a candidate's words would be lost otherwise."""
    return decision.status not in BECAME_FACT or any(why.reason == "near_duplicate" for why in decision.reasons)


def screened(candidate: Candidate, policy: Policy, now_ms: int) -> Decision | None:
    """Does steps 1 and 2; returns what ends there."""
    reasons: list[Why] = []
    if candidate.agent and not may_submit(policy, candidate.agent):
        reasons.append(Why("validate", "writer_not_allowed", "The scope's policy does not let this agent submit."))
    if policy.memory_types and candidate.memory_type not in policy.memory_types:
        allowed = ", ".join(policy.memory_types)
        reasons.append(Why("validate", "type_not_allowed", f"The scope's policy takes {allowed} only."))
    if candidate.expires_at_ms <= now_ms:
        reasons.append(Why("validate", "expired", "It had ended before it was decided about."))
    if reasons:
        return Decision(candidate.id, Status.REJECTED, tuple(reasons))
    if candidate.reviewed_by:
        return None
    said = "\n".join(filter(None, (candidate.text, candidate.subject, candidate.predicate, candidate.object)))
    quoted = [evidence.quote for evidence in candidate.evidence if evidence.quote]
    found = dict.fromkeys(finding for text in (said, *quoted) for finding in findings(text, trust=candidate.trust))
    if found:
        whys = tuple(Why("sanitise", finding.reason, finding.explanation) for finding in found)
        return Decision(candidate.id, Status.QUARANTINED, whys)
    return None


def decided(draft: Draft, case: Case) -> Decision:
    """Does steps 4 to 7 on what was read."""
    candidate, holder = case.candidate, case.holder
    if holder is not None and holder.id in case.contents and holder.expires_at_ms > case.now_ms:
        if holder.state is FactState.CURRENT:
            return _merged(draft, case, holder, Why("deduplicate", "duplicate", "It is known in these words."))
        if candidate.valid_from_ms < holder.newest.valid_to_ms:
            return _merged(
                draft, case, holder, Why("deduplicate", "known_history", "It was so, and what came after it is known.")
            )
    for one in case.near:
        if one.likeness is Likeness.SAME:
            why = Why("deduplicate", "near_duplicate", "It is known in other words, which stay.")
            return _merged(draft, case, case.notes[one.fact_id], why)
    outcome = settle(
        Contender(candidate.id, case.claim.value, candidate.trust, candidate.valid_from_ms, _now(case)),
        [_contender(case, note) for note in case.slot],
        case.claim.cardinality,
        case.policy.conflict_rule,
    )
    reasons = [Why("resolve", outcome.reason, outcome.explanation)] if outcome.reason else []
    ttl_ms = min(
        (
            case.policy.ttl_ms[name]
            for name in (candidate.memory_type, candidate.sensitivity)
            if name in case.policy.ttl_ms
        ),
        default=None,
    )
    expires_at_ms = candidate.expires_at_ms
    if ttl_ms is not None:
        expires_at_ms = min(expires_at_ms, candidate.submitted_ms + ttl_ms)
        reasons.append(Why("retain", "ttl", f"It ends {ttl_ms / 1000:g} s after it was submitted."))
    if not candidate.reviewed_by and (gate := _gate(candidate, case.policy)):
        return Decision(candidate.id, Status.REJECTED, (*reasons, *gate))
    slot = {note.id: note for note in case.slot}
    contrary = [one.fact_id for one in case.near if one.likeness is Likeness.CONTRARY and one.fact_id not in slot]
    contested = tuple(dict.fromkeys((*outcome.contested, *contrary)))
    status = outcome.status
    if contrary and status is Status.WRITTEN:
        status = Status.CONTESTED
        reasons.append(Why("resolve", "contrary", "It says otherwise than what is known; which holds is not clear."))
    newer = case.notes.get(outcome.superseded_by)
    fact = draft.write_fact(
        case.claim,
        case.vector,
        expires_at_ms=expires_at_ms,
        superseded_by=outcome.superseded_by,
        contested=contested,
        valid_to_ms=NEVER_MS if newer is None else max(newer.newest.valid_from_ms, candidate.valid_from_ms),
    )
    for old in outcome.supersedes:
        draft.supersede(case.notes[old], case.contents[old], fact.id, candidate.valid_from_ms)
    for other in contested:
        if other not in outcome.supersedes:
            draft.contest(case.notes[other], fact.id)
    if case.claim.slot and not outcome.superseded_by:
        staying = [id for id in slot if id not in outcome.supersedes]
        draft.fill_slot(case.claim.slot, (*staying, fact.id))
    reasons.append(Why("write", status.value, "It is a fact now."))
    return Decision(candidate.id, status, tuple(reasons), fact.id, fact.newest.number, tuple(outcome.supersedes))


def _merged(draft: Draft, case: Case, note: FactNote, why: Why) -> Decision:
    candidate = case.candidate
    raises = bool(candidate.reviewed_by) or candidate.trust >= case.policy.trust_min
    reasons = [why]
    if not raises:
        reasons.append(Why("retain", "low_trust", "Its evidence is kept, and makes the fact no surer."))
    renews = raises and _renews(candidate, note)
    if renews:
        reasons.append(
            Why("resolve", "said_again", "Others contradict it, and it was said again: it is the newest now.")
        )
    merged = draft.merge(note, case.contents[note.id], raises=raises, renews=renews)
    return Decision(candidate.id, Status.MERGED, tuple(reasons), merged.id, merged.newest.number)


def _renews(candidate: Candidate, note: FactNote) -> bool:
    """Tells whether a fact that others contradict, which are shown by their time, was said again later."""
    contested = note.state is FactState.CURRENT and bool(note.contested_by)
    later = candidate.valid_from_ms > note.newest.valid_from_ms
    return contested and later and trust_class(candidate.trust) >= trust_class(note.trust)


def _gate(candidate: Candidate, policy: Policy) -> list[Why]:
    """Returns what keeps a candidate from being worth a fact."""
    found: list[Why] = []
    for name in ("importance", "confidence", "trust"):
        value, least = getattr(candidate, name), getattr(policy, f"{name}_min")
        if value < least:
            since = " (it names no evidence)" if name == "trust" and not candidate.evidence else ""
            found.append(
                Why("retain", f"low_{name}", f"Its {name} is {value:g}{since}, and the scope takes {least:g} or more.")
            )
    return found


def _now(case: Case) -> int:
    """Returns a time after everything in the slot was recorded, which may have been in this millisecond."""
    return max([case.now_ms, *(note.newest.recorded_ms + 1 for note in case.slot)])


def _contender(case: Case, note: FactNote) -> Contender:
    """Returns a known fact as it takes part in a conflict; its words say its value."""
    return Contender(note.id, case.values[note.id], note.trust, note.newest.valid_from_ms, note.newest.recorded_ms)


def alive(note: FactNote, now_ms: int) -> bool:
    """Tells whether a fact is current and has not ended."""
    return note.state is FactState.CURRENT and note.expires_at_ms > now_ms
