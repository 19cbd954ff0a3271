"""What NVIDIA's resiliency extension (NVRx) says of slow GPUs: warnings with ranks, and scores.

STRAGGLER DETECTION WARNING: Some GPUs have worse relative performance. Affected ranks: {StragglerId(rank=3, node='a')}
GPU relative performance:
 Worst performing 5/512 ranks:
  Rank=76 Node=h100-001 Score=0.94
DETECTED RELATIVE STRAGGLER GPU RANK=3 NODE=a
"""

from __future__ import annotations

import math
import re

from distdoctor.straggler.readers.base import ReadOptions
from distdoctor.straggler.readers.logs.formats import Claims, Context, FileFacts, LogFormat
from distdoctor.straggler.readers.logs.lines import Line, number
from distdoctor.straggler.readers.logs.megatron_args import MAX_RANKS

_WARNING = re.compile(r"STRAGGLER DETECTION WARNING: (.{1,200}?) Affected ranks: (.*)")
_ID = re.compile(r"rank=(\d{1,9})(?:,\s?node='([^']{1,253})')?")
_PLAIN = re.compile(r"(?<![\w.'-])\d{1,9}(?![\w.'-])")
_HEADER = re.compile(r"GPU (relative|individual) performance:")
_SCORE = re.compile(r"\s{0,8}Rank=(\d{1,9}) Node=(\S{1,253}) Score=([-+.\w]{1,16})\s*$")
_LIST = re.compile(r"\s{0,8}(?:Worst|Best) performing \d{1,9}/\d{1,9} ranks:\s*$")
_DETECTED = re.compile(
    r"DETECTED (RELATIVE|INDIVIDUAL) STRAGGLER (?:GPU|SECTION=(\S{1,200})) RANK=(\d{1,9})(?: NODE=(\S{1,253}))?"
)

_RELATIVE_RULE = (
    "flags a rank at least 33 % slower than the fastest one (score, fastest over own median, below 0.75; the callback's "
    "default is 0.7: 43 %); smaller differences are not seen"
)
_INDIVIDUAL_RULE = (
    "flags a rank at least 33 % slower than its own best (score below 0.75; the callback's default is 0.7: 43 %); a GPU "
    "that was slow from the start is not seen"
)
_RULES = {"relative": _RELATIVE_RULE, "individual": _INDIVIDUAL_RULE}

_MAX_STRANGE_LINES = 4


class Nvrx(LogFormat):
    """Warnings and score lists."""

    name = "NVRx straggler report"
    has_blocks = True
    triggers = (b"STRAGGLER DETECTION WARNING", b" performance:", b" STRAGGLER ")

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._claims = Claims("NVRx straggler detection")
        self._flagged: dict[str, tuple[int, ...]] = {}
        self._kind = ""
        self._line = 0
        self._strange = 0
        self._scores: dict[int, float] = {}
        self._hosts: dict[int, str] = {}

    def feed(self, line: Line) -> None:
        """A warning, a header, or a score below it."""
        header = _HEADER.search(line.text)
        if header is not None:
            self._close()
            self.in_block, self._kind, self._line, self._strange = True, header[1], line.number, 0
            return
        if self.in_block:
            score = _SCORE.match(line.text)
            if score is not None and int(score[1]) < MAX_RANKS:
                self._scores[int(score[1])] = number(score[3])
                self._hosts[int(score[1])] = score[2]
                self._strange = 0
                return
            if _LIST.match(line.text):
                return
            self._strange += 1
            if self._strange > _MAX_STRANGE_LINES:
                self._close()
        self._warning(line)

    def _warning(self, line: Line) -> None:
        match = _WARNING.search(line.text)
        if match is not None:
            kind = "relative" if "relative" in match[1] else "individual"
            named = {int(rank): host for rank, host in _ID.findall(match[2]) if int(rank) < MAX_RANKS}
            if not named:
                named = {int(rank): "" for rank in _PLAIN.findall(match[2]) if int(rank) < MAX_RANKS}
            self._say(kind, match[1].rstrip("."), named, line.number)
            return
        match = _DETECTED.search(line.text)
        if match is not None and int(match[3]) < MAX_RANKS:
            kind = match[1].lower()
            where = f"section {match[2]}" if match[2] else "GPU"
            self._say(
                kind, f"{where}: straggler by {kind} score", {int(match[3]): match[4] or ""}, line.number
            )

    def _say(self, kind: str, text: str, named: dict[int, str], number_of_line: int) -> None:
        ranks = tuple(sorted(named))
        self._flagged[kind] = ranks
        self._claims.say(
            text,
            ranks=ranks,
            hosts=tuple(dict.fromkeys(host for _, host in sorted(named.items()) if host)),
            line=number_of_line,
            rule=_RULES[kind],
        )

    def _close(self) -> None:
        """Scores go to the warning before them; without one they say that the tool flagged nobody."""
        self.in_block = False
        scores = {rank: score for rank, score in self._scores.items() if not math.isnan(score)}
        self._scores = {}
        if not scores:
            return
        ranks = self._flagged.pop(self._kind, ())
        for draft in self._claims.drafts.values():
            if ranks and draft.ranks == ranks and draft.rule == _RULES[self._kind]:
                draft.scores.update(scores)
                return
        self._claims.say(
            f"GPU {self._kind} performance: no rank was flagged",
            ranks=(),
            hosts=(),
            line=self._line,
            rule=_RULES[self._kind],
            scores=scores,
        )

    def finish(self, options: ReadOptions) -> FileFacts:  # noqa: ARG002 - claims have no steps
        """Claims; a score list of a report that flagged nobody names no rank."""
        self._close()
        return FileFacts(claims=self._claims.build(self.context.path))
