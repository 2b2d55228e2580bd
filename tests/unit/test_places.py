"""Where things lie, also for those who may not look."""

from __future__ import annotations

from pathlib import Path

from edged import config, places


def test_a_models_directory_that_is_closed_to_us_is_still_the_one(monkeypatch):
    """/var/lib/edged is for the service's group: `edgectl` of anybody else must not fail for it, nor look elsewhere."""

    def closed(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", closed)
    assert places.models_dir() == Path("/var/lib/edged/models")
    assert config.load(None).model_path.startswith("/var/lib/edged/models/")


def test_none_there(monkeypatch, tmp_path):
    monkeypatch.setattr(Path, "is_dir", lambda _: False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert places.models_dir() == tmp_path / "edged/models"
