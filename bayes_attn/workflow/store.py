"""Where results go: written beside, then renamed; nothing overwritten, nothing half-written."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bayes_attn.errors import InvalidInput
from bayes_attn.tasks import CopyTask

RESULTS = "results.json"


def choose_folder(out: Path | None, name: str) -> Path:
    """`out` if it is new or empty; without it, runs/NAME, or the first of runs/NAME-2, -3, ... that is not taken.

    Raises
    ------
    InvalidInput: `out`, or a folder above it, is a file; `out` holds another run's results or anything else.
    """
    if out is None:
        candidates = [Path("runs") / name, *(Path("runs") / f"{name}-{i}" for i in range(2, 10_000))]
        return next(folder for folder in candidates if not folder.exists())
    for folder in [out, *out.parents]:
        if folder.exists() and not folder.is_dir():
            raise InvalidInput(f"transition: `out` must be a folder, got {str(out)!r} ({str(folder)!r} is a file).")
    if out.is_dir() and (out / RESULTS).exists():
        raise InvalidInput(f"transition: `out` must be new or empty, got {str(out)!r}, which holds a run's results.")
    if out.is_dir() and any(out.iterdir()):
        raise InvalidInput(f"transition: `out` must be new or empty, got {str(out)!r}, which is not empty.")
    return out


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """A scratch folder beside `folder` that becomes `folder` at the end, or vanishes if the block fails."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.partial-", dir=folder.parent))
    except OSError as error:
        raise InvalidInput(f"transition: `out` must be writable, got {str(folder)!r} ({error.strerror}).") from None
    try:
        scratch.chmod(0o755)
        yield scratch
        scratch.rename(folder)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Strict JSON: a NaN is a mistake, not a value."""
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")


def load_tokens(path: Path, task: CopyTask) -> Int[np.ndarray, "sequence position"]:
    """A user's sequences from a .npy file.

    Raises
    ------
    InvalidInput: the file is missing, not a whole .npy file, or its content is refused by `CopyTask.check_tokens`.
    """
    if not path.is_file():
        raise InvalidInput(f"transition: `tokens` must be a file that exists, got {str(path)!r}.")
    try:
        tokens = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        rule = "must be a whole .npy file of integers (numpy.save writes one)"
        raise InvalidInput(f"transition: `tokens` {rule}, got {str(path)!r}.") from None
    if not isinstance(tokens, np.ndarray):
        raise InvalidInput(f"transition: `tokens` must be a .npy file of one array, got an archive, {str(path)!r}.")
    return task.check_tokens(tokens, owner="transition")
