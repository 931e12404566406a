"""What looks like a secret: well-known tokens, card numbers, and "the password is …"."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_TOKENS = (
    (r"(?<![A-Z0-9])(?:AKIA|ASIA|AGPA|AIDA|AROA)[A-Z0-9]{16}(?![A-Z0-9])", "an access key of AWS"),
    (r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,})", "a token of GitHub"),
    (r"\bnoo_[0-9a-f]{16}_[0-9a-f]{64}", "a token of this server"),
    (r"\bglpat-[\w-]{20,}", "a token of GitLab"),
    (r"\b(?:sk|rk|pk)[-_](?:(?:live|test|proj|ant|or|svcacct)[-_])*[\w-]{16,}", "an API key"),
    (r"\bxox[abeoprs]-[\w-]{10,}", "a token of Slack"),
    (r"\bAIza[\w-]{35}", "an API key of Google"),
    (r"\bya29\.[\w-]{20,}", "an access token of Google"),
    (r"\bhf_[A-Za-z0-9]{30,}", "a token of Hugging Face"),
    (r"\b(?:npm_[A-Za-z0-9]{36}|pypi-[\w-]{40,}|dop_v1_[a-f0-9]{64}|SG\.[\w-]{16,}\.[\w-]{16,})", "a token"),
    (r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*", "a JSON web token"),
    (r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|\bAGE-SECRET-KEY-1[A-Z0-9]{20,}", "a private key"),
    (r"\bhttps://hooks\.slack\.com/services/\S{20,}", "the address of a webhook"),
    (r"(?i)\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,64}:[^\s/@]{3,128}@", "an address with a password"),
    (r"(?i)\b(?:bearer|basic)\s+[A-Za-z0-9+/_.~-]{20,}={0,2}", "an authorization header"),
)
_COMPILED = tuple((re.compile(pattern), what) for pattern, what in _TOKENS)

_NAME = (
    r"(?:\b(?:pass ?words?|pass ?phrases?|passwd|pwd|pass ?codes?|pin(?: code| number)?|api[ _-]?keys?"
    r"|secret[ _-]?keys?"
    r"|access[ _-]?(?:keys?|tokens?)|auth(?:entication|orization)?[ _-]?tokens?|client[ _-]?secrets?|private[ _-]?keys?"
    r"|(?:security|recovery|backup|verification) codes?|seed phrases?|tokens?|secrets?|credentials?|cvv2?|ssn"
    r"|social security numbers?)\b"
    r"|密码|口令|密钥|令牌|验证码|密碼|パスワード|暗証番号|비밀번호|пароль|كلمة المرور)"
)
# Of what, for whom; but no end of a sentence. Width is folded before, so ASCII punctuation is enough.
_OF = r"(?:[ \t]+(?:for|of|to|on|in|at|from)\b[^.!?:=\n]{1,60}?|的[^。!?:\n]{0,20}?)?"
_IS = r"""[ \t"'`*_]*(?:=|:|\bis\b|\bwas\b|\bare\b|是|为|為|は|는|->|→)[ \t]*(?:now|set to|changed to|called)?"""
_NAMED = re.compile(rf"""{_NAME}{_OF}{_IS}[ \t"'`*_“”「]*(?P<value>[^\s"'`“”」]{{3,}})""", re.IGNORECASE)
_NO_SECRET = re.compile(
    # What follows "the password is" without being one.
    r"(?:not|no|never|none|null|nil|unknown|wrong|incorrect|invalid|correct|valid|expired?|expiring|required|optional"
    r"|missing|empty|out|gone|lost|leaked|compromised|revoked|blocked|visible|stored|kept|saved|hashed|encrypted|salted|rotated|changed|reset|needed|used|sent|set|too|very|at|in|on"
    r"|by|for|the|an?|weak|strong|long|short|safe|secure|secret|hidden|shared|managed|generated|created|checked|case|being"
    r"|still|also|only|redacted|masked|known|different|important|always|must|should|what|where|when|how|why|who|there|here"
    r"|from|with|your|my|our|true|false|yes|counted|spent|limited|free|necessary|available|ready"
    # Placeholders.
    r"|\W+|<[^>]*>?|\{.*\}|\$\{?\w+\}?|x{3,}|\*{3,}|\[.*\])[.,;:!?)]*",
    re.IGNORECASE,
)
_CARD = re.compile(r"(?<![\d.-])\d(?:[ -]?\d){12,18}(?![\d.-])")


def secrets(text: str) -> Iterator[str]:
    """Yields what a text seems to contain, each as the end of "It seems to …"; nothing of it is quoted."""
    plain = "".join(one for one in unicodedata.normalize("NFKC", text) if unicodedata.category(one) != "Cf")
    for pattern, what in _COMPILED:
        if pattern.search(plain):
            yield f"contain {what}"
    if any(not _NO_SECRET.fullmatch(named["value"]) for named in _NAMED.finditer(plain)):
        yield "tell a password, key or code"
    if any(_is_card("".join(filter(str.isdigit, card.group()))) for card in _CARD.finditer(plain)):
        yield "contain the number of a payment card"


def _is_card(digits: str) -> bool:
    """Tells whether digits are a card's number, by its first one and Luhn's check."""
    if not "2" <= digits[0] <= "6":
        return False
    doubled = (int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits)))
    return sum(value - 9 * (value > 9) for value in doubled) % 10 == 0
