"""The section `metrics` of the configuration: where the service's figures can be read."""

from __future__ import annotations

import ipaddress
import os

from edged.config_types import Seconds, Section
from edged.errors import ConfigError


class Metrics(Section, frozen=True):
    """Both empty: no metrics."""

    listen: str = ""
    textfile: str = ""
    interval_s: Seconds = 15


def check(metrics: Metrics, name: str) -> None:
    """Raises ConfigError. Who may ask is not checked at that port, so it is the machine's own."""
    if metrics.listen:
        host, _, port = metrics.listen.rpartition(":")
        number = port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
        if not number or not loopback(host):
            expected = "ADDRESS:PORT of this machine alone, such as 127.0.0.1:9464 (for others: metrics.textfile)"
            raise ConfigError(name, "metrics.listen", expected, metrics.listen)
    path = metrics.textfile
    if path and (not os.path.isabs(path) or not path.endswith(".prom") or "\0" in path):
        expected = "an absolute path that ends in .prom, as node_exporter reads it"
        raise ConfigError(name, "metrics.textfile", expected, path)


def loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
