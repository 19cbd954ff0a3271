"""A user's own module: simulated with torch's own code, or refused with the reason, the op and the module."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from distdoctor.errors import UsageError
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.facts.simulated import RoleSimulation, SimulationFailure
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.settings import Checkpointing, DataParallel, Offload, Precision, Settings
from distdoctor.oom.simulation.children import simulate_module
from distdoctor.oom.simulation.inputs import FunctionName, TensorInput, parse_inputs, parse_module
from distdoctor.oom.simulation.messages import Answer, Question, decode_answer, encode_question
from distdoctor.oom.simulation.own_job import job_of_module, own_module_of
from distdoctor.oom.simulation.roles import Role
from forkpool import ForkPool
from oom.user_modules import BAD, GPT, HF

SCENARIOS = Path(__file__).with_name("own_module_scenarios.py")
# Long enough for torch to be imported on a busy machine.
HANGS_S = 30
TOKENS = ("2x32:int64", "labels=2x32:int64")
HF_BATCH = ("input_ids=2x32:int64", "attention_mask=2x32:int64", "labels=2x32:int64")
NUM_PARAMS = 4 * (64 * 192 + 192 + 64 * 64 + 64 + 2 * 4 * 64 * 64 + 5 * 64 + 3 * 64) + 512 * 64


@pytest.fixture(scope="module")
def pool() -> Iterator[ForkPool]:
    pytest.importorskip("torch")
    with ForkPool(torch=True, scenarios=SCENARIOS) as pool:
        yield pool


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "my_pkg").mkdir()
    for name, text in (("my_pkg/__init__", ""), ("my_pkg/gpt", GPT), ("hf", HF), ("bad", BAD)):
        (folder / f"{name}.py").write_text(text)
    (folder / "broken.py").write_text("import a_kernel_library_of_theirs\n")
    (folder / "syntax.py").write_text("def build(:\n")
    return folder


def question(folder: Path, text: str, inputs: tuple[str, ...], settings: Settings) -> str:
    module = own_module_of(text, inputs, settings=settings, folder=str(folder))
    ranks = job_of_module(module).mesh.num_ranks
    role = Role(words="your module", stage=0, rank=0, num_ranks=ranks, chunks=())
    return encode_question(Question(own_module=module, role=role))


class Asked:
    """The pool and the folder, so that a test asks in one line."""

    def __init__(self, pool: ForkPool, folder: Path) -> None:
        self.pool, self.folder = pool, folder

    def answer(self, text: str, inputs: tuple[str, ...] = (), settings: Settings | None = None) -> Answer:
        asked = question(self.folder, text, inputs, settings or Settings())
        outcome = self.pool.run("answer", world_size=1, args={"question": asked}, limit_s=60)[0]
        assert outcome.ending == "returned", outcome.value
        answer = decode_answer(outcome.value)
        assert answer is not None
        return answer

    def role(
        self, text: str, inputs: tuple[str, ...] = (), settings: Settings | None = None
    ) -> RoleSimulation:
        answer = self.answer(text, inputs, settings)
        assert answer.role is not None, answer.failure
        return answer.role

    def failure(self, text: str, inputs: tuple[str, ...] = ("4x16:float32",)) -> SimulationFailure:
        answer = self.answer(text, inputs)
        assert answer.failure is not None, answer.role
        return answer.failure


@pytest.fixture(scope="module")
def ask(pool: ForkPool, folder: Path) -> Asked:
    return Asked(pool, folder)


@pytest.fixture(scope="module", autouse=True)
def dying(folder: Path) -> Iterator[dict[str, Future[SimulationFailure]]]:
    """Children that do not come to an end; they are started first, for one of them takes its whole time."""
    pytest.importorskip("torch")

    def failure_of(function: str) -> SimulationFailure:
        module = own_module_of(f"bad:{function}", ("4x16:float32",), folder=str(folder))
        limit_s = HANGS_S if function.startswith("hangs") else 120
        simulation = simulate_module(module, timeout_s=limit_s, checks_itself=False)
        assert not simulation.roles
        return simulation.failures[0]

    functions = ("hangs_in_forward", "ends", "killed", "ends_in_forward")
    with ThreadPoolExecutor(max_workers=2) as threads:
        yield {function: threads.submit(failure_of, function) for function in functions}


@pytest.fixture(scope="module")
def plain(ask: Asked) -> RoleSimulation:
    """On one rank, nothing asked for."""
    return ask.role("my_pkg.gpt:build", TOKENS)


def most(role: RoleSimulation, category: Category) -> int:
    """Of one category, at the peak of any phase."""
    return max(peak.by_category.get(category, 0) for peak in role.peaks)


# What is said on the command line.


def test_inputs_are_shapes_with_types_by_position_and_by_name() -> None:
    assert parse_inputs(["8x1024:int64", "mask=8x1:bool", "x=3:bf16"]) == (
        TensorInput(name=None, shape=(8, 1024), dtype="int64"),
        TensorInput(name="mask", shape=(8, 1), dtype="bool"),
        TensorInput(name="x", shape=(3,), dtype="bfloat16"),
    )
    assert parse_inputs(["2,3:torch.float32"])[0].shape == (2, 3)  # type: ignore[index]


def test_inputs_may_be_a_function() -> None:
    assert parse_inputs(["my_pkg.data:make_batch"]) == FunctionName(
        module="my_pkg.data", function="make_batch"
    )


@pytest.mark.parametrize(
    "texts",
    [
        ["8x1024"],
        ["8x:int64"],
        ["0x4:int64"],
        ["-1x4:int64"],
        ["8x1024:int65"],
        ["1 x=8:int64"],
        ["a=8:int64", "a=8:int64"],
        ["999999x999999x999999:int64"],
        ["a:b", "2x3:int64"],
        ["2:int64"] * 100,
        ["٣x٣:int64" * 50],
        [""],
    ],
)
def test_inputs_that_are_neither_are_usage_errors(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_inputs(texts)


def test_a_module_is_named_as_in_an_import_or_as_a_file() -> None:
    assert parse_module("a.b:build") == (FunctionName(module="a.b", function="build"), ".")
    assert parse_module("src/m.py:Model.make")[1] == "src"


@pytest.mark.parametrize("text", ["a.b", "a-b:build", ":build", "a:", "my-model.py:build", "a:b()", "a:1"])
def test_what_names_no_function_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_module(text)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(tp=2, world_size=4),
        Settings(world_size=4, strategy=DataParallel.ZERO3),
        Settings(offload_optimizer=Offload.CPU),
        Settings(world_size=2, strategy=DataParallel.NONE),
    ],
)
def test_a_job_that_nobody_can_cut_a_users_module_for_is_a_usage_error(settings: Settings) -> None:
    with pytest.raises(UsageError):
        own_module_of("a:b", settings=settings)


# What is simulated.


def test_a_module_is_broken_down_by_its_own_names(plain: RoleSimulation) -> None:
    role = plain
    by_category = role.peak.by_category
    assert NUM_PARAMS * 4 <= by_category[Category.PARAMETERS] <= NUM_PARAMS * 4 * 1.02  # blocks of 512
    assert by_category[Category.OPTIMIZER] >= NUM_PARAMS * 8
    assert {"h.*.up", "h.*.qkv", "wte"} <= {each.module for each in role.modules}
    assert {point.phase for point in role.timeline} > {Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER_STEP}
    words = " ".join(role.notes)
    assert "scalar among 2 outputs" in words and "RMSNorm" in words and "dropout" in words


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("my_pkg.gpt:with_inputs", ()),
        ("my_pkg.gpt:build", ("my_pkg.gpt:make_batch",)),
        ("my_pkg.gpt:compiled", TOKENS),
    ],
)
def test_inputs_come_from_the_function_or_from_another(
    ask: Asked, plain: RoleSimulation, text: str, inputs: tuple[str, ...]
) -> None:
    assert ask.role(text, inputs).peak.num_bytes == plain.peak.num_bytes


def test_inputs_come_from_an_attribute_and_a_loss_is_made_where_there_is_none(ask: Asked) -> None:
    role = ask.role("my_pkg.gpt:Simple")
    assert any("mean of the output" in each for each in role.notes)


def test_sharding_is_found_on_the_blocks_that_repeat(ask: Asked, plain: RoleSimulation) -> None:
    settings = Settings(world_size=4, strategy=DataParallel.FSDP)
    role = ask.role("my_pkg.gpt:build", TOKENS, settings)
    assert any("4 x Block in h" in each for each in role.notes)
    share = role.peak.by_category[Category.PARAMETERS] / plain.peak.by_category[Category.PARAMETERS]
    assert 0.25 <= share <= 0.27
    assert most(role, Category.GATHERED)
    assert role.num_ranks == 4


def test_ddp_has_buckets_and_zero_redundancy_shares_the_optimizer(ask: Asked) -> None:
    ddp = ask.role("my_pkg.gpt:build", TOKENS, Settings(world_size=4, strategy=DataParallel.DDP))
    assert ddp.peak.by_category[Category.COMMUNICATION] >= NUM_PARAMS * 4
    zero = ask.role("my_pkg.gpt:build", TOKENS, Settings(world_size=4, strategy=DataParallel.ZERO_REDUNDANCY))
    assert zero.peak.by_category[Category.OPTIMIZER] < 0.3 * ddp.peak.by_category[Category.OPTIMIZER]


def test_checkpointing_keeps_less_and_computes_again(ask: Asked, plain: RoleSimulation) -> None:
    role = ask.role("my_pkg.gpt:build", TOKENS, Settings(checkpointing=Checkpointing.FULL))
    assert most(role, Category.ACTIVATIONS) < 0.5 * most(plain, Category.ACTIVATIONS)
    assert any(peak.phase is Phase.RECOMPUTATION for peak in role.peaks)


def test_code_for_cuda_is_understood_and_its_types_are_kept(ask: Asked) -> None:
    role = ask.role("my_pkg.gpt:build_in_16_bit_on_cuda", TOKENS)
    assert role.peak.by_category[Category.PARAMETERS] <= NUM_PARAMS * 2 * 1.03
    words = " ".join(role.notes)
    assert "`cuda` in your code" in words and "flash kernel" in words and "bfloat16" in words


def test_a_model_like_those_of_transformers_runs_with_its_mask_and_cache(ask: Asked) -> None:
    role = ask.role("hf:build", HF_BATCH)
    words = " ".join(role.notes)
    assert "`.loss`" in words
    # Its constructor reads values, so that it was built another way.
    assert "could not be built under fake tensors" in words
    sharded = Settings(
        world_size=4,
        strategy=DataParallel.FSDP,
        precision=Precision.MIXED,
        checkpointing=Checkpointing.FULL,
        accumulation_steps=4,
    )
    role = ask.role("hf:build", HF_BATCH, sharded)
    words = " ".join(role.notes)
    assert "use_cache is off" in words and "4 x DecoderLayer in layers" in words
    assert "3 of 4 micro-batches" in words


def test_a_mask_that_leaves_something_out_costs_what_it_costs(ask: Asked) -> None:
    role = ask.role("hf:build", ("hf:padded",))
    assert any("attention with a mask" in each for each in role.notes)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(
            world_size=4,
            strategy=DataParallel.FSDP,
            checkpointing=Checkpointing.FULL,
            precision=Precision.MIXED,
            accumulation_steps=2,
        ),
        Settings(world_size=4, strategy=DataParallel.FSDP, dp_replicate=2, dp_shard=2, accumulation_steps=3),
        Settings(world_size=4, strategy=DataParallel.DDP, accumulation_steps=2),
        Settings(world_size=4, strategy=DataParallel.ZERO_REDUNDANCY),
    ],
    ids=["fsdp2 mixed accumulated", "hsdp accumulated", "ddp accumulated", "zero-redundancy"],
)
def test_the_simulation_equals_what_the_allocator_counts(
    pool: ForkPool, folder: Path, settings: Settings
) -> None:
    asked = question(folder, "my_pkg.gpt:build", TOKENS, settings)
    outcome = pool.run("peaks", world_size=1, args={"question": asked}, limit_s=120)[0]
    assert outcome.ending == "returned", outcome.value
    simulated, measured = outcome.value
    # The real run holds its two inputs once more, from which each micro-batch is copied.
    assert abs(simulated - measured) <= 0.001 * measured, (simulated, measured)


# What is refused, and in which words.


@pytest.mark.parametrize(
    ("function", "op", "words", "advice"),
    [
        ("item", "aten._local_scalar_dense.default", "value of a tensor is read", "keep it a tensor"),
        ("branch", "aten._local_scalar_dense.default", "an `if` on a tensor", "memory snapshot"),
        ("formats", None, "f-string", "keep it a tensor"),
        ("nonzero", "aten.nonzero.default", "depends on values: aten.nonzero", "static shapes"),
        ("bincount", "aten.bincount.default", "depends on values: aten.bincount", "static shapes"),
        ("as_numpy", None, "array of numpy", "with torch"),
        ("no_fake", "users.kernel.default", "no fake implementation", "register_fake"),
        ("shapes", None, "same reduction dim", "--inputs fit"),
        ("calls_cuda", None, "needs a GPU", "memory snapshot"),
        ("detached", None, "nothing in the output of forward has a gradient", "return a loss"),
    ],
)
def test_a_forward_that_cannot_run_names_op_module_and_line_and_counts_states(
    ask: Asked, function: str, op: str | None, words: str, advice: str
) -> None:
    failure = ask.failure(f"bad:{function}")
    assert failure.op == op
    assert words in failure.reason
    assert advice in failure.advice
    if function != "detached":
        assert failure.module == "parts.inner"
        assert ", at bad.py line " in failure.reason
    assert failure.states is not None and failure.states.num_params == 16 * 17
    assert failure.states.by_category[Category.OPTIMIZER] == 16 * 17 * 8
    assert failure.states.how.startswith("model states only")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bad:raises", "raises(): ValueError: depth must be even, at bad.py line"),
        ("bad:returns_none", "returned None, not an nn.Module"),
        ("bad:arguments", "takes arguments: depth"),
        ("bad:asks", "asks for something at the terminal"),
        ("bad:exits", "called sys.exit('no data folder')"),
        ("bad:too_large", "more memory than this host can give"),
        ("bad:group", "process group itself"),
        ("bad:frozen", "no trainable parameter"),
        ("bad:lazy", "lazy modules"),
        ("bad:number", "is no function: it is an object of class int"),
        ("bad:nowhere", "there is no `nowhere` in module `bad` (bad.py)"),
        ("nowhere:build", "there is no module `nowhere`"),
        ("broken:build", "it needs `a_kernel_library_of_theirs`, which is not installed"),
        ("syntax:build", "SyntaxError"),
    ],
)
def test_a_module_that_cannot_be_built_is_one_line(ask: Asked, text: str, words: str) -> None:
    failure = ask.failure(text)
    assert words in failure.reason
    assert "\n" not in failure.reason and "Traceback" not in failure.reason
    assert failure.states is None


def test_inputs_that_nobody_gave_are_asked_for(ask: Asked) -> None:
    failure = ask.failure("my_pkg.gpt:build", ())
    assert "nothing is known of the inputs of GPT" in failure.reason
    assert "--inputs 8x1024:int64" in failure.advice
    assert failure.states is not None


def test_a_module_that_prints_moves_starts_processes_and_holds_a_huge_table_is_simulated(ask: Asked) -> None:
    assert ask.role("bad:unruly", ("4x16:float32",)).peak.num_bytes < 1 << 20


def test_a_child_that_dies_or_hangs_says_so_and_keeps_the_states_that_it_told(
    dying: dict[str, Future[SimulationFailure]],
) -> None:
    found = {function: future.result() for function, future in dying.items()}
    assert found["ends"].reason.startswith("your code ended the process, with status 7")
    assert "signal 9" in found["killed"].reason
    assert "status 5" in found["ends_in_forward"].reason
    assert f"not done after {HANGS_S} s" in found["hangs_in_forward"].reason
    for function in ("ends_in_forward", "hangs_in_forward"):
        states = found[function].states
        assert states is not None and states.num_params == 16 * 17
