"""Where results go: written beside, then renamed; nothing overwritten, nothing half-written."""

import csv
import json
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
from jaxtyping import Int

from bayes_attn.errors import InvalidInput
from bayes_attn.tasks import CopyTask

if TYPE_CHECKING:
    from bayes_attn.workflow.settings import PlanSettings

RESULTS = "results.json"


def choose_folder(out: Path | None, name: str, verb: str = "transition") -> Path:
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
            raise InvalidInput(f"{verb}: `out` must be a folder, got {str(out)!r} ({str(folder)!r} is a file).")
    if out.is_dir() and (out / RESULTS).exists():
        raise InvalidInput(f"{verb}: `out` must be new or empty, got {str(out)!r}, which holds a run's results.")
    if out.is_dir() and any(out.iterdir()):
        raise InvalidInput(f"{verb}: `out` must be new or empty, got {str(out)!r}, which is not empty.")
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


def finite(value: float | None) -> float | None:
    """The value as JSON has it: None for what is not known, and for an infinite error."""
    return value if value is not None and np.isfinite(value) else None


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Strict JSON: a NaN is a mistake, not a value. The file is there whole, or as it was."""
    partial = path.with_name(f"{path.name}.partial")
    partial.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n")
    partial.replace(path)


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


def load_frequencies(path: Path, vocab: int) -> tuple[float, ...]:
    """A user's token frequencies, or counts, from a .npy or text file of V numbers; they are made to add up to 1.

    Raises
    ------
    InvalidInput: the file is missing, cannot be read, or does not hold V numbers of at least 0, two of them positive.
    """
    if not path.is_file():
        raise InvalidInput(f"model: `token_frequencies` must be a file that exists, got {str(path)!r}.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty text file warns
            given = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, ndmin=1)
        values = np.asarray(given, dtype=float)
    except (OSError, ValueError, TypeError, EOFError):
        rule = "must be a .npy file or a text file of numbers"
        raise InvalidInput(f"model: `token_frequencies` {rule}, got {str(path)!r}.") from None
    if values.ndim != 1 or len(values) != vocab:
        rule = f"must hold `vocab` = {vocab} numbers"
        raise InvalidInput(f"model: `token_frequencies` {rule}, got shape {values.shape} in {str(path)!r}.")
    if not (np.all(np.isfinite(values)) and np.all(values >= 0) and np.count_nonzero(values) > 1):
        rule = "must hold numbers of at least 0, two of them positive"
        raise InvalidInput(f"model: `token_frequencies` {rule}, got {values.min():g} ... {values.max():g}.")
    return tuple((values / values.sum()).tolist())


def load_table(path: Path, settings: "PlanSettings") -> list["PlanSettings"]:
    """The settings of a planner's table: a CSV file whose header names options, one setting per row.

    Raises
    ------
    InvalidInput: the file is missing or empty, a column is no option, or a value is of the wrong kind or missing.
    """
    if not path.is_file():
        raise InvalidInput(f"plan: `table` must be a file that exists, got {str(path)!r}.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        try:
            lines = list(csv.DictReader(file, strict=True, skipinitialspace=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise InvalidInput(f"plan: `table` must be a CSV file, got {str(path)!r} ({error}).") from None
    if not lines:
        raise InvalidInput(f"plan: `table` must have a header and at least one row, got {str(path)!r}.")
    kinds = get_type_hints(type(settings))
    rows = []
    for number, line in enumerate(lines, start=2):
        where = f"line {number} of {str(path)!r}"
        changes: dict[str, Any] = {}
        for head, text in line.items():
            name = str(head).strip().replace("-", "_")
            if head is None or name not in kinds or name in ("table", "json"):
                raise InvalidInput(
                    f"plan: `table` must have columns named like options, got {head!r} in {str(path)!r}."
                )
            if text is None:
                raise InvalidInput(
                    f"plan: `table` must have a value in every column, got none for {name!r} in {where}."
                )
            try:
                changes[name] = _parsed(text.strip(), kinds[name])
            except ValueError:
                raise InvalidInput(f"plan: `{name}` must be {_kind(kinds[name])}, got {text!r} in {where}.") from None
        row = replace(settings, table=None, **changes)
        if row.data is None:
            raise InvalidInput(f"plan: `data` must be a column of the table or set, got none in {where}.")
        rows.append(row)
    return rows


def _kind(hint: Any) -> str:
    """A type hint without None, in words."""
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return {int: "an integer", float: "a number", bool: "true or false"}.get(kinds[0], "text")


def _parsed(text: str, hint: Any) -> Any:
    """`text` as the type that a hint names; empty text is None where that is allowed."""
    kinds = get_args(hint) or (hint,)
    if not text and type(None) in kinds:
        return None
    kind = next(kind for kind in kinds if kind is not type(None))
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    return kind(text)
