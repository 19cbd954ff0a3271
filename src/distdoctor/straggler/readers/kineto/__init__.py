"""Traces of PyTorch's profiler (Kineto): who computed, copied, communicated and idled for how long in each step."""

from __future__ import annotations

from distdoctor.straggler.readers.base import Reader
from distdoctor.straggler.readers.kineto.reader import read, sniff

KINETO = Reader(name="Kineto traces", sniff=sniff, read=read)
