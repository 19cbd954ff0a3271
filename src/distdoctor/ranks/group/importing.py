"""The import of torch, which takes seconds, may fail in many ways, and may never end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.identity import RankIdentity
from distdoctor.ranks.terminate import end_process

_LOOK = "look with `distdoctor env` at what is wrong"


def import_torch(identity: RankIdentity, *, limit_s: float, speak: Callable[[], None]) -> float:
    """Seconds that it took. Raises DistdoctorError where it fails; ends the process when it does not end.

    `speak`: called before this thread says so, for the rank may be one that keeps still.
    """
    where = f" on {identity.host} (rank {identity.rank})" if identity.world_size > 1 else ""
    hung = threading.Timer(limit_s, _say_that_it_hangs, args=(identity, limit_s, speak))
    hung.daemon = True
    hung.start()
    began = time.monotonic()
    try:
        import torch.distributed
    except ImportError as error:
        raise DistdoctorError(
            f"torch cannot be imported by `{sys.executable}`{where}: {_first_line(error)}",
            hint=f"run it with the job's own Python; {_LOOK}",
        ) from error
    except Exception as error:
        raise DistdoctorError(
            f"import torch fails{where}: {type(error).__name__}: {_first_line(error)}", hint=_LOOK
        ) from error
    finally:
        hung.cancel()
    if not torch.distributed.is_available():
        raise DistdoctorError(
            f"torch {torch.__version__} was built without torch.distributed{where}",
            hint="install another build",
        )
    return time.monotonic() - began


def _say_that_it_hangs(identity: RankIdentity, limit_s: float, speak: Callable[[], None]) -> None:
    """The main thread sits in the import: this is the only thread that can still speak."""
    speak()
    error = DistdoctorError(
        f"import torch does not end on {identity.host} (rank {identity.rank}) within {limit_s:g} s",
        hint=_LOOK,
    )
    sys.stderr.write(f"error: {error.message}\nhint: {error.hint}\n")
    end_process(int(error.exit_code))


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)[:200]
