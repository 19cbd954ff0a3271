"""What monitoring recorded, as Prometheus and those who draw it give it away.

Read are: answers of the HTTP API (`query_range`, `query`), VictoriaMetrics' JSON lines, CSV of Grafana, and the text
that an exporter serves. `metrics` says what a name means and in which unit, `labels` which GPU a series is of.
"""

from __future__ import annotations

from distdoctor.straggler.readers.prometheus.reader import PROMETHEUS

__all__ = ["PROMETHEUS"]
