from pathlib import Path

import numpy as np
import pytest

from bayes_attn import CopyTask, InvalidInput
from bayes_attn.workflow.store import choose_folder, load_tokens, write_json, written_whole


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with written_whole(tmp_path / "run") as scratch:
        (scratch / "a").write_text("1")
        assert not (tmp_path / "run").exists()
    assert (tmp_path / "run" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    with pytest.raises(RuntimeError), written_whole(tmp_path / "broken") as scratch:
        (scratch / "a").write_text("1")
        raise RuntimeError
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_empty_folder_may_be_given(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with written_whole(choose_folder(tmp_path / "run", "x")) as scratch:
        (scratch / "a").write_text("1")
    assert (tmp_path / "run" / "a").exists()


def test_default_folders_never_collide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_folder(None, "job") == Path("runs/job")
    (tmp_path / "runs" / "job").mkdir(parents=True)
    assert choose_folder(None, "job") == Path("runs/job-2")


def test_taken_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "results.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("")
    for name, message in (
        ("file", "is a file"),
        ("file/below", "is a file"),
        ("full", "holds a run's results"),
        ("other", "is not empty"),
    ):
        with pytest.raises(InvalidInput, match=message):
            choose_folder(tmp_path / name, "x")


def test_json_is_strict(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Out of range"):
        write_json(tmp_path / "a.json", {"x": float("nan")})


def test_tokens_come_back_as_they_were(tmp_path: Path) -> None:
    tokens = np.arange(12).reshape(3, 4) % 3
    np.save(tmp_path / "t.npy", tokens)
    np.testing.assert_array_equal(load_tokens(tmp_path / "t.npy", CopyTask(4, 3)), tokens)


def test_bad_token_files_are_refused(tmp_path: Path) -> None:
    task = CopyTask(4, 3)
    np.save(tmp_path / "whole.npy", np.zeros((50, 4), int))
    content = (tmp_path / "whole.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(content[: len(content) // 2])
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "text.npy").write_text("1 2 3")
    np.savez(tmp_path / "archive.npz", tokens=np.zeros((2, 4), int))
    np.save(tmp_path / "object.npy", np.array([{}], dtype=object), allow_pickle=True)
    for name, message in (
        ("missing.npy", "must be a file that exists"),
        (".", "must be a file that exists"),
        ("cut.npy", "must be a whole .npy file"),
        ("empty.npy", "must be a whole .npy file"),
        ("text.npy", "must be a whole .npy file"),
        ("object.npy", "must be a whole .npy file"),
        ("archive.npz", "must be a .npy file of one array"),
    ):
        with pytest.raises(InvalidInput, match=message):
            load_tokens(tmp_path / name, task)
