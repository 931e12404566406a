"""Makes a tool result small on arrival: whole, then without loss, then the most useful, then cut."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from noosphere.consistency.errors import invalid

from ...ports.models import Tokenizer
from .candidates import Candidates, count_values
from .choice import choose
from .cutting import TOKEN_CHARS_MAX, head_and_tail
from .document import Node, NotJson, minified, parse
from .past import Past, Task
from .paths import Step, extract, parse_paths
from .pricing import Built, Nothing
from .results import Compressed, LeftOut, Stage
from .writer import write

OUTPUT_BYTES_MAX = 8 * 1024 * 1024
TOKENS_MIN = 16
TOKENS_MAX = 16_384
TOKENS_DEFAULT = 500

# Beyond this no notation makes a document fit, unless it says one thing over and over; trying would take its time.
_LOSSLESS_CHARS_PER_TOKEN = 64


def compress(
    output: str,
    tokenizer: Tokenizer,
    *,
    tokens_max: int = TOKENS_DEFAULT,
    task: Task | None = None,
    keep: Sequence[str] = (),
) -> Compressed:
    """Makes a tool result fit a budget.

    Tried in this order: the result as it is; of JSON the fields of ``keep``, if there are any; all of it in a smaller
    notation (see :func:`.expand`); the fields, elements and lines that are most useful to the task, each value as it
    was or not at all, long strings in pieces; its beginning and end. What is missing is marked in the text.

    Equal arguments give equal text. Takes time in proportion to ``output``, up to some seconds for 8 MiB, so it
    belongs in an executor.

    Args:
        output: the tool's result, JSON or any other text, at most 8 MiB.
        tokenizer: counts.
        tokens_max: the budget, 16 to 16,384 tokens.
        task: what came before the result.
        keep: JSON paths of the fields that the caller wants, such as ``items[*].price``; they mean nothing where the
            result fits as it is, or is no JSON.

    Raises:
        Refusal: INVALID_FIELD: an argument is outside its limits, or a path is none.
    """
    if not TOKENS_MIN <= tokens_max <= TOKENS_MAX:
        raise invalid("tokens_max", f"{tokens_max} is not between {TOKENS_MIN} and {TOKENS_MAX}")
    paths = parse_paths(keep)
    try:
        size = len(output.encode())
    except UnicodeEncodeError as error:
        raise invalid("output", f"has half a surrogate pair at character {error.start}, which is no Unicode") from None
    if size > OUTPUT_BYTES_MAX:
        raise invalid("output", f"has {size} bytes, the limit is {OUTPUT_BYTES_MAX}")
    return _Compression(output, tokenizer, tokens_max, task or Task()).run(paths)


class _Compression:
    """One result on its way through the stages."""

    def __init__(self, output: str, tokenizer: Tokenizer, tokens_max: int, task: Task) -> None:
        self._output = output
        self._tokenizer = tokenizer
        self._tokens_max = tokens_max
        self._task = task

    def run(self, paths: Sequence[tuple[Step, ...]]) -> Compressed:
        if (tokens := self._size(self._output)) <= self._tokens_max:
            return Compressed(self._output, Stage.WHOLE, tokens, lossless=True)
        try:
            document = parse(self._output)
        except NotJson:
            return self._lines() or self._ends(self._output)
        total = count_values(document)
        found, missed = extract(document, paths)
        if isinstance(found, Nothing):
            result = self._smaller(document, Stage.LOSSLESS, LeftOut()) or self._values(document, total)
        else:
            left_out = LeftOut(total - count_values(found), total)
            result = self._smaller(found, Stage.FIELDS, left_out) or self._values(found, total)
        return (result or self._ends(minified(document)))._replace(paths_missed=missed)

    def _smaller(self, document: Node, stage: Stage, left_out: LeftOut) -> Compressed | None:
        """Writes the whole of a document in the plainest notation that fits."""
        plain = minified(document)
        if len(plain) > self._tokens_max * _LOSSLESS_CHARS_PER_TOKEN:
            return None
        for lines in (None, True, False):
            text = (plain if lines is None else write(document, lines=lines)) + left_out.mark
            if (tokens := self._size(text)) <= self._tokens_max:
                return Compressed(text, stage, tokens, not left_out.values, left_out)
        return None

    def _values(self, document: Node, total: int) -> Compressed | None:
        """Chooses values of a document."""
        candidates = Candidates(document, Past(self._task), self._tokens_max)
        # Values may stand outside of what the caller's paths found, or in strings of JSON.
        total += candidates.values - count_values(document)

        def result(built: Built) -> Compressed:
            assert not isinstance(built.node, Nothing)
            return self._relevant(write(built.node), LeftOut(total - built.values, total))

        return self._chosen(candidates, result)

    def _lines(self) -> Compressed | None:
        """Chooses lines of a text that is no JSON."""
        candidates = Candidates(self._output, Past(self._task), self._tokens_max)
        total = len(self._output)

        def result(built: Built) -> Compressed:
            left_out = LeftOut(characters=total - built.characters, characters_total=total)
            return self._relevant(str(built.node).rstrip(), left_out)

        return self._chosen(candidates, result)

    def _relevant(self, text: str, left_out: LeftOut) -> Compressed:
        text += left_out.mark
        return Compressed(text, Stage.RELEVANT, self._size(text), lossless=False, left_out=left_out)

    def _chosen(self, candidates: Candidates, result: Callable[[Built], Compressed]) -> Compressed | None:
        # If nothing but its place speaks for any part, the two ends together tell most.
        if not candidates.telling:
            return None
        built = choose(candidates, lambda built: result(built).tokens, self._tokens_max)
        return None if built is None else result(built)

    def _ends(self, text: str) -> Compressed:
        cut = head_and_tail(text, self._tokenizer, self._tokens_max)
        left_out = LeftOut(characters=len(text) - cut.kept, characters_total=len(text))
        return Compressed(cut.text, Stage.CUT, self._tokenizer.count(cut.text), lossless=False, left_out=left_out)

    def _size(self, text: str) -> int:
        # A text so long cannot fit; counting it could take longer than all the rest.
        return self._tokenizer.count(text) if len(text) <= self._tokens_max * TOKEN_CHARS_MAX else self._tokens_max + 1
