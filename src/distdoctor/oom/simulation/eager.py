"""What is simulated of a job that is compiled, or computes in 8 bit: the same job, eager and in 16 bit, which keeps more."""

from __future__ import annotations

from dataclasses import replace

from distdoctor.oom.job import Job, resolve


def eager_words(job: Job) -> str:
    """`simulated without float8, which keeps less: an upper bound`; empty where the job asks for neither."""
    asked = [
        words for words, flag in (("torch.compile", job.said.compiled), ("float8", job.said.fp8)) if flag
    ]
    keeps = "keeps" if len(asked) == 1 else "keep"
    return f"simulated without {' and '.join(asked)}, which {keeps} less: an upper bound" if asked else ""


def as_eager(job: Job) -> Job:
    """The job without either."""
    if not eager_words(job):
        return job
    return resolve(replace(job.said, compiled=None, fp8=None))
