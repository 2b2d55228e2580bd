"""The real worker, but a context for embeddings that was idle for a moment is freed."""

import functools
import os
import sys

from edged.worker.process import set_environment

set_environment()

from edged.worker import __main__ as worker  # noqa: E402 - the environment first
from edged.worker import loop  # noqa: E402

loop.Embedding = functools.partial(loop.Embedding, idle_s=0.3)
status = worker.main()
sys.stderr.flush()
os._exit(status)
