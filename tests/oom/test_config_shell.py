"""Scripts are followed as far as their text decides, and never run."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from distdoctor.oom.configs.shell.arithmetic import evaluate
from distdoctor.oom.configs.shell.script import Command, Script, read_script
from distdoctor.oom.configs.shell.values import UnknownKind

SCRIPTS = Path(__file__).parent / "launch_scripts"


def words(script: Script, program: str) -> list[str]:
    """The words of the first command that has `program` among them."""
    return [token.text for token in command(script, program).tokens]


def command(script: Script, program: str) -> Command:
    return next(each for each in script.commands if any(program in token.text for token in each.tokens))


def test_a_default_counts_when_nothing_sets_the_variable() -> None:
    script = read_script('TP=${TP:-4}\n: "${PP:=2}"\nrun --tp $TP --pp ${PP}\n')
    assert words(script, "run") == ["run", "--tp", "4", "--pp", "2"]
    assert script.unset == ()


def test_arrays_grow_and_expand_into_separate_words() -> None:
    script = read_script('A=(--x 1  # a comment ) here\n --y)\nA+=("--z a b")\nrun "${A[@]}"\nwalk ${A[@]}\n')
    assert words(script, "run") == ["run", "--x", "1", "--y", "--z a b"]
    assert words(script, "walk") == ["walk", "--x", "1", "--y", "--z", "a", "b"]


def test_a_string_of_arguments_continued_by_backslashes_is_split() -> None:
    script = read_script('A=" \\\n  --x 1 \\\n  --y 2 \\\n"\n# note\nrun $A \\\n --last\n')
    assert words(script, "run") == ["run", "--x", "1", "--y", "2", "--last"]


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2*8", 16),
        ("(2 + 3) * 4 - 1", 19),
        ("7/2", 3),
        ("-7/2", -3),
        ("-7 % 3", -1),
        ("2**10", 1024),
        ("1 << 4", 16),
        ("3 > 2 ? 8 : 4", 8),
        ("220_000_000", 220_000_000),
        ("0x10", 16),
        ("!0 && 1", 1),
        ("N*8", 32),
        ("${N} * 2", 8),
        ("1/0", None),
        ("2**100", None),
        ("9" * 50, None),
        ("M+1", None),
        ("__import__('os')", None),
        ("(" * 200 + "1" + ")" * 200, None),
        ("1 +", None),
    ],
)
def test_integer_arithmetic(expression: str, value: int | None) -> None:
    assert evaluate(expression, {"N": 4}.get) == value


def test_arithmetic_over_variables_and_expr() -> None:
    script = read_script(
        'N=4\nG=8\nW=$((N*G))\nV=$(expr $N \\* $G)\nU=$(($N * $G / 2))\n(( T = N + 1 ))\nrun $W $V $U $T $(echo "$N*2" | bc)\n'
    )
    assert words(script, "run") == ["run", "32", "32", "16", "5", "8"]


def test_directives_give_slurms_variables() -> None:
    script = read_script(
        "#!/bin/bash\n#SBATCH --nodes=24   # two dozen\n#SBATCH --gpus-per-node=h100:8\n##SBATCH --nodes=2\nexport N=$SLURM_NNODES\nrun $N $SLURM_JOB_NUM_NODES\n#SBATCH --time=1:00\n"
    )
    assert words(script, "run") == ["run", "24", "24"]
    assert [(each.name, each.is_ignored) for each in script.directives] == [
        ("nodes", False),
        ("gpus-per-node", False),
        ("time", True),
    ]


def test_a_condition_over_a_variable_that_nothing_sets_takes_no_branch() -> None:
    script = read_script((SCRIPTS / "untaken_branches.sbatch").read_text(encoding="utf-8"))
    unset = {each.name: each for each in script.unset}
    assert unset["NODES"].kind is UnknownKind.NEVER_SET
    assert unset["TP"].kind is UnknownKind.NOT_TAKEN
    assert [(each.value, each.line) for each in unset["TP"].alternatives] == [("4", 6), ("8", 10)]
    tokens = command(script, "pretrain").tokens
    value = tokens[[token.text for token in tokens].index("--tensor-model-parallel-size") + 1]
    assert value.text == "$TP"
    assert not value.is_known


def test_words_of_one_branch_are_marked_when_the_condition_is_open() -> None:
    script = read_script(
        'A=(--x)\nif [ -d /opt/a ]; then A+=(--y 1); fi\nB=""\nif [ -f b ]; then B="--z"; fi\nrun ${A[@]} $B --w\n'
    )
    tokens = command(script, "run").tokens
    assert [(token.text, token.condition is not None) for token in tokens] == [
        ("run", False),
        ("--x", False),
        ("--y", True),
        ("1", True),
        ("--z", True),
        ("--w", False),
    ]


def test_different_values_of_two_branches_are_a_choice() -> None:
    script = read_script("if nvidia-smi | grep -q H100; then TP=4; else TP=8; fi\nrun --tp $TP\n")
    unknown = command(script, "run").tokens[2].unknowns[0]
    assert unknown.kind is UnknownKind.CHOICE
    assert [each.value for each in unknown.alternatives] == ["4", "8"]


def test_case_over_a_default_takes_its_arm() -> None:
    script = read_script(
        "SIZE=${1:-7b}\ncase $SIZE in\n  7b|8b) L=32 ;;\n  (70b) L=80 ;;\n  *) echo no; exit 1 ;;\nesac\nrun $L\n"
    )
    assert words(script, "run") == ["run", "32"]


def test_an_argument_that_the_script_insists_on_leaves_the_arms_open() -> None:
    script = read_script(
        'SIZE=$1\nif [ -z "$SIZE" ]; then echo usage; exit 1; fi\ncase $SIZE in\n7b) L=32;;\n70b) L=80;;\n*) exit 2;;\nesac\nrun $L\n'
    )
    unknown = command(script, "run").tokens[1].unknowns[0]
    assert [each.value for each in unknown.alternatives] == ["32", "80"]


def test_a_count_of_arguments_is_no_reason_to_read_no_further() -> None:
    script = read_script('if [ "$#" -lt 2 ]; then\n  echo "usage"\n  exit 1\nfi\nrun --data $1\n')
    assert words(script, "run") == ["run", "--data", "$1"]


def test_functions_loops_and_local_variables() -> None:
    script = read_script(
        'go() {\n local n=$1\n run --n $n\n}\nmain() { go 8; }\nfor m in 4; do walk $m; done\nmain "$@"\n'
    )
    assert words(script, "run") == ["run", "--n", "8"]
    assert words(script, "walk") == ["walk", "4"]


def test_what_bash_is_given_stands_behind_the_launcher() -> None:
    script = read_script(
        'N=8\nsrun -l --nodes=2 bash -c "cd /x; python -m a --n $N \\$SLURM_PROCID 2>&1" | tee log\n'
    )
    assert words(script, "python")[:4] == ["srun", "-l", "--nodes=2", "python"]
    assert words(script, "python")[-2:] == ["8", "$SLURM_PROCID"]


def test_a_document_written_by_the_script_is_kept_with_its_values() -> None:
    script = read_script(
        'M=2\ncat <<EOT > ./ds.$SLURM_JOB_ID.json\n{"a": $M}\nEOT\ncat > b.json <<\'E\'\n{"b": "$M"}\nE\n'
    )
    first, second = script.heredocs
    assert (first.text, first.target) == ('{"a": 2}\n', "./ds.$SLURM_JOB_ID.json")
    assert second.text == '{"b": "$M"}\n'


def test_a_script_given_to_sbatch_is_read_with_its_directives() -> None:
    script = read_script((SCRIPTS / "megatron_fsdp_moe.sh").read_text(encoding="utf-8"))
    assert ("nodes", "fill_in_nodes") in [(each.name, each.value) for each in script.directives]
    assert words(script, "pretrain_gpt.py")[0] == "srun"
    assert "--use-megatron-fsdp" in words(script, "pretrain_gpt.py")


def test_a_document_in_a_substitution() -> None:
    script = read_script("A=$(cat <<EOF\n--x 1 it's\n--y\nEOF\n)\nrun $A\n")
    assert words(script, "run") == ["run", "--x", "1", "it's", "--y"]


def test_a_sourced_file_may_set_what_the_script_does_not() -> None:
    script = read_script("source ./env.sh\nrun $TP\n")
    assert [each.kind for each in script.unset] == [UnknownKind.SOURCED]
    assert script.sources == ("./env.sh",)


def test_text_that_is_no_shell_costs_its_line_only() -> None:
    script = read_script("N=4\n<PUT THE PARTITION HERE>\nfi\n{{ macro(x) }}\nrun $N\n)\nwalk\n")
    assert words(script, "run") == ["run", "4"]
    assert words(script, "walk") == ["walk"]
    assert any("line 3" in note for note in script.notes)


def test_a_script_that_is_cut_off_is_read_to_its_end() -> None:
    script = read_script("N=2\nif [ $N == 2 ]; then\n  run --n $N \\\n")
    assert words(script, "run") == ["run", "--n", "2"]


BOMB = 'A="0123456789"\n' + "".join("A=$A$A$A$A$A$A$A$A$A$A\n" for _ in range(9)) + "run $A\n"
ARRAY_BOMB = "A=(x x)\n" + "A=(${A[@]} ${A[@]} ${A[@]} ${A[@]} ${A[@]} ${A[@]})\n" * 12 + "run ${A[@]}\n"
SUBSTITUTION_BOMB = "A=" + "$(echo " * 60 + "x" + ")" * 60 + "\n"
RECURSION = "f() { f; f; }\nf\nrun\n"
NESTED = "if a; then " * 400 + "run" + "; fi" * 400 + "\n"
BRANCHES = "".join(f"if c{n}; then A=$A{n}; else A={n}; fi\n" for n in range(300)) + "run $A\n"
EVALS = 'A=\'eval "$A"; eval "$A"\'\neval "$A"\n'


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        ARRAY_BOMB,
        SUBSTITUTION_BOMB,
        RECURSION,
        NESTED,
        BRANCHES,
        EVALS,
        '"' * 9999,
        "$(" * 9999,
        "${" * 9999,
        "(" * 9999,
        "`" * 9999,
        "<<E\n" * 2000,
        "a=(" * 3000,
        "x" * 2_000_000,
        "\\\n" * 50_000,
        "[[ " * 3000,
        "case x in\n" * 500,
        "${A//" * 500,
        "\x00\ue000\ue00112\ue002",
        "A=${A#" + "*a" * 50 + "}\n",
    ],
)
def test_hostile_text_ends_soon(text: str) -> None:
    start = time.process_time()
    read_script(text)
    assert time.process_time() - start < 5
