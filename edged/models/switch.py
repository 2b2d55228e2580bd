"""Sets model.path and model.sha256 in a configuration file and leaves every other character as it is.

The text is edited, not written anew: YAML says where each value begins and ends. The result is then decoded, and must
differ from the old one in these two values only; where that cannot be had (aliases, odd layouts) the edit is refused.
`edit` is pure; `apply` writes, after edged.config has read the result.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import yaml

from edged import config, printable, yamlfile
from edged.errors import ConfigError

_PLAIN = re.compile(r"/[A-Za-z0-9._/@+-]*\Z")


class CannotEditError(Exception):
    """The file has to be edited by hand; the message says why."""

    def __init__(self, why: str) -> None:
        super().__init__(printable.line(why, 400))


def edit(text: str, path: str, sha256: str | None) -> str:
    """The text with the two values set. Raises CannotEditError."""
    try:
        before, root = yamlfile.decode(text), yamlfile.compose(text)
    except yaml.YAMLError as error:
        raise CannotEditError(f"it is not YAML: {yamlfile.reason(error)}") from None
    if not isinstance(before, dict | None):
        raise CannotEditError("it is not a mapping of keys")
    after = _edited(text, root, {"path": _quoted(path), "sha256": f'"{sha256}"' if sha256 else "null"})
    wanted: dict[str, Any] = dict(before or {})
    wanted["model"] = {**(wanted.get("model") or {}), "path": path, "sha256": sha256}
    try:
        found = yamlfile.decode(after)
    except yaml.YAMLError:
        found = None
    if found != wanted:
        raise CannotEditError("its layout is not one that can be edited without touching anything else")
    return after


def _edited(text: str, root: yaml.Node | None, values: dict[str, str]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    key, section = _lookup(root, "model")
    if key is None or section is None:
        return _appended(text, root, values, newline)
    if isinstance(section, yaml.ScalarNode) and section.tag == "tag:yaml.org,2002:null":
        indent = " " * (key.start_mark.column + 2)
        lines = newline + newline.join(f"{indent}{name}: {value}" for name, value in values.items())
        start, end = _span(section)
        start = end if start == end else start
        return text[:start].rstrip(" ") + lines + text[end:] if start != end else _after_line(text, end, lines, newline)
    if not isinstance(section, yaml.MappingNode):
        raise CannotEditError("model is not a mapping of keys")
    edits: list[tuple[int, int, str]] = []
    missing: list[str] = []
    for name, value in values.items():
        inner, old = _lookup(section, name)
        if inner is None or old is None:
            missing.append(f"{name}: {value}")
        else:
            start, end = _span(old)
            edits.append((start, end, value if start != end else f" {value}"))
    if missing:
        edits.append(_insertion(section, missing, newline))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def _insertion(section: yaml.MappingNode, missing: list[str], newline: str) -> tuple[int, int, str]:
    """Keys that are not there yet, before the first that is: what follows a value may be a comment."""
    if section.flow_style:
        at = section.start_mark.index + 1
        return at, at, ", ".join(missing) + (", " if section.value else "")
    first = section.value[0][0].start_mark
    return first.index, first.index, "".join(f"{line}{newline}{' ' * first.column}" for line in missing)


def _appended(text: str, root: yaml.Node | None, values: dict[str, str], newline: str) -> str:
    """A section of its own at the end."""
    if root is not None and (not isinstance(root, yaml.MappingNode) or root.flow_style):
        raise CannotEditError("it is written in braces")
    indent = " " * (root.value[0][0].start_mark.column if isinstance(root, yaml.MappingNode) and root.value else 0)
    lines = [f"{indent}model:", *(f"{indent}  {name}: {value}" for name, value in values.items())]
    gap = "" if not text or text.endswith("\n") else newline
    return text + gap + newline.join(lines) + newline


def _after_line(text: str, at: int, lines: str, newline: str) -> str:
    """After the line that `at` is on, comment included."""
    end = text.find("\n", at)
    if end < 0:
        return text + lines + newline
    end -= text[end - 1] == "\r"
    return text[:end] + lines + text[end:]


def _lookup(node: yaml.Node | None, name: str) -> tuple[yaml.Node | None, yaml.Node | None]:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((key, value) for key, value in pairs if key.value == name), (None, None))


def _span(node: yaml.Node) -> tuple[int, int]:
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        raise CannotEditError("it has a block of text where the model's path or sha256 is expected")
    return node.start_mark.index, node.end_mark.index


def _quoted(path: str) -> str:
    if _PLAIN.match(path):
        return path
    if not path.isprintable():
        raise CannotEditError("the model's path has characters that cannot be written there")
    return "'" + path.replace("'", "''") + "'"


def apply(file: str, path: str, sha256: str | None) -> config.Config:
    """Writes the edited configuration in place of the old one, if it is valid. Raises CannotEditError, ConfigError."""
    real = Path(os.path.realpath(file))
    if real.exists() and not real.is_file():  # a device or a FIFO would be replaced, or waited for
        raise CannotEditError("it is not a regular file")
    try:
        text = real.read_bytes().decode("utf-8")
        new = edit(text, path, sha256)
        with tempfile.NamedTemporaryFile("wb", dir=real.parent, prefix=f".{real.name}.", delete=False) as out:
            try:
                out.write(new.encode("utf-8"))
                _same_owner(out.fileno(), real)
                out.flush()
                os.fsync(out.fileno())
                settings = _checked(out.name, file, path)
                Path(out.name).replace(real)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(out.name).unlink()
                raise
    except (OSError, UnicodeDecodeError) as error:
        raise CannotEditError(getattr(error, "strerror", None) or str(error)) from None
    return settings


def _checked(temporary: str, file: str, path: str) -> config.Config:
    try:
        settings = config.load(temporary)
    except ConfigError as error:
        raise ConfigError(file, error.key, error.expected, error.found) from None
    if settings.model_path != path:
        raise CannotEditError(
            f"profiles[0].model names {settings.model_path}, which wins over model.path: set it to null first"
        )
    return settings


def _same_owner(fd: int, old: Path) -> None:
    """Mode and owner of the old file; the owner only where that is allowed."""
    status = old.stat()
    os.fchmod(fd, status.st_mode & 0o7777)
    with contextlib.suppress(PermissionError):
        os.fchown(fd, status.st_uid, status.st_gid)
