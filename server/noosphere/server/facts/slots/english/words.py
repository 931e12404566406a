"""The English words that the rules of slots need."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...vocabulary import phrases, words

_UNSURE = """
    not|never|no longer|cannot|without|neither|nor|none|nobody|nothing|no|hardly|barely|rarely|seldom|nearly|almost|only
    |might|may|could|would|should|must|will|shall|can|if|unless|whether|maybe|perhaps|probably|possibly|likely|seem|seems
    |seemed|allegedly|reportedly|supposedly|apparently|according to|says|said|claims|claimed|thinks|thought|believes
    |believed|hopes|hoped|wants to|plans to|about to|going to|supposed to|used to|formerly|previously|once|until|till
    |before|after|because|since|although|though|but|however|except|unlike|than|whenever|also|too|as well|another|either
    |both
"""
_UNSURE_FIRST = """
    If|Unless|Whether|Maybe|Perhaps|Probably|Possibly|Allegedly|Reportedly|Apparently|According to|Until|Before|After
    |Because|Since|Although|Though|However|Except|No|Not|Never|Nobody|None|Neither|Formerly|Previously|Once|Suppose|Imagine
    |Do|Does|Did|Is|Are|Was|Were|Can|Could|Will|Would|Should|Has|Have|Had|Please|Let
"""


def _any_of(text: str) -> str:
    return "(?:" + "|".join(sorted(phrases(text))) + ")"


UNSURE = re.compile(
    # In lower case only, for titles ("Gone before the Wind") mostly have theirs in capitals.
    rf"\b{_any_of(_UNSURE)}\b|n't\b|^{_any_of(_UNSURE_FIRST)}\b"
    # A question, unless it goes on like a title: "Who Framed the Cat was written by".
    r"|^(?:What|Where|When|Who|Why|How|Which)\b(?! [A-Z])"
)
"""What makes a claim no plain statement of how things are."""

PRONOUNS = words("""
    he she it they this that these those there here who what which someone somebody everyone everybody anyone nobody
    one you him her them his its their your something everything such each every any all some several many most few
    without in on at for during by as with
""")
KINDS = words("""
    city town village country state continent sport language religion field position year month company province
    region county district role rank genre club team school university profession faith area party island kingdom
    discipline subject instrument planet family
    """)
MULTI_ROLES = words("""
    child children son sons daughter daughters brother brothers sister sisters sibling siblings friend friends pet pets
    dog dogs cat cats hobby hobbies colleague colleagues student students member members example part parts cousin aunt
    uncle other member teacher teachers neighbour neighbor skill skills strength weakness interest interests one
    goal goals
    problem problems advantage disadvantage reason
    """)
VALUE_ROLES = words("""
    favourite favorite preferred default native primary main colour color name nickname type kind genre sport language
    food drink dish job occupation profession role position title status version mode format size theme editor tool
    framework database shell browser system platform currency religion surname password username branch region
    instrument species breed gender hobby
    """)
QUALITY_ROLES = words("""
    favourite favorite preferred colour color name nickname type kind status state mode size theme gender level priority
    mood condition password username
""")
ADJECTIVES = words("""
    good bad big small large tall short long old new young fast slow hot cold warm cool high low rich poor happy sad
    easy hard safe strong weak late early open closed full empty ready busy free red-hot great nice clean dirty wet dry
    loud quiet heavy light dark bright deep broken wrong right true false dead alive sick ill well expensive cheap
    complex simple critical public private huge tiny pretty lovely ugly funny online offline up down
    """)
PARTICLES = words("in at for on to with as by from of about under into against near")

VERBS: Mapping[str, str] = {
    **{base + "s": base for base in (
        "live", "reside", "work", "play", "speak", "prefer", "like", "love", "enjoy", "hate", "dislike", "own", "use",
        "need", "know", "eat", "drink", "drive", "run", "cost", "weigh", "take", "wear", "read", "write", "report",
        "belong", "collect", "support", "follow", "listen", "manage", "lead", "contain", "require", "depend",
        "start", "begin", "end", "close", "open", "expire", "earn", "sleep", "commute", "specialise", "specialize",
        "depart", "arrive", "leave", "land", "happen", "represent",
        "coach", "attend", "practise", "practice", "sing",
        "serve", "stay", "rent", "train", "produce",
    )},
    "studies": "study", "teaches": "teach", "watches": "watch", "has": "have",
}  # fmt: skip
"""Verbs in the present, third person, and what they are without it."""
EVENTS = words("""
    born died founded created written performed developed produced built invented discovered directed released published
    composed painted designed established formed recorded introduced launched killed buried raised educated signed
    worked lived studied graduated moved met visited bought sold won wrote made went saw took gave got became began
    played joined left started finished
    """)
"""Participles and past forms of what happened, and is not undone by what happens later."""
SEVERAL_VERBS = words("""
    like play love enjoy hate dislike own know eat drink read write watch have collect support follow speak need wear
    contain require
    """)
SINGLE_VERBS = phrases("""
    live in|live at|work for|report to|weigh|cost|married to|born in|born on|died in|died on|located in|based in
    |headquartered in|founded in|founded on|founded by|created in|created by|written by|written in|developed by
    |produced by|built in
    |built by|invented by|invented in|discovered by|directed by|released in|published in|composed by|painted by
    |designed by|established in|formed in|engaged to|work as|start at|end at|begin at|open at|close at|expire on
    |depart at|arrive at|leave at
    """)  # fmt: skip
SAME_VERB: Mapping[str, str] = {
    "reside in": "live in", "moved to": "live in", "reside at": "live at",
    "work at": "work for", "study at": "study at",
    "listen to": "listen to",
}  # fmt: skip
MULTI_LINKS = phrases("""
    allergic to|interested in|good at|afraid of|fond of|member of|fan of|part of|friends with|responsible for
    |familiar with|proud of|related to|aware of|friend of|based on|made of|known for|involved in|available in|used for
    |used in|used by|compatible with
    """)  # fmt: skip
