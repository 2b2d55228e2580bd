"""`python -m edged.doctor.selftest`: does the installed engine compute on this processor? For installers, before they
switch to a release: a build that does not fit is told here, by a child that dies, and never in service.

Status: 0 it computes, 1 it does not, or there is no engine. What is said is doctor's finding `cpu-features`.
"""

from __future__ import annotations

import sys
from typing import Final

from edged import config
from edged.doctor import box, processor

PATIENCE_S: Final = 60.0
"""Libraries come off a slow card the first time."""


def main() -> int:
    library = processor.engine()
    if library is None:
        sys.stderr.write("selftest: no engine is installed beside this edged: pip install 'edged[engine]'\n")
        return 1
    here = box.Box(config.load(None))
    (found,) = processor.judge(processor.Processor(processor.features(here), processor.probe(library, PATIENCE_S)))
    wrong = found.severity == "error"
    lines = [found.what, found.why, found.do] if wrong else [found.what]
    (sys.stderr if wrong else sys.stdout).write("selftest: " + "\n  ".join(line for line in lines if line) + "\n")
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
