"""Sizes that a script claims in its comments and names, held against the sizes that it gives."""

from __future__ import annotations

import re

from distdoctor.oom.configs.parameter_count import parameters_of, size_in_name
from distdoctor.oom.configs.reading import Reading
from distdoctor.oom.configs.shell.script import Script
from distdoctor.oom.facts.launch import ConfigKey, Defect
from distdoctor.oom.shape import Model

# Names round: "7B" is 6.74, "405B" is 405.85, "13B" is 13.02, "1.5B" is 1.54. Beyond this it is another model. Our own bound.
MAX_RATIO = 1.5

_OF_A_MODEL = re.compile(
    r"\b\d{1,4}(?:\.\d{1,2})?\s?[bB](?:illion)?[\s-]+(?:parameters?|params?|models?|weights|LLM|config|network)\b"
    r"|\b(?:llama|gpt|qwen|mistral|bloom|falcon|deepseek|nemotron|opt|gemma|phi)[\w.\s-]{0,12}?\d{1,4}(?:\.\d{1,2})?[bB]\b",
    re.IGNORECASE,
)
_GPU_PRESET = re.compile(
    r"\b(\d{1,5})\s*(?:x\s*)?(?:NVIDIA\s+)?([AHBVLG][A-Z]?\d{2,3}\w*)\b|\b(\d{1,5})\s+GPUs?\b", re.IGNORECASE
)


def check_claims(reading: Reading, script: Script) -> None:
    """Adds a defect where the number of parameters is another than a comment or the job's name says."""
    model = reading.get("model")
    if not isinstance(model, Model) or model.shape is None or not model.shape.vocab_size:
        return
    count = parameters_of(model)
    if not count:
        return
    for source, text, line in _claims(script):
        size = size_in_name(text.replace("illion", ""))
        if size is None or 1 / MAX_RATIO <= count / size <= MAX_RATIO:
            continue
        reading.defect(
            Defect.NAME_DISAGREES,
            f"{source} says {size / 1e9:g}B parameters, the sizes make {count / 1e9:.2f}B"[:80],
            ConfigKey(name=source, value=text[:80], line=line),
            why="Memory and speed follow the sizes, not the name; one of the two is not what was meant.",
            fix="correct the sizes, or the text",
            sure=False,
        )
        return


def _claims(script: Script) -> list[tuple[str, str, int]]:
    claims = [
        ("a comment", found[0], comment.line)
        for comment in script.comments
        if len({each.lower() for each in re.findall(r"\d+(?:\.\d+)?\s?[bB]\b", comment.text)}) == 1
        and (found := _OF_A_MODEL.search(comment.text))
        and not re.search(r"tokens?\b|\d+x\d|a\d+(?:\.\d)?b|\bnot\b|instead", comment.text, re.IGNORECASE)
    ]
    for each in script.directives:
        if each.name == "job-name" and not re.search(r"\d+x\d|a\d+(?:\.\d)?b", each.value, re.IGNORECASE):
            claims.append(("the job's name", each.value.replace("_", "-"), each.line))
    for name in ("MODEL_SIZE", "MODEL_NAME", "EXP_NAME", "RUN_NAME", "JOB_NAME"):
        variable = script.variables.get(name)
        if variable is not None and variable.is_known and re.search(r"\d\s?[bB](?![a-zA-Z])", variable.value):
            claims.append((f"${name}", variable.value.replace("_", "-"), variable.line))
    return claims


def gpus_in_comment(text: str) -> str | None:
    """`128 H100 GPUs` of a comment that says for how many GPUs a file was made; None when it says none."""
    found = _GPU_PRESET.search(text)
    if found is None or not re.search(r"\bGPUs?\b|preset|tested|designed|fits?|runs?\b", text, re.IGNORECASE):
        return None
    return f"{found[1]} {found[2]} GPUs" if found[1] else f"{found[3]} GPUs"
