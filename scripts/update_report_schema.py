"""Writes src/distdoctor/report/report.schema.json anew; run it after a change of report/model.py."""

from __future__ import annotations

from pathlib import Path

from distdoctor.report import codec

TARGET = Path(codec.__file__).with_name("report.schema.json")

if __name__ == "__main__":
    TARGET.write_bytes(codec.schema_bytes())
    print(f"wrote {TARGET}")
