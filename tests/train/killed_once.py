"""What torchrun starts in test_distributed.py: one process is killed at the sixth step, unless it was already."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from vitrail.train import loop
from vitrail.train.run import train

real = loop.take_step


def dying(job: Any, state: Any, batches: Any) -> Any:
    if state.progress.step == 5 and job.world.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    return real(job, state, batches)


loop.take_step = dying
data, out, settings = sys.argv[1:]
train(data, "Ti/16", out=out, preset="none", settings=json.loads(settings), quiet=True)
