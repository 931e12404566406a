"""The part of AdminService that is about limits."""

from __future__ import annotations

from collections.abc import Mapping

from noosphere.consistency import decode_page, encode_page, fingerprint, invalid
from noosphere.v1 import admin_limits_pb2 as pb

from ..memory.reads import check_page_size
from ..security.allowances import Subject
from ..security.limit_rules import LIMITS_OF, LimitRule, LimitRules, Limits
from . import decode, encode
from .calls import Context, unary

_SUBJECTS: Mapping[int, Subject] = {
    pb.LIMIT_SUBJECT_AGENT: Subject.AGENT,
    pb.LIMIT_SUBJECT_PRINCIPAL: Subject.PRINCIPAL,
    pb.LIMIT_SUBJECT_NAMESPACE: Subject.NAMESPACE,
}
_NUMBERS = {
    Subject.AGENT: pb.LIMIT_SUBJECT_AGENT,
    Subject.PRINCIPAL: pb.LIMIT_SUBJECT_PRINCIPAL,
    Subject.NAMESPACE: pb.LIMIT_SUBJECT_NAMESPACE,
}


class LimitMethods:
    """The part of AdminService that is about limits."""

    _limits: LimitRules

    @unary
    async def SetLimits(self, request: pb.SetLimitsRequest, context: Context) -> pb.SetLimitsResponse:
        """See the proto."""
        rule = request.rule
        limits = {field.name: int(value) for field, value in rule.limits.ListFields()}
        await self._limits.set(LimitRule(_subject(rule.subject), decode.pattern(rule.pattern), limits))
        return pb.SetLimitsResponse()

    @unary
    async def ListLimits(self, request: pb.ListLimitsRequest, context: Context) -> pb.ListLimitsResponse:
        """See the proto."""
        query = fingerprint("limits")
        found, following = self._limits.list(
            after=decode_page(request.page_token, query) if request.page_token else "",
            count_max=check_page_size(request.page_size),
        )
        return pb.ListLimitsResponse(
            rules=[
                pb.LimitRule(
                    subject=_NUMBERS[rule.subject], pattern=encode.pattern(rule.pattern), limits=_message(rule.limits)
                )
                for rule in found
            ],
            next_page_token="" if following is None else encode_page(query, following),
        )

    @unary
    async def GetLimits(self, request: pb.GetLimitsRequest, context: Context) -> pb.GetLimitsResponse:
        """See the proto."""
        subject = _subject(request.subject)
        limits = self._limits.of(subject, request.name)
        return pb.GetLimitsResponse(limits=_message({name: limits[name] for name in LIMITS_OF[subject]}))


def _subject(number: int) -> Subject:
    found = _SUBJECTS.get(number)
    if found is None:
        raise invalid("subject", f"{number} is not AGENT (1), PRINCIPAL (2) or NAMESPACE (3)")
    return found


def _message(limits: Limits) -> pb.Limits:
    return pb.Limits(**limits)
