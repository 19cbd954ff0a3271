"""What CUDA's own error at start-up means, and who mends it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.cuda_compat import FAILS as COMPAT_FAILS
from distdoctor.env.checks.cuda_compat import is_compat_path
from distdoctor.env.checks.torch_driver import TOO_OLD
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


@dataclass(frozen=True, slots=True, kw_only=True)
class _Meaning:
    """One error of cudaGetDeviceCount or cuInit."""

    title: str
    explanation: str
    remedy: str
    command: str
    cause_class: str = "env:cuda_init"
    team: Team = Team.PLATFORM
    fault: Fault = Fault.HOST
    confidence: Confidence = Confidence.HIGH


# Codes and their texts: cudaError_t in CUDA's driver_types.h (13.0). What to do: NVIDIA's documentation of each code,
# data-centre driver and fabric manager guides; 2 under WSL: pytorch and vLLM reports of hosts with many GPUs.
_BY_CODE = {
    2: _Meaning(
        title="CUDA does not start: error 2, out of memory",
        explanation="Creating the first context already fails for lack of memory: another process fills the GPU, or the system's "
        "own limits (host memory, address space, on WSL the number of GPUs that it can paravirtualise) are reached.",
        remedy="See who holds GPU memory; on WSL try with one GPU (CUDA_VISIBLE_DEVICES=0); look at ulimit -v",
        command="nvidia-smi; ulimit -v; free -h",
        confidence=Confidence.MEDIUM,
    ),
    3: _Meaning(
        title="CUDA does not start: error 3, initialisation error",
        explanation="The driver could not be initialised, or CUDA was used before a fork (each worker must start CUDA itself).",
        remedy="See the kernel log and whether /dev/nvidia-uvm is there; in a job use the start method “spawn”",
        command="ls -l /dev/nvidia*; dmesg -T | grep -i nvrm | tail",
        confidence=Confidence.MEDIUM,
    ),
    46: _Meaning(
        title="CUDA does not start: error 46, all GPUs are busy or unavailable",
        explanation="The GPU is in exclusive or prohibited compute mode and another process holds it, or MIG is on without an "
        "instance.",
        remedy="See compute mode, MIG and who uses the GPU",
        command="nvidia-smi -q | grep -E 'Compute Mode|MIG Mode' -A2; nvidia-smi",
    ),
    100: _Meaning(
        title="CUDA sees no GPU: error 100",
        explanation="No GPU is visible to this process: CUDA_VISIBLE_DEVICES hides them, the container was started without "
        "GPUs, the scheduler gave none, or the GPU is lost.",
        remedy="See what is visible here and what the host has",
        command="echo $CUDA_VISIBLE_DEVICES; ls -l /dev/nvidia*; nvidia-smi -L",
    ),
    101: _Meaning(
        title="CUDA does not start: error 101, invalid device",
        explanation="A GPU number was asked for that does not exist here, often a CUDA_VISIBLE_DEVICES left over from another host.",
        remedy="Compare CUDA_VISIBLE_DEVICES with the GPUs",
        command="echo $CUDA_VISIBLE_DEVICES; nvidia-smi -L",
        fault=Fault.CONFIG,
    ),
    209: _Meaning(
        title="CUDA has no code for this GPU: error 209",
        explanation="The program holds no kernel for this GPU's architecture.",
        remedy="Install a torch that is built for this GPU",
        command="python -c 'import torch; print(torch.cuda.get_arch_list())'; nvidia-smi --query-gpu=name,compute_cap --format=csv",
        cause_class="env:gpu_arch",
        team=Team.JOB_OWNER,
        fault=Fault.SOFTWARE,
    ),
    214: _Meaning(
        title="The GPU reports an uncorrectable memory error: error 214",
        explanation="ECC found an error that it cannot correct. What was computed since is not to be trusted.",
        remedy="Drain the host; reset the GPU, and watch for row remapping or a replacement",
        command="nvidia-smi -q -d ECC,ROW_REMAPPER; dmesg -T | grep -i xid",
        cause_class="gpu:ecc_uncorrectable",
        team=Team.HARDWARE,
        fault=Fault.GPU,
    ),
    802: _Meaning(
        title="The NVSwitch fabric is not initialised: CUDA error 802",
        explanation="GPUs behind NVSwitches start only when the fabric manager has set up the fabric (on NVLink 5 also the subnet "
        "manager, NVLSM); nvidia-smi looks normal meanwhile. In a virtual machine with passed-through GPUs it runs on the "
        "host, and starting it in the guest does not help.",
        remedy="Start the fabric manager of the driver's own version (in a guest: ask whoever runs the host), then see that the "
        "fabric state is Completed; no job may run meanwhile",
        command="systemctl status nvidia-fabricmanager; nvidia-smi -q | grep -i -A3 fabric; systemctl restart nvidia-fabricmanager",
        cause_class="env:fabric_manager",
    ),
    803: _Meaning(
        title="libcuda and the NVIDIA kernel module do not fit: CUDA error 803",
        explanation="The library libcuda.so.1 is of another version than the loaded kernel module: the driver was upgraded without a "
        "reboot, or a container brings a libcuda of its own.",
        remedy="Compare both versions; reboot, or reload the module, or remove the second libcuda",
        command="cat /proc/driver/nvidia/version; ls -l $(ldconfig -p | awk '/libcuda.so.1/{print $NF}'); echo $LD_LIBRARY_PATH",
        cause_class="env:driver_mismatch",
        fault=Fault.SOFTWARE,
    ),
    804: _Meaning(
        title="CUDA's forward compatibility does not work on this GPU: error 804",
        explanation="A libcuda from a cuda-compat package (usually /usr/local/cuda/compat in an image) is newer than the driver. "
        "That is allowed on data-centre GPUs only. The driver alone may well be new enough: within a CUDA major every driver "
        "is.",
        remedy="Take the compat folder out of LD_LIBRARY_PATH, or update the host's driver",
        command="echo $LD_LIBRARY_PATH; ldconfig -p | grep libcuda.so; cat /proc/driver/nvidia/version",
        cause_class="env:cuda_compat",
        fault=Fault.CONFIG,
    ),
    999: _Meaning(
        title="CUDA does not start: error 999, unknown error",
        explanation="The driver failed in a way that has no code: nvidia_uvm is not loaded or broken after a suspend, the device files "
        "are not accessible, or a GPU is lost.",
        remedy="See the kernel log; reload nvidia_uvm; reboot when it stays",
        command="dmesg -T | grep -iE 'nvrm|xid' | tail; ls -l /dev/nvidia*; modprobe -r nvidia_uvm && modprobe nvidia_uvm",
        confidence=Confidence.MEDIUM,
    ),
}

_BY_TEXT = (
    (
        re.compile(r"Found no NVIDIA driver", re.IGNORECASE),
        _Meaning(
            title="CUDA finds no NVIDIA driver",
            explanation="libcuda.so.1 is there, or torch was built for it, but no driver is loaded that this process can reach: none is "
            "installed, or the container was started without GPUs.",
            remedy="Start the container with GPUs (`--gpus all`), or install the driver",
            command="cat /proc/driver/nvidia/version; ls -l /dev/nvidia*",
        ),
    ),
    (re.compile(r"CUDA unknown error"), _BY_CODE[999]),
    (
        re.compile(r"driver initialization failed, you might not have a CUDA gpu", re.IGNORECASE),
        _Meaning(
            title="CUDA does not start: there may be no GPU for this process",
            explanation="The driver's first call failed without a code.",
            remedy="See whether a GPU is visible",
            command="nvidia-smi -L; ls -l /dev/nvidia*; echo $CUDA_VISIBLE_DEVICES",
            confidence=Confidence.MEDIUM,
        ),
    ),
    (
        re.compile(r"hipGetDeviceCount|HIP initialization", re.IGNORECASE),
        _Meaning(
            title="ROCm does not start",
            explanation="HIP's first call failed: /dev/kfd or /dev/dri is not accessible, the amdgpu driver is older than the ROCm in the "
            "container, or there is no GPU.",
            remedy="See the devices, the groups video and render, and the driver",
            command="ls -l /dev/kfd /dev/dri; id; rocminfo | head",
            cause_class="env:rocm_init",
            confidence=Confidence.MEDIUM,
        ),
    ),
)

_CODE = re.compile(r"\bError (?P<code>\d{1,4})\b")


def check_cuda_init(facts: EnvFacts) -> Sequence[Outcome]:
    """Only from text: the live check never initialises CUDA. Each error is told by one check alone."""
    probe = facts.torch_probe
    error = probe.cuda_init_error if probe is not None else None
    if probe is None or error is None:
        if probe is not None and probe.cuda_available:
            return [Passed(detail="CUDA is available")]
        if facts.is_live:
            return [NotApplicable(detail="CUDA is not initialised by this command")]
        return [missing(facts, "torch_probe.cuda_init_error", what="an error of CUDA's initialisation")]
    if TOO_OLD.search(error):
        return [NotApplicable(detail="the driver is too old: see torch-driver-too-old")]
    if (
        COMPAT_FAILS.search(error)
        and facts.gpus is not None
        and is_compat_path(facts.gpus.libcuda_path or "")
    ):
        return [NotApplicable(detail="a compat library is in the way: see cuda-compat-library")]
    return [_found(error, probe.sources.get("cuda_init_error"))]


def _found(error: str, source: str | None) -> Found:
    code = _CODE.search(error)
    meaning = _BY_CODE.get(int(code["code"])) if code else None
    if meaning is None:
        meaning = next((each for pattern, each in _BY_TEXT if pattern.search(error)), None)
    if meaning is None:
        number = f"error {code['code']}" if code else "its own words are below"
        meaning = _Meaning(
            title=f"CUDA does not start: {number}",
            explanation="This error is not in our table; NVIDIA's list of cudaError_t explains the code.",
            remedy="See the kernel log and the GPUs",
            command="nvidia-smi; dmesg -T | grep -iE 'nvrm|xid' | tail",
            confidence=Confidence.MEDIUM,
        )
    return Found(
        title=meaning.title,
        severity=Severity.CRITICAL,
        confidence=meaning.confidence,
        evidence=(
            Evidence(
                text=f"CUDA says: {error[:400]}", value=int(code["code"]) if code else None, source=source
            ),
        ),
        explanation=meaning.explanation,
        actions=(Action(team=meaning.team, text=meaning.remedy, command=meaning.command),),
        cause_class=meaning.cause_class,
        fault=meaning.fault,
    )


CHECK = Check(id="cuda-init-error", title="CUDA's initialisation", run=check_cuda_init)
