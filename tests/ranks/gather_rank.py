"""One rank of a gathering test, as a process of its own: `gather_rank.py '{"do": "report", …}'`.

Prints one JSON line: what it learned. `do` says how it behaves.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from distdoctor.errors import DistdoctorError
from distdoctor.ranks.gather import Gathered, Gathering
from distdoctor.ranks.identity import detect_identity
from distdoctor.ranks.rollcall import payload_name
from distdoctor.ranks.terminate import on_terminate


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def report(gathering: Gathering, payload: bytes | None) -> None:
    if payload is not None:
        gathering.submit(payload)
    outcome = gathering.conclude()
    if not isinstance(outcome, Gathered):
        tell(reported_by=outcome.rank, exit_code=outcome.exit_code)
        return
    tell(
        reporter=outcome.reporter,
        payloads={rank: json.loads(text) for rank, text in outcome.payloads.items()},
        missing={
            each.rank: [each.absence.name, each.host, each.pid, each.detail] for each in outcome.missing
        },
        not_gathered=outcome.not_gathered,
        doubles=[each.rank for each in outcome.doubles],
        hosts_seen=outcome.hosts_seen,
        hosts_absent=outcome.hosts_absent,
        complete=outcome.complete,
        hint=outcome.hint,
        waited_s=outcome.waited_s,
    )
    gathering.finish(exit_code=11)


def main(plan: dict[str, object]) -> None:
    do = plan["do"]
    if do == "stop before announcing":
        os.kill(os.getpid(), signal.SIGSTOP)
    identity = detect_identity(os.environ, str(plan.get("hostname") or "host-a"))
    folder = Path(str(plan["folder"])) if plan.get("folder") else None
    try:
        gathering = Gathering(identity, folder=folder, deadline_s=float(str(plan["deadline_s"])))
    except DistdoctorError as error:
        tell(error=error.message, kind=type(error).__name__)
        sys.exit(2)
    gathering.announce({"torch": str(plan.get("torch", "/opt/venv"))})
    payload = json.dumps({"rank": identity.rank, "filler": "x" * int(str(plan.get("filler", 0)))}).encode()
    match do:
        case "report":
            report(gathering, payload)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            tell(pid=os.getpid())
            time.sleep(600)
        case "send garbage":
            gathering._write(gathering._folder, payload_name(gathering._me), b"\x80\x04junk" * 10)
            report(gathering, None)
        case "elect":
            peers = gathering.wait_for_peers(20)
            tell(
                peers=[peer.rank for peer in peers],
                host=gathering.leads_host(peers),
                torch=gathering.leads("torch", peers),
            )
            report(gathering, payload)
        case "work too long":

            def last_words() -> int | None:
                report(gathering, payload)
                return 0

            with on_terminate(last_words, hurry=lambda: gathering.hurry(0.5), grace_s=0.5):
                tell(ready=True)
                time.sleep(600)
        case "report, hurried by SIGTERM":
            with on_terminate(lambda: None, hurry=lambda: gathering.hurry(0.5)):
                tell(ready=True)
                report(gathering, payload)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
