"""Errors that the user can do something about. Everything else is a bug, caught at one boundary."""

from __future__ import annotations

from distdoctor.exit_codes import ExitCode


class DistdoctorError(Exception):
    """A problem the user can mend: one line that says what is wrong and where, one hint what to do."""

    exit_code: ExitCode = ExitCode.UNANSWERED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def in_one_line(self) -> str:
        """What is wrong and what to do about it, for a table or a list of files."""
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(DistdoctorError):
    """The command line asks for something that cannot be done."""

    exit_code = ExitCode.USAGE


class InputError(DistdoctorError):
    """A file or folder given as evidence cannot be read or understood."""


class OutputError(DistdoctorError):
    """An output cannot be written, or would overwrite something."""

    exit_code = ExitCode.USAGE
