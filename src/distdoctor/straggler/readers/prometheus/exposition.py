"""The text that an exporter serves: `NAME{labels} VALUE [TIME IN MS]`, one sample a line.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import re

import numpy as np

from distdoctor.errors import InputError
from distdoctor.straggler.readers.file_lines import FileLines
from distdoctor.straggler.readers.prometheus.labels import parse_labels
from distdoctor.straggler.readers.prometheus.samples import Samples

_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?\s+"
    r"(?P<value>[^\s]+)(?:\s+(?P<time>-?\d{1,18}))?(?:\s+#.*)?"
)


def read_exposition(file: FileLines, samples: Samples) -> None:
    """Adds all samples of one file. Raises InputError when there is none."""
    num_bad = 0
    for raw in file.lines():
        if samples.is_full:
            break
        line = raw.decode("utf-8", "replace").strip()
        if not line or line.startswith("#"):
            continue
        match = _SAMPLE.fullmatch(line) if len(line) < 65_536 else None
        labels = parse_labels(match["labels"] or "") if match is not None else None
        if match is None or labels is None:
            num_bad += 1
            continue
        try:
            value = float(match["value"])
        except ValueError:
            num_bad += 1
            continue
        time = float(match["time"]) / 1e3 if match["time"] else np.nan
        samples.add(match["name"], labels, np.array([time]), np.array([value]))
    if num_bad:
        samples.left_out["lines are no samples"] += num_bad
    if not samples.num_series:
        raise InputError(f"`{file.path}` has no sample of an exporter")
