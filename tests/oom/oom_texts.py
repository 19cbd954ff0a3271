"""Out-of-memory messages in the words of each PyTorch version, with numbers of our own."""

from __future__ import annotations

ADVICE_OLD = (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  "
    "See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
ADVICE_NEW = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation.  See documentation for Memory Management  "
    "(https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)


def legacy(
    asked: str,
    total: str,
    allocated: str,
    free: str,
    reserved: str,
    *,
    gpu: int = 0,
    device: str = "CUDA",
    allowed: str = "",
) -> str:
    """PyTorch 1.4 to 2.0."""
    unit = "NPU" if device == "NPU" else "GPU"
    limit = f" {allowed} allowed;" if allowed else ""
    active = f" {allocated} current active;" if device == "NPU" else ""
    return (
        f"RuntimeError: {device} out of memory. Tried to allocate {asked} ({unit} {gpu}; {total} total capacity; "
        f"{allocated} already allocated;{active} {free} free;{limit} {reserved} reserved in total by PyTorch)"
        + ADVICE_OLD
    )


def modern(
    asked: str,
    total: str,
    free: str,
    allocated: str,
    idle: str,
    *,
    process: str | None = None,
    others: tuple[tuple[int, str], ...] = (),
    gpu: int = 0,
    device: str = "CUDA",
    private: str | None = None,
    allowed: str | None = None,
    error: str = "torch.OutOfMemoryError",
    capacity: str = "capacity",
) -> str:
    """PyTorch 2.1 and later; `process` None: NVML told nothing."""
    parts = [
        f"{error}: {device} out of memory. Tried to allocate {asked}. GPU {gpu} has a total {capacity} of {total} of which {free} is free.",
        *(f"Process {pid} has {size} memory in use." for pid, size in others),
    ]
    if process is not None:
        parts.append(f"Including non-PyTorch memory, this process has {process} memory in use.")
    if allowed is not None:
        parts.append(f"{allowed} allowed;")
    pools = f" with {private} allocated in private pools (e.g., CUDA Graphs)," if private else ""
    parts.append(
        f"Of the allocated memory {allocated} is allocated by PyTorch,{pools} and {idle} is reserved by PyTorch but unallocated."
    )
    return " ".join(parts) + ADVICE_NEW


def cuda_async(allocated: str, asked: str, total: str, free: str, limit: str = "17179869184.00 GiB") -> str:
    """The cudaMallocAsync backend."""
    return (
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)\n"
        f"Currently allocated     : {allocated}\nRequested               : {asked}\nDevice limit            : {total}\n"
        f"Free (according to CUDA): {free}\nPyTorch limit (set by user-supplied memory fraction)\n"
        f"                        : {limit}\n"
    )


def mps(allocated: str, other: str, allowed: str, asked: str, *, pool: str = "private") -> str:
    """Apple's MPS."""
    return (
        f"RuntimeError: MPS backend out of memory (MPS allocated: {allocated}, other allocations: {other}, max allowed: {allowed}). "
        f"Tried to allocate {asked} on {pool} pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
        "allocations (may cause system failure)."
    )


def traceback(*frames: tuple[str, str, str], head: bool = True) -> str:
    """A Python traceback: (file, function, code), outermost first; ends with a line end."""
    lines = ["Traceback (most recent call last):"] if head else []
    for number, (file, function, code) in enumerate(frames, start=11):
        lines += [f'  File "{file}", line {number}, in {function}', f"    {code}"]
    return "\n".join(lines) + "\n"


def prefixed(prefix: str, text: str) -> str:
    """Every line with what a launcher puts before it."""
    return "\n".join(prefix + line for line in text.rstrip("\n").split("\n")) + "\n"


MODULE = "/opt/env/torch/nn/modules/module.py"

FORWARD = (
    ("/job/train.py", "main", "loss = engine(batch)"),
    (MODULE, "_call_impl", "return forward_call(*args, **kwargs)"),
)

IN_MLP = (
    *FORWARD,
    ("/job/model.py", "forward", "return self.down(self.act(self.gate(x)) * self.up(x))"),
    ("/opt/env/torch/nn/functional.py", "silu", "return torch._C._nn.silu(input)"),
)

IN_LOSS = (
    *FORWARD,
    ("/job/model.py", "forward", "loss = F.cross_entropy(logits.view(-1, vocab), labels.view(-1))"),
    ("/opt/env/torch/nn/functional.py", "cross_entropy", "return torch._C._nn.cross_entropy_loss("),
)

IN_BACKWARD = (
    ("/job/train.py", "main", "loss.backward()"),
    ("/opt/env/torch/_tensor.py", "backward", "torch.autograd.backward("),
    (
        "/opt/env/torch/autograd/graph.py",
        "_engine_run_backward",
        "return Variable._execution_engine.run_backward(",
    ),
)

IN_FOREACH = (
    ("/job/train.py", "main", "optimizer.step()"),
    ("/opt/env/torch/optim/adamw.py", "step", "adamw("),
    (
        "/opt/env/torch/optim/adamw.py",
        "_multi_tensor_adamw",
        "exp_avg_sq_sqrt = torch._foreach_sqrt(device_exp_avg_sqs)",
    ),
)

IN_STATES = (
    ("/job/train.py", "main", "optimizer.step()"),
    ("/opt/env/torch/optim/adamw.py", "step", "has_complex = self._init_group("),
    ("/opt/env/torch/optim/adamw.py", "_init_group", 'state["exp_avg_sq"] = torch.zeros_like('),
)

MOVES_MODEL = (
    ("/job/train.py", "main", "engine, *_ = deepspeed.initialize(model=model, config=ds)"),
    ("/opt/env/deepspeed/runtime/engine.py", "_configure_distributed_model", "self.module.to(self.device)"),
    (MODULE, "to", "return self._apply(convert)"),
    (MODULE, "convert", "return t.to("),
)

GATHERS = (
    *FORWARD,
    ("/opt/env/torch/distributed/fsdp/_runtime_utils.py", "_pre_forward", "unshard_fn(state, handle)"),
    (
        "/opt/env/torch/distributed/fsdp/_flat_param.py",
        "unshard",
        "flat = self._alloc_padded_unsharded_flat_param()",
    ),
    (
        "/opt/env/torch/distributed/utils.py",
        "_alloc_storage",
        "tensor._typed_storage()._resize_(size.numel())",
    ),
)

EVALUATES = (
    (
        "/opt/env/transformers/trainer.py",
        "evaluation_loop",
        "losses, logits, labels = self.prediction_step(model, inputs, True)",
    ),
    (MODULE, "_call_impl", "return forward_call(*args, **kwargs)"),
    ("/job/model.py", "forward", "hidden = self.norm(hidden + attn)"),
)

SAVES = (
    ("/job/train.py", "save_checkpoint", "state = model.state_dict()"),
    (
        "/opt/env/torch/distributed/fsdp/_state_dict_utils.py",
        "_full_pre_state_dict_hook",
        "_common_unshard_pre_state_dict_hook(",
    ),
    ("/opt/env/torch/distributed/fsdp/_flat_param.py", "unshard", "flat = self._all_gather_flat_param(flat)"),
)

PINS = (
    (
        "/opt/env/deepspeed/runtime/zero/stage3.py",
        "_create_fp32_partitions",
        "flat = get_accelerator().pin_memory(flat)",
    ),
    ("/opt/env/deepspeed/accelerator/cuda_accelerator.py", "pin_memory", "return tensor.pin_memory()"),
)

SETS_DEVICE = (
    ("/job/train.py", "setup", "torch.cuda.set_device(local_rank)"),
    ("/opt/env/torch/cuda/__init__.py", "set_device", "torch._C._cuda_setDevice(device)"),
)

FULL = modern("512.00 MiB", "79.15 GiB", "210.31 MiB", "76.40 GiB", "612.20 MiB", process="78.90 GiB")


def torchrun_table(rank: int, local_rank: int, pid: int, *, code: int = -9, host: str = "node-c") -> str:
    """What torchrun prints at the end of a job that failed."""
    signal = "Signal 9 (SIGKILL) received by PID" if code == -9 else "see the error file of"
    return (
        f"E0612 04:11:09.512000 88 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: {code}) "
        f"local_rank: {local_rank} (pid: {pid}) of binary: /opt/env/bin/python\n"
        "============================================================\ntrain.py FAILED\n"
        "------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n"
        "------------------------------------------------------------\nRoot Cause (first observed failure):\n[0]:\n"
        f"  time      : 2026-06-12_04:11:08\n  host      : {host}\n  rank      : {rank} (local_rank: {local_rank})\n"
        f"  exitcode  : {code} (pid: {pid})\n  error_file: <N/A>\n  traceback : {signal} {pid}\n"
        "============================================================\n"
    )
