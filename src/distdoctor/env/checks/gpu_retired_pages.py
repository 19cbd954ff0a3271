"""How many memory pages has a GPU given up, and does one wait for a reset? (Volta and older)"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed
from distdoctor.env.checks.gpu_row_remap import FIRST_CAPABILITY
from distdoctor.env.checks.gpus import (
    gpu_key,
    gpu_title,
    nvidia_gpus,
    reset_action,
    scope_of,
    seen_and_unseen,
    smi,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Evidence, Fault, Severity, Team

# NVIDIA, Dynamic Page Retirement: the table holds 64 pages, and 60 qualify for RMA.
MANY_PAGES = 60

CAUSE = "gpu:ecc_uncorrectable"


def check_retired_pages(facts: EnvFacts) -> Sequence[Outcome]:
    """A pending retirement and a nearly full table are warnings."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    older = [
        each
        for each in devices
        if each.compute_capability is None or each.compute_capability < FIRST_CAPABILITY
    ]
    if not older or (
        all(each.retired_pages is None for each in older)
        and any(each.remap_pending is not None for each in older)
    ):
        return [NotApplicable(detail="these GPUs remap rows instead of retiring pages")]
    seen, unseen = seen_and_unseen(facts, older, "retired_pages_pending", what="retired pages")
    found = [outcome for device in older if (outcome := _judge(device)) is not None]
    if found:
        return [*found, *unseen]
    if not seen:
        return unseen
    pages = sum(each.retired_pages or 0 for each in seen)
    return [Passed(detail=f"{pages} retired pages, none pending"), *unseen]


def _judge(device: GpuDevice) -> Found | None:
    pages = device.retired_pages
    if pages is not None and pages >= MANY_PAGES:
        return Found(
            key=gpu_key(device),
            title=f"{gpu_title(device)} has retired {pages} memory pages",
            severity=Severity.WARNING,
            evidence=(
                Evidence(
                    text=f"{pages} pages retired",
                    value=pages,
                    unit="pages",
                    expected=f"below {MANY_PAGES} pages",
                    expected_source="NVIDIA, Dynamic Page Retirement: RMA criteria",
                    source=device.sources.get("retired_pages"),
                ),
            ),
            explanation="The table of retired pages is nearly full; the next errors can no longer be fenced off.",
            actions=(
                Action(
                    team=Team.HARDWARE,
                    text="Have the GPU replaced",
                    command=smi(device, "-q -d PAGE_RETIREMENT"),
                ),
            ),
            scope=scope_of(device),
            cause_class=CAUSE,
            fault=Fault.GPU,
        )
    if device.retired_pages_pending:
        return Found(
            key=gpu_key(device),
            title=f"{gpu_title(device)}: a memory page waits for a reset to be retired",
            severity=Severity.WARNING,
            evidence=(
                Evidence(
                    text="a page retirement is pending",
                    value=True,
                    expected="none pending",
                    expected_source="NVIDIA, Dynamic Page Retirement",
                    source=device.sources.get("retired_pages_pending"),
                ),
            ),
            explanation="A page with errors stays in use until the driver is loaded again; a job may meet it.",
            actions=(reset_action(device),),
            scope=scope_of(device),
            cause_class=CAUSE,
            fault=Fault.GPU,
        )
    return None


CHECK = Check(
    id="gpu-retired-pages", title="retired GPU memory pages", run=check_retired_pages, preflight=True
)
