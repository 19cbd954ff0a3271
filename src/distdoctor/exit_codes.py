"""What a process exit code of distdoctor means. The same for every command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; when several apply the order is CRITICAL > UNANSWERED > WARNING > OK."""

    OK = 0
    """Nothing at or above --fail-on."""
    BUG = 1
    """A bug in distdoctor."""
    USAGE = 2
    """The command line cannot be understood, or an output cannot be written."""
    UNANSWERED = 3
    """The question could not be answered: evidence missing or unreadable, a rank missing."""
    WARNING = 10
    """The worst finding is a warning, and --fail-on warning was given."""
    CRITICAL = 11
    """The worst finding is critical."""
    INTERRUPTED = 130
    """Ctrl-C."""
