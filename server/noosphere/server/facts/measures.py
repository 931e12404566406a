"""One form for dates, times, numbers and quantities, where it is sure what they mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip
_MONTH_OF = (
    {name: at for at, name in enumerate(_MONTHS, 1)}
    | {name[:3]: at for at, name in enumerate(_MONTHS, 1)}
    | {"sept": 9}
)
_MONTH = "(?:" + "|".join(sorted(_MONTH_OF, key=len, reverse=True)) + r")\b\.?"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_DATES = re.compile(
    rf"(?<![\d.,/-])(?:"
    rf"(?P<y1>\d{{4}})(?P<sep>[-/.])(?P<m1>0?[1-9]|1[0-2])(?P=sep)(?P<d1>{_DAY})"
    rf"|(?P<y2>\d{{4}}) ?年 ?(?P<m2>0?[1-9]|1[0-2]) ?月 ?(?P<d2>{_DAY}) ?[日号]"
    rf"|(?:the )?(?P<d3>{_DAY})(?:st|nd|rd|th)?(?: of)? (?P<m3>{_MONTH}),? (?P<y3>\d{{4}})"
    rf")(?![\d/-])"
    rf"|\b(?P<m4>{_MONTH}) (?:the )?(?P<d4>{_DAY})(?:st|nd|rd|th)?,? (?P<y4>\d{{4}})(?![\d/-])"
)
_TIMES = re.compile(r"(?<![\d.,:/-])(?P<hour>0?[1-9]|1[0-2])(?:[:.](?P<minute>[0-5]\d))? ?(?P<half>[ap])\.? ?m\b\.?")
_CLOCK = re.compile(r"(?<![\d.,:/-])0(\d:[0-5]\d)(?![\d:])")
_THOUSANDS = re.compile(r"(?<![\w.,-])\d{1,3}(?:,\d{3})+(?![\w,]|\.\d*,)")

# Into the smallest unit of a kind; only what has one meaning. A month is no number of days, a dollar may be of many
# countries, and m may be metres, minutes or millions.
_UNITS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds", "毫秒"), ("ms", "1")),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds", "秒", "秒钟"), ("ms", "1000")),
    **dict.fromkeys(("min", "mins", "minute", "minutes", "分钟"), ("ms", "60000")),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours", "小时"), ("ms", "3600000")),
    **dict.fromkeys(("day", "days", "天"), ("day", "1")),
    **dict.fromkeys(("week", "weeks", "周", "星期"), ("day", "7")),
    **dict.fromkeys(("month", "months", "个月"), ("month", "1")),
    **dict.fromkeys(("year", "years", "年"), ("month", "12")),
    **dict.fromkeys(("mm", "millimetre", "millimetres", "millimeter", "millimeters", "毫米"), ("mm", "1")),
    **dict.fromkeys(("cm", "centimetre", "centimetres", "centimeter", "centimeters", "厘米"), ("mm", "10")),
    **dict.fromkeys(("metre", "metres", "meter", "meters", "米"), ("mm", "1000")),
    **dict.fromkeys(("km", "kilometre", "kilometres", "kilometer", "kilometers", "公里", "千米"), ("mm", "1000000")),
    **dict.fromkeys(("mile", "miles", "英里"), ("mile", "1")),
    **dict.fromkeys(("mg", "milligram", "milligrams", "毫克"), ("mg", "1")),
    **dict.fromkeys(("gram", "grams", "克"), ("mg", "1000")),
    **dict.fromkeys(("kg", "kilogram", "kilograms", "kilo", "kilos", "公斤", "千克"), ("mg", "1000000")),
    **dict.fromkeys(("kb", "kilobyte", "kilobytes"), ("kb", "1")),
    **dict.fromkeys(("mb", "megabyte", "megabytes"), ("mb", "1")),
    **dict.fromkeys(("gb", "gigabyte", "gigabytes"), ("gb", "1")),
    **dict.fromkeys(("tb", "terabyte", "terabytes"), ("tb", "1")),
    **dict.fromkeys(("%", "percent", "per cent", "pct"), ("%", "1")),
    **dict.fromkeys(("°c", "degrees celsius", "degree celsius", "celsius", "摄氏度"), ("°c", "1")),
    **dict.fromkeys(("°f", "degrees fahrenheit", "degree fahrenheit", "fahrenheit"), ("°f", "1")),
    **dict.fromkeys(("€", "eur", "euro", "euros"), ("eur", "1")),
}  # fmt: skip
_DIGIT = re.compile(r"\d")
_UNIT = "|".join(re.escape(unit) for unit in sorted(_UNITS, key=len, reverse=True))
_QUANTITIES = re.compile(
    rf"(?<![\w.,/:-])(?P<number>\d{{1,15}}(?:\.\d{{1,9}})?)(?P<gap> ?-?)(?P<unit>{_UNIT})(?![a-z0-9_%°/])"
)
_DECADE = re.compile(r"(?:1\d|20)\d0")


def plain_measures(text: str) -> str:
    """Returns a folded text with measures in one form. Doing it twice changes nothing.

    ``8 May 2026`` is ``2026-05-08``, ``5 pm`` is ``17:00``, ``1,000`` is ``1000``, ``2 hours`` is ``7200000 ms`` and so
    is ``120 min``. ``05/06/2026`` stays as it is, as do ``3.10`` (a version?) and amounts of money.
    """
    if _DIGIT.search(text) is None:
        return text
    dated = _DATES.sub(_date, text)
    timed = _CLOCK.sub(r"\1", _TIMES.sub(_time, dated))
    whole = _THOUSANDS.sub(lambda found: found.group().replace(",", ""), timed)
    return _QUANTITIES.sub(_quantity, whole)


def has_quantity(text: str) -> bool:
    """Tells whether a text begins with a number, time, date or amount of money."""
    return re.match(r"[$€£¥]? ?\d", text) is not None


def _date(found: re.Match[str]) -> str:
    for form in "1234":
        year, month, day = found[f"y{form}"], found[f"m{form}"], found[f"d{form}"]
        if year:
            number = int(month) if month.isdigit() else _MONTH_OF[month.removesuffix(".")]
            return f"{year}-{number:02}-{int(day):02}"
    return found.group()


def _time(found: re.Match[str]) -> str:
    hour = int(found["hour"]) % 12 + 12 * (found["half"] == "p")
    return f"{hour}:{found['minute'] or '00'}"


def _quantity(found: re.Match[str]) -> str:
    number, unit = found["number"], found["unit"]
    if unit == "s" and not found["gap"] and _DECADE.fullmatch(number):
        return found.group()
    base, factor = _UNITS[unit]
    if unit == "年" and len(number) == 4:
        return found.group()
    return f"{(Decimal(number) * Decimal(factor)).normalize():f} {base}"
