"""What the rest of a log says of the job: steps done, strategy, ranks, vocabulary, GPU, allocator settings."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from distdoctor.oom.facts.events import Hints
from distdoctor.oom.messages.lines import LogLine

_STEP_WORDS = ("step", "Step", "STEP", "iter", "Iter", "loss", "it/s", "s/it", "%|")
_STEP = re.compile(
    r"\biteration[ =:]+(\d{1,9})\s*(?:/|\||,|$)|\b(?:global_?|train(?:ing)?[ _])?[Ss]teps?\s{0,20}(?:[:=~/]|\s|>)\s{0,20}~?(\d{1,9})\b|\bSTEP\W{0,3}(\d{1,9})\b"
)
_BAR = re.compile(r"\d{1,3}%\|[^|]{0,200}\|\s*(\d{1,9})/(\d{1,9})\s*\[")
_NOT_TRAINING = re.compile(
    r"[Ll]oad|[Dd]ownload|\bMap\b|[Ff]etch|[Tt]okeniz|[Ff]ilter|[Gg]enerat|[Ss]hards|[Ss]aving|[Rr]esum|max_steps|num_steps|total (?:optimization )?steps|total_steps"
    r"|warmup|[Cc]aptur|[Pp]acking|[Cc]onvert|[Ee]xtract|save_steps|eval_steps|logging_steps|steps per|per step|Num|Total|accumulation|Evaluat|Valid|Predict|Safetensors|Preprocess|Batches"
    # Slurm's job steps are no steps of training.
    r"|slurmstepd|srun:|StepId|[Jj]ob step|oom[-_]kill"
)
_LOSS = re.compile(r"\{'(?:loss|train_loss)': ?")


class Steps:
    """How many steps a log shows done before a line."""

    def __init__(self, lines: Sequence[LogLine]) -> None:
        self._at: list[int] = []
        self._done: list[int] = []
        done = 0
        zero_based = False
        seen = False
        for index, line in enumerate(lines):
            text = line.text
            if not any(word in text for word in _STEP_WORDS):
                continue
            value = _step_in(text)
            if value is None:
                if not _LOSS.search(text):
                    continue
                value = done + 1 if not seen else max(done, 1)
            elif value == 0 and "%|" not in text:
                zero_based = True
            if value + zero_based > done or not seen:
                done = max(done, value + (1 if zero_based else 0))
                seen = True
                self._at.append(index)
                self._done.append(done)

    def more_after(self, index: int) -> int:
        """How many more steps the log shows done behind line `index` than before it."""
        return (self._done[-1] if self._done else 0) - (self.before(index) or 0)

    def before(self, index: int) -> int | None:
        """Steps done before line `index`; None when the log shows none up to there."""
        place = bisect_left(self._at, index + 1)
        return self._done[place - 1] if place else None


def _step_in(text: str) -> int | None:
    if _NOT_TRAINING.search(text):
        return None
    if bar := _BAR.search(text):
        return int(bar[1])
    if match := _STEP.search(text):
        return int(next(each for each in match.groups() if each is not None))
    return None


_STRATEGIES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "FSDP",
        re.compile(r"FullyShardedDataParallel|fully_shard|\bFSDP2?\b|/fsdp/|_fsdp_|\bfsdp\b", re.IGNORECASE),
    ),
    ("DeepSpeed", re.compile(r"deepspeed", re.IGNORECASE)),
    ("DDP", re.compile(r"DistributedDataParallel|\bDDP\b")),
    ("Megatron", re.compile(r"megatron|> initializing model parallel", re.IGNORECASE)),
    ("vLLM", re.compile(r"\bvllm\b", re.IGNORECASE)),
    ("SGLang", re.compile(r"\bsglang\b", re.IGNORECASE)),
)
_ZERO_STAGE = re.compile(
    r"zero_?stage\W{1,4}([0-3])\b|\"stage\"\s*:\s*([0-3])\b|\bZeRO[- ]?(?:[Ss]tage[- ]?)?([1-3])\b|\bzero[_-]?([1-3])\b|/(?:zero/)?stage(3)\.py|zero/(stage_1_and_2)\.py"
    r"|(partition_parameters|partitioned_param_coordinator|parameter_offload)\.py"
)
_NUM_RANKS = re.compile(
    r"\bworld[_ ]?size\W{1,4}(\d{1,6})\b|nproc[_-]per[_-]node\W{1,3}(\d{1,3})\b|\bnranks (\d{1,6})\b|num_processes\W{1,4}(\d{1,6})\b",
    re.IGNORECASE,
)
_VOCAB = re.compile(
    r"\b(?:padded_)?vocab(?:ulary)?[_ ]size\W{1,6}(\d{4,7})\b|padded vocab[^\n]{0,80}?(?:new size|size)\W{1,3}(\d{4,7})",
    re.IGNORECASE,
)
# Sizes of vocabularies by family, as the models' config.json have them.
_VOCAB_OF: tuple[tuple[re.Pattern[str], tuple[int, ...]], ...] = (
    (re.compile(r"llama[-_ ]?3", re.IGNORECASE), (128256,)),
    (re.compile(r"llama[-_ ]?2|vicuna|mistral-7b-v0\.1|mixtral", re.IGNORECASE), (32000,)),
    (re.compile(r"qwen", re.IGNORECASE), (151936, 152064, 151646)),
    (re.compile(r"gemma", re.IGNORECASE), (256000, 262144, 262208)),
    (re.compile(r"gpt-?2|gpt2|megatron", re.IGNORECASE), (50257, 50304)),
    (re.compile(r"deepseek", re.IGNORECASE), (129280, 102400)),
    (re.compile(r"phi-?3", re.IGNORECASE), (32064,)),
)
_GPU_NAME = re.compile(
    r"\b((?:NVIDIA |Tesla |AMD Instinct |AMD Radeon )?(?:[ABHLV]\d{2,3}[A-Z]{0,2}|GB200|RTX \w{1,12}|MI\d{3}[AX]?)[- \w]{0,24}?\b(\d{2,3}) ?G[iB]B?)\b"
)
_EXPANDABLE = re.compile(r"expandable_segments\s*[:=]\s*(True|true|1|False|false|0)")
_FRACTION = re.compile(r"per_process_memory_fraction(?:\(|[:=]\s*)(?:fraction=)?([01]?\.\d+)")
_VERSION = re.compile(
    r"PyTorch version: (\d+\.\d+[\w.+]*)|torch==(\d+\.\d+[\w.+]*)|\btorch[ :=]+(\d\.\d{1,2}\.\d)\b"
)
_WINDOWS = re.compile(r"\b[A-Z]:\\|[A-Z]:\\\\|WinError|\bpython\.exe\b|win_amd64")
_MIG = re.compile(r"\bMIG\b|MIG-[0-9a-fA-F]|\b[1-7]g\.\d{1,3}gb\b")

_MIG_SIZE = re.compile(r"\b[1-7]g\.(\d{1,3})gb\b")
_ENDED_BY = re.compile(
    r"CANCELLED AT \S{1,40} DUE TO (TIME LIMIT|PREEMPTION|NODE FAILURE|JOB REQUEUE|JOB REQUEUED)"
    r"|\b(DeadlineExceeded|TERM_RUNLIMIT|TERM_PREEMPT|Preempted)\b|PBS: job killed: (walltime)"
)
_DEVICE_FAULT = re.compile(
    r"device-side assert|Assertion `[^`]{1,200}` failed|illegal memory access was encountered|CUDA error: misaligned address"
)

# Of a large log the words that tell stand near its ends and near its messages. Our own bound.
_MAX_CHARACTERS = 2 << 20


def hints_in(text: str) -> Hints:
    """What words of the text say. A line of advice in the message itself does not count as a setting."""
    if len(text) > _MAX_CHARACTERS:
        text = text[: _MAX_CHARACTERS // 2] + text[-_MAX_CHARACTERS // 2 :]
    return Hints(
        strategies=tuple(name for name, pattern in _STRATEGIES if pattern.search(text)),
        zero_stage=_zero_stage(text),
        num_ranks=_most(_NUM_RANKS.finditer(text)),
        vocab_sizes=_vocabularies(text),
        is_vocab_told=_VOCAB.search(text) is not None,
        gpu_names=tuple(dict.fromkeys(match[1].strip() for match in list(_GPU_NAME.finditer(text))[:200]))[
            :8
        ],
        expandable_segments=_expandable(text),
        memory_fraction=_fraction(text),
        torch_version=_first(_VERSION, text),
        is_windows=_WINDOWS.search(text) is not None,
        is_mig=_MIG.search(text) is not None,
        mig_gigabytes=tuple(sorted({int(match[1]) for match in list(_MIG_SIZE.finditer(text))[:200]}))[:16],
        ended_by=_ended_by(text),
        has_device_fault=_DEVICE_FAULT.search(text) is not None,
    )


def joined_hints(all_hints: Sequence[Hints]) -> Hints:
    """The hints of several texts of one job."""
    stages = [each.zero_stage for each in all_hints if each.zero_stage is not None]
    ranks = [each.num_ranks for each in all_hints if each.num_ranks is not None]
    fractions = [each.memory_fraction for each in all_hints if each.memory_fraction is not None]
    known = [each.expandable_segments for each in all_hints if each.expandable_segments is not None]
    return Hints(
        strategies=tuple(dict.fromkeys(name for each in all_hints for name in each.strategies)),
        zero_stage=max(stages) if stages else None,
        num_ranks=max(ranks) if ranks else None,
        vocab_sizes=tuple(dict.fromkeys(size for each in all_hints for size in each.vocab_sizes))[:8],
        is_vocab_told=any(each.is_vocab_told for each in all_hints),
        gpu_names=tuple(dict.fromkeys(name for each in all_hints for name in each.gpu_names))[:8],
        expandable_segments=any(known) if known else None,
        memory_fraction=fractions[0] if fractions else None,
        torch_version=next((each.torch_version for each in all_hints if each.torch_version), None),
        is_windows=any(each.is_windows for each in all_hints),
        is_mig=any(each.is_mig for each in all_hints),
        mig_gigabytes=tuple(sorted({size for each in all_hints for size in each.mig_gigabytes})),
        ended_by=next((each.ended_by for each in all_hints if each.ended_by), None),
        has_device_fault=any(each.has_device_fault for each in all_hints),
    )


def _ended_by(text: str) -> str | None:
    match = _ENDED_BY.search(text)
    return _groups(match).lower().removeprefix("term_") if match else None


def _groups(match: re.Match[str]) -> str:
    return next(each for each in match.groups() if each is not None)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return _groups(match) if match else None


def _most(matches: Iterable[re.Match[str]]) -> int | None:
    values = [int(_groups(match)) for _, match in zip(range(1000), matches, strict=False)]
    return max(values, default=None)


def _zero_stage(text: str) -> int | None:
    stages = []
    for _, match in zip(range(200), _ZERO_STAGE.finditer(text), strict=False):
        word = _groups(match)
        stages.append(int(word) if word.isdigit() else 2 if word == "stage_1_and_2" else 3)
    return max(stages, default=None)


def _vocabularies(text: str) -> tuple[int, ...]:
    told = [int(_groups(match)) for _, match in zip(range(50), _VOCAB.finditer(text), strict=False)]
    if told:
        return tuple(dict.fromkeys(told))[:8]
    return tuple(size for pattern, sizes in _VOCAB_OF if pattern.search(text) for size in sizes)


def _expandable(text: str) -> bool | None:
    """Whether the setting is seen in use; PyTorch's own advice ("try setting …") is no sign of it."""
    for _, match in zip(range(5000), _EXPANDABLE.finditer(text), strict=False):
        before = text[max(0, match.start() - 60) : match.start()]
        if "setting" not in before and "try" not in before:
            return match[1] in ("True", "true", "1")
    return None


def _fraction(text: str) -> float | None:
    match = _FRACTION.search(text)
    return float(match[1]) if match else None
