"""Of several processes that would say the same one holds the claim, until it ends."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid

from distdoctor.ranks.first_of_host import claim_on_host, wait_until_free


def test_one_claim_of_a_name_at_a_time() -> None:
    name = uuid.uuid4().hex
    first = claim_on_host(name)
    assert first is not None
    assert claim_on_host(name) is None
    other = claim_on_host(name + "x")
    assert other is not None
    other.close()
    first.close()
    again = claim_on_host(name)
    assert again is not None
    again.close()


def test_a_claim_ends_with_its_process_and_leaves_nothing() -> None:
    name = uuid.uuid4().hex
    script = (
        "import sys; from distdoctor.ranks.first_of_host import claim_on_host; "
        f"claim = claim_on_host({name!r}); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert claim_on_host(name) is None
        began = time.monotonic()
        wait_until_free(name, 0.3)
        assert time.monotonic() - began >= 0.3
        holder.kill()
        holder.wait()
        wait_until_free(name, 5.0)
        claim = claim_on_host(name)
        assert claim is not None
        claim.close()
