"""Every struct on either wire, declared once: `client`, and of the link `down` and `up`. Import them from here.

Only data: no behaviour, no I/O. A field's range is declared where the field is.
"""

from edged.messages.client import *  # noqa: F403
from edged.messages.down import *  # noqa: F403
from edged.messages.up import *  # noqa: F403
