"""Bytes bent by chance at every parser: README.md.

The rigs of other floors are importable, as tests/conftest.py does it, when a module here is run on its own.
"""

import sys
from pathlib import Path

_TESTS = str(Path(__file__).parents[1])
if _TESTS not in sys.path:
    sys.path.insert(0, _TESTS)
