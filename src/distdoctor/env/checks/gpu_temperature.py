"""Is a GPU, or its memory, close to the temperature at which it slows down?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed
from distdoctor.env.checks.gpus import gpu_key, gpu_title, nvidia_gpus, scope_of, seen_and_unseen, smi
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Closer than this to the slowdown threshold the next warm hour slows the GPU. Our own threshold.
NEAR_C = 5

# Where the evidence shows no threshold. Our own: NVIDIA's data-centre boards slow down between 85 and 95 °C.
HOT_C = 88


def check_temperature(facts: EnvFacts) -> Sequence[Outcome]:
    """Within 5 °C of slowing down is a warning."""
    devices = nvidia_gpus(facts)
    if not isinstance(devices, tuple):
        return [devices]
    seen, unseen = seen_and_unseen(facts, devices, "temperature_c", what="temperature")
    found: list[Outcome] = [outcome for device in seen if (outcome := _judge(device)) is not None]
    if found or not seen:
        return [*found, *unseen]
    hottest = max(device.temperature_c or 0 for device in seen)
    return [Passed(detail=f"at most {hottest} °C on {len(seen)} GPUs"), *unseen]


def _judge(device: GpuDevice) -> Found | None:
    temperature = device.temperature_c
    if temperature is None or set(device.throttle_reasons or ()) & {"hw_thermal", "sw_thermal"}:
        # Heat that slows the GPU already is told by gpu-throttled.
        return None
    memory, memory_max = device.memory_temperature_c, device.memory_temperature_max_c
    if device.temperature_slowdown_c:
        if temperature >= device.temperature_slowdown_c - NEAR_C:
            return _hot(
                device,
                temperature,
                f"slows down at {device.temperature_slowdown_c} °C",
                "the board's threshold (NVML)",
            )
    elif device.temperature_margin_c is not None:
        if device.temperature_margin_c <= NEAR_C:
            return _hot(
                device,
                temperature,
                f"{device.temperature_margin_c} °C before it slows down",
                "the board's margin (NVML)",
            )
    elif temperature >= HOT_C:
        return _hot(
            device, temperature, f"below {HOT_C} °C", "our own threshold: boards slow down at 85 to 95 °C"
        )
    if memory is not None and memory_max and memory >= memory_max - NEAR_C:
        return _hot(
            device, memory, f"memory: at most {memory_max} °C", "the board's threshold (NVML)", what="memory"
        )
    return None


def _hot(device: GpuDevice, temperature: int, expected: str, source: str, what: str = "core") -> Found:
    return Found(
        key=gpu_key(device),
        title=f"{gpu_title(device)} is hot: {what} {temperature} °C",
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{what} {temperature} °C",
                value=temperature,
                unit="°C",
                expected=expected,
                expected_source=source,
                source=device.sources.get("temperature_c" if what == "core" else "memory_temperature_c"),
            ),
        ),
        explanation="Near its threshold a GPU lowers its clocks, and the job runs at its pace.",
        actions=(
            Action(
                team=Team.HARDWARE,
                text="Check fans, airflow, inlet temperature and the neighbours' load",
                command=smi(device, "-q -d TEMPERATURE,PERFORMANCE"),
            ),
        ),
        scope=scope_of(device),
        fault=Fault.HOST,
    )


CHECK = Check(id="gpu-temperature", title="GPU temperatures", run=check_temperature, preflight=True)
