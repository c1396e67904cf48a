"""Forks the processes of the kill tests: it has imported everything, they open the store.

Each line on standard input is a job; its process id is answered at once, and how it ended later.
Both answers carry the job's number, counted from 0: the system uses a process id again, and a
long campaign takes more of them than there are.
"""

import itertools
import json
import os
import selectors
import sys
import traceback

from tests.kill import campaign, handover, sweep, worker


def serve() -> None:
    """Until standard input ends."""
    sweep.warm_up()
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    children: dict[int, int] = {}
    numbers = itertools.count()
    pending = b""
    while True:
        if selector.select(0.005 if children else None):
            chunk = os.read(0, 65_536)
            if not chunk:
                return
            *jobs, pending = (pending + chunk).split(b"\n")
            for job in jobs:
                pid, number = start(json.loads(job)), next(numbers)
                children[pid] = number
                say({"job": number, "started": pid})
        for pid, number in list(children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                del children[pid]
                say({"job": number, "ended": os.waitstatus_to_exitcode(status)})


def start(job: dict) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        os.close(0)
        os.dup2(2, 1)
        perform(job)
    except BaseException:  # whatever it was, the test is to read of it
        traceback.print_exc()
        status = 70
    finally:
        sys.stderr.flush()
        os._exit(status)


def perform(job: dict) -> None:
    """One run, a part of a sweep, or a campaign."""
    if "sweep" in job:
        sweep.serve(job)
    elif "campaign" in job:
        campaign.serve(job)
    elif "handover" in job:
        handover.serve(job)
    else:
        worker.main(job)


def say(what: dict) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


if __name__ == "__main__":
    serve()
