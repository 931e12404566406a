"""Words that say nothing about what a text is about."""

from __future__ import annotations

# Words of grammar alone. No months ("may" is one), numbers, names or words of time and place: facts are about these.
_ENGLISH = """
    a about above after again against all also although am an and any are as at be because been before being below
    between both but by can could did do does doing done down during each either else ever every few for from further
    had has have having he her here hers herself him himself his how however i if in into is it its itself just let
    like lot many me mine more most much must my myself neither no nor not of off on once only or other ought our ours
    ourselves out over own quite rather really same shall she should so some such than that the their theirs them
    themselves then there these they this those though through to too under until up upon us very was we were what
    when where whether which while who whom whose why will with within would yes you your yours yourself yourselves
    cannot dont didnt doesnt isnt arent wasnt werent wont wouldnt couldnt shouldnt cant havent hasnt hadnt im ive id
    ill youre youve youll hes shes theyre theyve weve thats whats lets
"""
STOP = frozenset(_ENGLISH.split())
"""English words; those of other languages are common enough to weigh little by themselves."""
