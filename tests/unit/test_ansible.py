"""What is written about deploy/ansible is what is there. That it works: tests/deploy."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from edged import __version__

ANSIBLE = Path(__file__).parents[2] / "deploy/ansible"
ROLE = ANSIBLE / "roles/edged"
SPECS = yaml.safe_load((ROLE / "meta/argument_specs.yml").read_text())["argument_specs"]
PLAYBOOKS = {path.name for path in ANSIBLE.glob("*.yml")} - {"galaxy.yml"}


def test_every_variable_has_its_default_and_description() -> None:
    options = SPECS["main"]["options"]
    assert yaml.safe_load((ROLE / "defaults/main.yml").read_text()) == {
        name: option["default"] for name, option in options.items()
    }
    assert all(option["description"].endswith(".") for option in options.values())
    assert all(entry["options"] == options for entry in SPECS.values())


def test_every_variable_is_used_and_every_used_one_is_described() -> None:
    known = set(SPECS["main"]["options"])
    texts = [path.read_text() for path in ROLE.rglob("*") if path.is_file() and path.parent.name != "meta"]
    used = set(re.findall(r"\bedged_(?!_)[a-z0-9_]+\b", "\n".join(texts)))
    assert used == known
    example = yaml.safe_load((ANSIBLE / "inventory/example.yml").read_text())["edged"]["vars"]
    assert {name for name in example if name.startswith("edged_")} <= known


def test_every_entry_point_is_a_file_and_every_playbook_is_described() -> None:
    assert all((ROLE / f"tasks/{name}.yml").is_file() for name in SPECS)
    assert set(re.findall(r"^\| `([a-z]+\.yml)` \|", (ANSIBLE / "README.md").read_text(), re.MULTILINE)) == PLAYBOOKS


def test_the_collection_has_the_version_of_edged() -> None:
    assert yaml.safe_load((ANSIBLE / "galaxy.yml").read_text())["version"] == __version__
