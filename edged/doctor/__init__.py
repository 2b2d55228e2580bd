"""`edgectl doctor`: looks at the whole box and says what to do (ADR 23).

`run` looks at everything; what each check looks for, and when it says what, stands in its module. A module reads what
it needs through a `Box` into a frozen struct, and pure rules make findings of it.
"""

from edged.doctor.checkup import CHECKS, run
from edged.doctor.finding import Finding, Severity, worst

__all__ = ["CHECKS", "Finding", "Severity", "run", "worst"]
