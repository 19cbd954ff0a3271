"""Work that only the first rank has: logging, evaluation, saving. It looks like a slow rank and is none."""

from __future__ import annotations

from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.judgement import Suspect

# Parts of a step in which a first rank does what no other rank does. Slow computing or loading is not among them.
_ALONE = frozenset((Cause.CHECKPOINT, Cause.OUTSIDE))


def is_own_work_of_first_rank(suspect: Suspect) -> bool:
    """The suspect is rank 0, and its excess lies outside of computing and loading."""
    return suspect.rank == 0 and explain_suspect(suspect).cause in _ALONE
