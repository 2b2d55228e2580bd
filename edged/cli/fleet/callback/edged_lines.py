"""What Ansible gets from each host, as a JSON line each, on a descriptor that edgectl gave: for `edged.cli.fleet.run`.

Loaded by Ansible, not imported by us. First `{"hosts": […]}`, then one object a host. Nothing goes to stdout: other
plugins of the user may write there.
"""

from __future__ import annotations

import json
import os

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
name: edged_lines
type: stdout
short_description: one JSON line a host, for edgectl fleet
description:
  - One JSON line a host on the descriptor that E(EDGED_FLEET_FD) names.
"""

MOST = 262_144
"""Characters of an answer that are passed on."""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "edged_lines"

    def __init__(self):
        super().__init__()
        self._out = os.fdopen(int(os.environ["EDGED_FLEET_FD"]), "w", encoding="ascii")

    def v2_playbook_on_play_start(self, play):
        variables = play.get_variable_manager().get_vars(play=play)
        self._say({"hosts": list(variables["ansible_play_hosts_all"])})

    def v2_runner_on_ok(self, result):
        self._result(result, "ok")

    def v2_runner_on_failed(self, result, ignore_errors=False):  # noqa: ARG002 - Ansible's signature
        self._result(result, "failed")

    def v2_runner_on_unreachable(self, result):
        self._result(result, "unreachable")

    def _result(self, result, how):
        # 2.19 has `host` and `result`, older ones only the names with an underscore
        host = getattr(result, "host", None) or result._host  # noqa: SLF001
        found = getattr(result, "result", None) or result._result  # noqa: SLF001
        texts = {name: str(found.get(name) or "")[:MOST] for name in ("stdout", "stderr", "msg")}
        self._say({"host": host.get_name(), "how": how, "rc": found.get("rc"), **texts})

    def _say(self, said):
        self._out.write(json.dumps(said) + "\n")
        self._out.flush()
