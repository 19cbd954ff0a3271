"""What one pod of a manifest has: GPUs, host memory, /dev/shm, variables, and the command it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.oom.configs.commands.command_line import Launch, find_launch
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import read_script
from distdoctor.oom.configs.text.tree import Entry, Section
from distdoctor.oom.configs.text.values import as_bytes, as_flag, as_word, template_in
from distdoctor.oom.configs.text.word_lines import words_with_lines
from distdoctor.oom.facts.launch import Defect
from distdoctor.units import MIB, format_bytes

_GPU = re.compile(
    r"^(?:nvidia\.com/(?:gpu|mig-.*|gpu\.shared)|amd\.com/gpu|gpu\.intel\.com/\w+|habana\.ai/gaudi|aliyun\.com/gpu.*)$"
)
_VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")

# The container runtimes' default size of /dev/shm.
DEFAULT_SHM_BYTES = 64 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """What decides memory and ranks in one pod."""

    container: Section
    gpus: int | None
    """None: a variable, or not asked for."""
    gpu_key: Entry | None
    variables: dict[str, Entry]


def main_container(pod: Section) -> Section:
    """The container that trains: the one that asks for GPUs, else the first."""
    containers = pod.sections("containers")
    with_gpus = [each for each in containers if _gpu_entry(each, "limits") or _gpu_entry(each, "requests")]
    return (with_gpus or list(containers) or [Section()])[0]


def read_pod(reading: Reading, pod: Section) -> Pod:
    """GPUs and variables of the pod's main container; wrong requests are told."""
    container = main_container(pod)
    limit, request = _gpu_entry(container, "limits"), _gpu_entry(container, "requests")
    key = limit or request
    gpus = reading.integer(key, settles="gpus_per_node", what="GPUs of a pod") if key is not None else None
    _compare(reading, limit, request)
    _memory(reading, container)
    variables = _variables(container)
    return Pod(container=container, gpus=gpus, gpu_key=key, variables=variables)


def _gpu_entry(container: Section, kind: str) -> Entry | None:
    resources = container.section("resources").section(kind)
    return next((each for name, each in resources.entries.items() if _GPU.match(name)), None)


def _compare(reading: Reading, limit: Entry | None, request: Entry | None) -> None:
    if request is None:
        return
    if limit is None or as_word(limit.value) != as_word(request.value):
        reading.defect(
            Defect.CONFLICT,
            "GPUs are requested without an equal limit",
            request,
            limit,
            why="Kubernetes refuses the pod: of GPUs the limit must be set, and request and limit must be equal.",
            fix=f"set `limits: {{{request.name.rsplit('.limits.', 1)[-1].rsplit('.requests.', 1)[-1]}: …}}` to the same number",
            stops=True,
        )


def _memory(reading: Reading, container: Section) -> None:
    entry = container.section("resources").section("limits").get("memory")
    limit = as_bytes(entry.value) if entry is not None else None
    if entry is not None and limit is not None:
        reading.host_memory_limit_bytes = limit
        reading.say("host memory", f"each pod may use {format_bytes(limit)} of host memory", entry)


def _variables(container: Section) -> dict[str, Entry]:
    found: dict[str, Entry] = {}
    for each in container.sections("env"):
        name = each.get("name")
        word = as_word(name.value) if name is not None else None
        if word:
            value = each.get("value")
            found[word] = Entry(
                name=word,
                value=as_word(value.value) if value is not None else None,
                line=(value or each.entries["name"]).line,
            )
    return found


def read_shm(reading: Reading, pod: Section, container: Section) -> None:
    """Where /dev/shm comes from: NCCL and data loaders of all ranks of the pod share it."""
    host_ipc = pod.get("hostIPC")
    if host_ipc is not None and as_flag(host_ipc.value):
        reading.say("launch", "/dev/shm is that of the host (hostIPC)", host_ipc)
        return
    mount = next(
        (
            each
            for each in container.sections("volumeMounts")
            if _word(each.get("mountPath")).rstrip("/") == "/dev/shm"
        ),
        None,
    )
    if mount is None:
        reading.defect(
            Defect.HOST_MEMORY,
            f"no volume at /dev/shm: the pod gets the runtime's {format_bytes(DEFAULT_SHM_BYTES)}",
            container.get("volumeMounts"),
            why="NCCL inside a node and PyTorch's data-loader workers exchange data there; too small shows as `Bus "
            "error`, or as `No space left on device` from NCCL.",
            fix="mount an emptyDir with `medium: Memory` at /dev/shm (it counts against the pod's memory limit)",
            sure=False,
        )
        return
    name = _word(mount.get("name"))
    volume = next((each for each in pod.sections("volumes") if _word(each.get("name")) == name), Section())
    host_path, empty = volume.section("hostPath").get("path"), volume.get("emptyDir")
    if host_path is not None:
        reading.say(
            "launch",
            "/dev/shm is the host's, by hostPath: all pods of a node share it, and what a dead job leaves stays",
            host_path,
            mount.get("mountPath"),
        )
    elif empty is not None:
        _empty_dir(reading, container, volume.section("emptyDir"), empty, mount)


def _empty_dir(reading: Reading, container: Section, section: Section, empty: Entry, mount: Section) -> None:
    medium, limit = section.get("medium"), section.get("sizeLimit")
    if _word(medium).lower() != "memory":
        reading.defect(
            Defect.SLOW_BY_DESIGN,
            "/dev/shm is an emptyDir on disk: medium Memory is missing",
            empty,
            mount.get("mountPath"),
            why="Shared memory of data loaders and NCCL then goes through the node's disk.",
            fix="set `emptyDir: {medium: Memory}`",
        )
        return
    size = as_bytes(limit.value) if limit is not None else None
    text = f" of at most {format_bytes(size)}" if size is not None else ""
    reading.say(
        "launch",
        f"/dev/shm is a volume in memory{text}; it counts against the pod's memory limit",
        limit or medium,
    )
    allowed = reading.host_memory_limit_bytes
    if size is not None and allowed is not None and size >= allowed:
        memory = container.section("resources").section("limits").get("memory")
        reading.defect(
            Defect.HOST_MEMORY,
            f"/dev/shm may take {format_bytes(size)}, the whole pod has {format_bytes(allowed)}"
            if size > allowed
            else f"/dev/shm may take {format_bytes(size)}, all that the pod has",
            limit,
            memory,
            why="A volume in memory counts against the memory limit of the container that writes to it: shared memory of data loaders "
            "and NCCL reaches that limit before the volume is full, and the kernel kills a rank with signal 9.",
            fix="raise `resources.limits.memory` to the need of the ranks plus the sizeLimit, or lower the sizeLimit",
            sure=size > allowed,
        )


def _word(entry: Entry | None) -> str:
    return (as_word(entry.value) or "") if entry is not None else ""


def find_pod_launch(reading: Reading, pod: Pod, given: dict[str, str]) -> Launch | None:
    """The launch in the container's command; `given` are variables that the operator sets."""
    words = [*_list(pod.container, "command"), *_list(pod.container, "args")]
    known = {
        name: text
        for name, each in pod.variables.items()
        if (text := as_word(each.value)) and not template_in(text)
    }
    known = {**given, **known}
    shell = _shell_script(words)
    if shell is None:
        return find_launch([_filled(each, known) for each in words])
    text = as_word(shell.value) or ""
    start = (shell.line or 0) if "\n" in text else (shell.line or 1) - 1
    script = read_script(text)
    for note in script.notes[:3]:
        reading.note(f"in the container's script: {note}")
    lines = text.split("\n")
    launches = []
    for command in script.commands:
        line_words = [_filled(each, known) for each in words_with_lines(command, lines, offset=start)]
        found = find_launch(line_words)
        if found is not None:
            launches.append(found)
    if len(launches) > 1:
        reading.note(f"{len(launches)} commands of the container start Python; one was taken")
    return max(launches, key=lambda each: (each.starts_ranks, len(each.arguments.entries)), default=None)


def _list(container: Section, key: str) -> tuple[Entry, ...]:
    entry = container.get(key)
    if entry is None:
        return ()
    return entry.value if isinstance(entry.value, tuple) else (entry,)


def _shell_script(words: list[Entry]) -> Entry | None:
    """The script of `bash -c SCRIPT`, or of one string that holds a whole command."""
    texts = [as_word(each.value) or "" for each in words]
    if texts and texts[0].rsplit("/", 1)[-1] in ("bash", "sh", "ash", "dash", "zsh"):
        for position, text in enumerate(texts[1:], start=1):
            if text.startswith("-") and text.endswith("c") and position + 1 < len(words):
                return words[position + 1]
    if len(words) == 1 and re.search(r"\s", texts[0]):
        return words[0]
    return None


def _filled(word: Entry, known: dict[str, str]) -> Entry:
    """The word with variables of the container's environment in it (`$(NAME)` by Kubernetes, `$NAME` by the shell)."""
    text = word.value
    if not isinstance(text, str) or "$" not in text:
        return word
    filled = _VARIABLE.sub(lambda found: known.get(found[1] or found[2] or found[3], found[0]), text)
    return Entry(name=word.name, value=filled, line=word.line)
