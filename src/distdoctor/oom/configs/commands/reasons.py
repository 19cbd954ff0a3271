"""Why a word of a script is not known, in words."""

from __future__ import annotations

from distdoctor.oom.configs.shell.values import Token, Unknown, UnknownKind


def reason_of(token: Token) -> str:
    """Why a word is not known, in words: `$NNODES, which the script never sets`."""
    if not token.unknowns:
        if token.condition is not None:
            return f"`{token.text}` only where `{token.condition.text}` (line {token.condition.line})"
        return f"`{token.text}`, no number"
    unknown = token.unknowns[0]
    return f"`{unknown.shown}`, {unknown_reason(unknown)}"


def unknown_reason(unknown: Unknown) -> str:
    """The kind of an unknown, with the values that it may have."""
    values = list(
        dict.fromkeys(f"{each.value or 'nothing'} (line {each.line})" for each in unknown.alternatives)
    )
    either = " or ".join(values[:4])
    match unknown.kind:
        case UnknownKind.NEVER_SET:
            return "which the script never sets"
        case UnknownKind.NOT_TAKEN:
            return (
                f"set only in branches that are not taken: {either}"
                if either
                else "set only in branches not taken"
            )
        case UnknownKind.SOURCED:
            return "which a sourced file may set"
        case UnknownKind.SCHEDULER:
            return "which the scheduler sets when the job starts"
        case UnknownKind.ENVIRONMENT:
            return "taken from the environment"
        case UnknownKind.ARGUMENT | UnknownKind.GIVEN:
            return "which the caller gives"
        case UnknownKind.CHOICE | UnknownKind.LOOP:
            return f"one of {either}" if either else "depending on a condition"
        case UnknownKind.COMMAND:
            return "the output of a command"
        case UnknownKind.TOO_LONG:
            return "too long to be followed"
