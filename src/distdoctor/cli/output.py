"""Where a report goes: checked before work begins, sealed, redacted, written whole, and turned into an exit code."""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path

from distdoctor import __version__
from distdoctor.errors import DistdoctorError, OutputError, UsageError
from distdoctor.evidence import read_bounded
from distdoctor.report.exit_code import ExitStyle, FailOn, exit_code_for
from distdoctor.report.model import MissingEvidence, Report, Status, Tool, Verdict

# Off a terminal nothing tells the width. Text that is pasted into tickets and logs is read at 80 to 120 columns.
PIPED_WIDTH = 100


# Keys are some 32 bytes; a larger file was named by mistake.
MAX_KEY_BYTES = 4096


class Format(str, Enum):
    """Forms of a report on stdout."""

    TERMINAL = "terminal"
    TEXT = "text"
    MARKDOWN = "markdown"
    HTML = "html"
    JSON = "json"


SUFFIXES = {".md": Format.MARKDOWN, ".html": Format.HTML, ".json": Format.JSON, ".txt": Format.TEXT}
"""What `-o FILE` writes, by suffix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputOptions:
    """How a report leaves; the same for every command. Filled in by `cli.options.output_options`."""

    format: Format = Format.TERMINAL
    outputs: tuple[str, ...] = ()
    force: bool = False
    one_line: bool = False
    verbose: bool = False
    fail_on: FailOn | None = None
    exit_style: ExitStyle = ExitStyle.DISTDOCTOR
    redact: bool = False
    redact_key: Path | None = None
    redact_map: Path | None = None
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    site: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What `%h`, `%r` and `%j` in a file name become, and the command that names files in a folder."""

    command: str
    host: str = "host"
    rank: int | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """One file to be written."""

    path: Path
    format: Format


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Outputs that have been checked: every destination can be written, keys are read."""

    options: OutputOptions
    destinations: tuple[Destination, ...]
    key: bytes | None


def prepare_outputs(options: OutputOptions, names: Names) -> Prepared:
    """Check everything that could go wrong with the outputs before any work is done.

    Raises OutputError when a file exists (without `--force`), its folder is missing or cannot be written, or
    two outputs have one name; UsageError for an unknown suffix or an unusable redaction key.
    """
    key = _redaction_key(options)
    if key is not None:
        names = _renamed(names, key)
    destinations = tuple(each for output in options.outputs for each in _destinations(output, names))
    paths = [each.path for each in destinations] + ([options.redact_map] if options.redact_map else [])
    for path in paths:
        check_writable(path, force=options.force)
    places = [os.path.realpath(path) for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise OutputError(f"two outputs have the same name `{path}`")
    return Prepared(options=options, destinations=destinations, key=key)


def check_writable(path: Path, *, force: bool) -> None:
    """Raises OutputError unless a new file can be made there (or, with `force`, replaced)."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot write `{_short(path)}`: {why}") from error
    if path.is_dir():
        raise OutputError(
            f"`{path}` is a folder", hint=f"end it with a slash for all four forms: `-o {path}/`"
        )
    if path.exists() and not force:
        raise OutputError(f"`{path}` exists", hint="give another name, or --force to replace it")
    folder = path.parent
    if not folder.is_dir():
        raise OutputError(f"cannot write `{path}`: there is no folder `{folder}`", hint=f"mkdir -p {folder}")
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise OutputError(f"cannot write into `{folder}`: {error.strerror}") from error


def emit(report: Report, prepared: Prepared, *, under_launcher: bool = False) -> int:
    """Seal the report, write all files, print the chosen form to stdout; the exit code.

    Raises OutputError when a file cannot be written after all; what can be is written and printed first.
    """
    from distdoctor.report.seal import seal

    options = prepared.options
    code = exit_code_for(report, options.fail_on, options.exit_style, under_launcher=under_launcher)
    sealed = seal(report)
    if prepared.key is not None:
        sealed = _redacted(sealed, prepared.key, options)
    failures = []
    for destination in prepared.destinations:
        try:
            write_whole(destination.path, render(sealed, destination.format).encode("utf-8", "replace"))
        except OSError as error:
            failures.append(f"cannot write `{destination.path}`: {error.strerror}")
        else:
            print(f"wrote {destination.path}", file=sys.stderr)
    _print(_stdout_text(sealed, options), is_utf8=options.format in _UTF8_FORMATS)
    if failures:
        raise OutputError("; ".join(failures))
    return code


def render(report: Report, form: Format) -> str:
    """A sealed report in one form; for files, so without colour. Renderers are imported when needed."""
    match form:
        case Format.HTML:
            from distdoctor.report.render.html import render_html

            return render_html(report)
        case Format.MARKDOWN:
            from distdoctor.report.render.markdown import render_markdown

            return render_markdown(report)
        case Format.JSON:
            from distdoctor.report.render.json import render_json

            return render_json(report)
        case Format.TEXT | Format.TERMINAL:
            from distdoctor.report.render.text import render_text

            return render_text(report)


def write_whole(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file whole or not at all: beside it first, then renamed. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        temporary = Path(name)
        temporary.chmod(mode & ~_umask())
        temporary.replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def failure_report(command: str, error: Exception) -> Report:
    """A report for a command that could not do its work: what is wrong, and what to do. Sealed."""
    from distdoctor.report.seal import seal

    hint = error.hint if isinstance(error, DistdoctorError) else None
    report = Report(
        tool=Tool(name="distdoctor", version=__version__, command=command),
        verdict=Verdict(
            status=Status.UNKNOWN,
            title=f"cannot tell: {error}"[:80],
            summary=f"{error}." + (f" {hint}." if hint else ""),
        ),
        started_utc=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        missing_evidence=(MissingEvidence(what="the report", why=str(error), how=hint),),
    )
    return seal(report)


def terminal_width(environ: Mapping[str, str]) -> int:
    """Columns of the terminal on stdout; COLUMNS when it is set; 100 where nothing tells."""
    return (
        shutil.get_terminal_size((PIPED_WIDTH, 24)).columns
        if sys.stdout.isatty() or "COLUMNS" in environ
        else PIPED_WIDTH
    )


def terminal_rows() -> int:
    """Rows of the terminal on stdout that a report may take, one being left to the prompt; 24 off a terminal."""
    return shutil.get_terminal_size((PIPED_WIDTH, 24)).lines - 1 if sys.stdout.isatty() else 24


def wants_color(environ: Mapping[str, str]) -> bool:
    """NO_COLOR forbids, FORCE_COLOR demands; else colour on a terminal that can."""
    if environ.get("NO_COLOR"):
        return False
    if environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and environ.get("TERM") != "dumb"


def _destinations(output: str, names: Names) -> list[Destination]:
    expanded = _expand(output, names)
    path = Path(expanded)
    if expanded.endswith("/"):
        stamp = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        about = _safe(f"job-{names.job}" if names.job else names.host)
        _make_folder(path)
        stem = f"{_safe(names.command)}-{about}-{stamp}"
        return [Destination(path=path / f"{stem}{suffix}", format=form) for suffix, form in SUFFIXES.items()]
    if path.suffix not in SUFFIXES:
        raise UsageError(
            f"`-o {output}`: unknown suffix", hint=f"known: {', '.join(SUFFIXES)}, or a folder ending in /"
        )
    return [Destination(path=path, format=SUFFIXES[path.suffix])]


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise OutputError(
            f"cannot make the folder `{_short(path)}`: a file of that name is in the way"
        ) from error
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OutputError(f"cannot make the folder `{_short(path)}`: {why}") from error


def _short(path: Path) -> str:
    text = str(path)
    return text if len(text) <= 200 else f"{text[:100]}…{text[-50:]}"


def _expand(output: str, names: Names) -> str:
    values = {
        "%h": _safe(names.host),
        "%r": str(names.rank or 0),
        "%j": _safe(names.job or "nojob"),
        "%%": "%",
    }
    return re.sub(r"%[hrj%]", lambda match: values[match.group()], output)


def _safe(text: str) -> str:
    """A name that is one part of a path whatever a scheduler or host calls itself."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip(".")[:64] or "unknown"


def _renamed(names: Names, key: bytes) -> Names:
    """Names whose host is its pseudonym: a redacted report must not carry the host in its file name."""
    from distdoctor.report.host_words import is_distinctive
    from distdoctor.report.redact import redacted_host

    return replace(names, host=redacted_host(names.host, key)) if is_distinctive(names.host) else names


def _redaction_key(options: OutputOptions) -> bytes | None:
    from distdoctor.report.pseudonyms import MIN_KEY_BYTES, new_key

    if not (options.redact or options.redact_key or options.redact_map):
        return None
    if options.redact_key is None:
        return new_key()
    try:
        key = read_bounded(options.redact_key, MAX_KEY_BYTES).strip()
    except OSError as error:
        raise UsageError(f"cannot read --redact-key `{options.redact_key}`: {error.strerror}") from error
    if len(key) > MAX_KEY_BYTES:
        raise UsageError(f"--redact-key `{options.redact_key}` is larger than {MAX_KEY_BYTES} bytes: no key")
    if len(key) < MIN_KEY_BYTES:
        raise UsageError(
            f"--redact-key `{options.redact_key}` holds {len(key)} bytes, fewer than {MIN_KEY_BYTES}",
            hint="head -c 32 /dev/urandom | base64 > redact.key",
        )
    return key


def _redacted(report: Report, key: bytes, options: OutputOptions) -> Report:
    import json

    from distdoctor.report.redact import redact

    result = redact(report, key)
    if options.redact_map is not None:
        data = json.dumps(result.originals, indent=2, sort_keys=True).encode()
        try:
            write_whole(options.redact_map, data + b"\n", mode=0o600)
        except OSError as error:
            raise OutputError(
                f"cannot write --redact-map `{options.redact_map}`: {error.strerror}"
            ) from error
    return result.report


def _stdout_text(report: Report, options: OutputOptions) -> str:
    if options.one_line and options.format in (Format.TERMINAL, Format.TEXT):
        from distdoctor.report.render.one_line import render_one_line

        return render_one_line(report)
    if options.format is Format.TERMINAL:
        from distdoctor.report.render.terminal import render_terminal

        return render_terminal(
            report,
            width=terminal_width(os.environ),
            color=wants_color(os.environ),
            verbose=options.verbose,
            screen_rows=terminal_rows(),
        )
    return render(report, options.format)


# What a reader parses is UTF-8 whatever the locale says.
_UTF8_FORMATS = frozenset((Format.JSON, Format.HTML, Format.MARKDOWN))

# Our own signs in a locale that lacks them; other characters are written as escapes.
_ASCII_SIGNS = str.maketrans({"…": "...", "⏎": "|", "█": "#", "×": "x", "→": "->", "–": "-", "—": "-"})


def _print(text: str, *, is_utf8: bool) -> None:
    """Print to stdout whatever its encoding; a reader that has gone (`| head`) is no error."""
    if not text.endswith("\n"):
        text += "\n"
    encoding = sys.stdout.encoding or "utf-8"
    try:
        if is_utf8 and hasattr(sys.stdout, "buffer"):
            sys.stdout.flush()
            sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
        else:
            sys.stdout.write(_encodable(text, encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        # Also silent when the interpreter flushes stdout at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise OutputError(f"cannot write the report to standard output: {error.strerror}") from error


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(_ASCII_SIGNS).encode(encoding, "backslashreplace").decode(encoding)
    return text


def _umask() -> int:
    current = os.umask(0o077)
    os.umask(current)
    return current
