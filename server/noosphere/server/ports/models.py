"""The ports behind which models stand: counting tokens, making summaries, telling what texts mean and claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Tokenizer(Protocol):
    """Counts tokens as one vocabulary does. Never calls a network; a pure function of its text."""

    @property
    def name(self) -> str:
        """The vocabulary's name, e.g. ``o200k_base``."""
        ...

    @property
    def exact(self) -> bool:
        """Whether counts are the vocabulary's own; otherwise they are an upper estimate."""
        ...

    def count(self, text: str) -> int:
        """Returns how many tokens ``text`` has; text that looks like a special token is text."""
        ...

    def cut(self, text: str, tokens_max: int) -> str:
        """Returns the longest beginning of ``text`` with at most ``tokens_max`` tokens, whole characters only."""
        ...


class ChosenTokenizer(NamedTuple):
    """A tokenizer, and whether it stands in for one that is not known."""

    tokenizer: Tokenizer
    fallback: bool


class Tokenizers(Protocol):
    """Finds the tokenizer for a vocabulary or a model."""

    def named(self, name: str) -> Tokenizer:
        """Returns a vocabulary's tokenizer.

        Raises:
            Refusal: INVALID_FIELD, listing the known names.
        """
        ...

    def for_model(self, model: str) -> ChosenTokenizer:
        """Returns the tokenizer of a model; for an unknown one the stated fallback, marked as such."""
        ...


class ModelError(Exception):
    """A model was slow, wrong or away, or its budget is spent; the message says which and repeats nothing it was told.

    Args:
        reason: what went wrong.
        passing: whether the same may go well a little later.
    """

    def __init__(self, reason: str, *, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class SummaryText(NamedTuple):
    """What a summariser makes of messages; see ``sessions.types.Summary`` for the fields."""

    goals: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    entities: tuple[str, ...] = ()
    narrative: str = ""


class SourceMessage(NamedTuple):
    """One message as a summariser gets it: role, author and text, a tool call's name and arguments included."""

    role: str
    author: str
    text: str


class SummariserError(ModelError):
    """No summary was made; the sources are untouched."""


class Summariser(Protocol):
    """Makes one rolling summary out of the previous one and the messages after it."""

    @property
    def name(self) -> str:
        """What stands in a summary's ``producer``."""
        ...

    async def summarise(
        self, previous: SummaryText | None, messages: Sequence[SourceMessage], tokens_max: int, tokenizer: Tokenizer
    ) -> SummaryText:
        """Returns a summary that stands for all that is given.

        Args:
            previous: what stands for everything before ``messages``, if there is anything.
            messages: in order.
            tokens_max: the most tokens that the summary may have, as rendered.
            tokenizer: counts them.

        Raises:
            SummariserError: the model was slow, wrong or away, or its budget is spent; the message says which.
        """
        ...


class PolicyItem(NamedTuple):
    """One item as a policy of the controller gets it.

    Attributes:
        key: its key.
        kind: what kind of item.
        text: its beginning.
        tokens: its size.
        importance: 0 to 1.
        idle_turns: for how many turns nobody has asked for it.
        age_turns: for how many turns it has been there.
        accesses: in how many of the last 20 turns it was asked for.
    """

    key: str
    kind: str
    text: str
    tokens: int
    importance: float
    idle_turns: int
    age_turns: int
    accesses: int


class PolicySession(NamedTuple):
    """A session as a policy of the controller gets it.

    Attributes:
        turn: the newest turn.
        goals: the open goals.
        tokens_spent: tokens of all its contexts.
        utilization: tokens used over tokens allowed by the newest context; 0 if there was none.
        accessed: how many items were asked for in this turn: how fast its state moves.
    """

    turn: int
    goals: tuple[str, ...]
    tokens_spent: int
    utilization: float
    accessed: int


class PolicyError(Exception):
    """A policy has not decided; the rules do. Whoever raises it tells the log why, but not at the end of each turn."""


class TransitionPolicy(Protocol):
    """Decides instead of the rules what becomes of candidates: items that may leave working memory."""

    @property
    def name(self) -> str:
        """What stands beside each decision."""
        ...

    async def decide(self, session: PolicySession, items: Sequence[PolicyItem]) -> Mapping[str, str]:
        """Returns by key ``retain``, ``archive``, ``compress`` or ``drop``; what it leaves out is left to the rules.

        Args:
            session: where they are.
            items: the candidates, at most 256.

        Raises:
            PolicyError: it was slow, wrong or away.
        """
        ...


EMBEDDED_TEXTS_MAX = 256
"""Most texts of one call of an embedder."""


class EmbedderError(ModelError):
    """No vectors were made; things are then found by keywords alone."""


class Embedder(Protocol):
    """Turns texts into vectors of one dimension and length 1; those of texts that mean the same are near."""

    @property
    def name(self) -> str:
        """The model's name and version; vectors of different names are never compared."""
        ...

    @property
    def dimension(self) -> int:
        """How many numbers a vector has."""
        ...

    async def embed(self, texts: Sequence[str]) -> tuple[tuple[float, ...], ...]:
        """Returns a vector for each text, at most 256 at a time.

        Raises:
            EmbedderError: the model was slow, wrong or away, or there are too many texts.
        """
        ...


EXTRACTED_CLAIMS_MAX = 100
"""Most claims of one extraction."""


class ExtractionSource(NamedTuple):
    """A text to extract from.

    Attributes:
        reference: names it, e.g. ``msg:<session>/<message id>``.
        role: ``user``, ``assistant``, ``system`` or ``tool``; ``document`` for what is no part of a session.
        text: the text, raw.
    """

    reference: str
    role: str
    text: str


class ExtractedClaim(NamedTuple):
    """Something that a text says.

    Attributes:
        text: the claim in words that stand for themselves.
        subject: what it is about; empty if not known.
        predicate: which property of it; empty if not known.
        object: the property's value, as JSON text; empty if not known.
        quote: the words that say so, literally as they occur in the source.
        reference: the source's.
        confidence: how sure the extractor is, 0 to 1.
        importance: how much it matters, 0 to 1.
        memory_type: ``working``, ``episodic``, ``semantic`` or ``procedural``.
    """

    text: str
    subject: str
    predicate: str
    object: str
    quote: str
    reference: str
    confidence: float
    importance: float
    memory_type: str


class Extraction(NamedTuple):
    """What an extractor found, in the order of the sources, and how many tokens a model read and wrote for it."""

    claims: tuple[ExtractedClaim, ...]
    model_tokens: int = 0


class ExtractorError(ModelError):
    """Nothing was extracted; the sources are untouched.

    Args:
        reason: what went wrong.
        passing: whether the same may go well a little later.
        model_tokens: what was used in vain.
    """

    def __init__(self, reason: str, *, passing: bool = False, model_tokens: int = 0) -> None:
        super().__init__(reason, passing=passing)
        self.model_tokens = model_tokens


class Extractor(Protocol):
    """Finds what texts claim that is worth remembering. What it reads is data, whoever wrote it."""

    @property
    def name(self) -> str:
        """Its name and version, which stand in a candidate's ``producer``."""
        ...

    async def extract(self, sources: Sequence[ExtractionSource], owner: str) -> Extraction:
        """Returns what the sources claim, at most 100 claims, each with the words that say so.

        Args:
            sources: in order.
            owner: whose facts they become, e.g. ``user/42``.

        Raises:
            ExtractorError: the model was slow, wrong or away, its budget is spent, or there is too much to read.
        """
        ...
