"""Every struct on either wire, declared once: `client` and `link`. Both are read from here.

Only data: no behaviour, no I/O. A field's range is declared where the field is.
"""

from edged.messages.client import *  # noqa: F403
from edged.messages.link import *  # noqa: F403
