"""What the operating system says of this process."""

from __future__ import annotations

import resource
import sys


def resident_bytes() -> int:
    """Returns the memory that is in use, in bytes; where that is not told, the most that ever was."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()
    except OSError:
        # Elsewhere the peak is the best that the standard library tells; macOS counts in bytes.
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
