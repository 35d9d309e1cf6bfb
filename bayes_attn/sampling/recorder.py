"""Where a run's records go: arrays in memory, or files that grow with the run and survive its death.

A folder holds one .npy file per recorded quantity, of its full size from the beginning and filled chunk by chunk;
`checkpoint.npz`, written beside and renamed, says how far they are filled and holds everything needed to go on; and
`run.json`, the digest of the settings the run was started with. Memory stays flat in the length of the run.
"""

import hashlib
import io
import json
import math
import os
import re
from pathlib import Path as File
from typing import Any, BinaryIO

import jax
import numpy as np
from jaxtyping import PyTree

from bayes_attn.errors import InvalidInput, require

CHECKPOINT = "checkpoint.npz"
DESCRIPTION = "run.json"


class Recorder:
    """Named arrays with the axes (chain, time, ...), in memory or in a folder.

    With several processes only the first one writes; the others read what it wrote.
    """

    def __init__(self, folder: File | None) -> None:
        self.folder = folder
        self.arrays: dict[str, np.ndarray] = {}
        self.files: dict[str, tuple[BinaryIO, int, int]] = {}
        """File, where its numbers begin, and its length in time."""

    def knows(self, name: str) -> bool:
        return name in self.arrays or name in self.files

    def allocate(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> None:
        """Make the array `name`, or open the file of that name that the same run has left."""
        if self.folder is None:
            self.arrays[name] = np.empty(shape, dtype)
        elif jax.process_index() == 0:
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(
                header, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
            )
            path = self.folder / f"{name}.npy"
            path.touch()
            file = path.open("r+b")
            file.write(header.getvalue())
            file.truncate(len(header.getvalue()) + math.prod(shape) * dtype.itemsize)
            self.files[name] = (file, len(header.getvalue()), shape[1])

    def write(self, name: str, start: int, values: np.ndarray) -> None:
        """Fill [:, start : start + length] of the array `name`."""
        if name in self.arrays:
            self.arrays[name][:, start : start + values.shape[1]] = values
        elif name in self.files:
            # Through plain writes and not a mapped file, whose pages would count as this process's memory.
            file, begin, length = self.files[name]
            per_time = values[0, :1].nbytes
            for chain, block in enumerate(values):
                file.seek(begin + (chain * length + start) * per_time)
                file.write(np.ascontiguousarray(block).data)

    def flush(self) -> None:
        """Hand everything written to the system, which keeps it if this process dies."""
        for file, _, _ in self.files.values():
            file.flush()

    def close(self) -> None:
        for file, _, _ in self.files.values():
            file.close()
        self.files = {}

    def finished(self, name: str) -> np.ndarray:
        """The array to read from; a file is opened again, unwritable, and mapped in as it is used."""
        if self.folder is None:
            return self.arrays[name]
        return np.load(self.folder / f"{name}.npy", mmap_mode="r")


def save_checkpoint(folder: File, arrays: dict[str, np.ndarray]) -> None:
    """Write the checkpoint beside, then rename: at any moment there is a whole one, or none yet."""
    partial = folder / f".{CHECKPOINT}.partial"
    with partial.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(folder / CHECKPOINT)


def load_checkpoint(folder: File) -> dict[str, np.ndarray] | None:
    """The last checkpoint, or None where the run died before its first one."""
    if not (folder / CHECKPOINT).is_file():
        return None
    with np.load(folder / CHECKPOINT, allow_pickle=False) as content:
        return dict(content)


def open_folder(folder: File, description: dict[str, Any], resume: bool) -> None:
    """Make a run's folder, or check that the one to resume belongs to the same run.

    Raises
    ------
    InvalidInput: there is a run already and `resume` is false; there is none to resume; or it was started with other
        settings, which are named.
    """
    file = folder / DESCRIPTION
    if not resume:
        if jax.process_index() == 0:
            taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
            require(not taken, "sample", "folder", "must be new or empty, unless `resume` is true", str(folder))
            folder.mkdir(parents=True, exist_ok=True)
            partial = folder / f".{DESCRIPTION}.partial"
            partial.write_text(json.dumps(description, indent=2) + "\n")
            partial.replace(file)
        return
    require(file.is_file(), "sample", "folder", f"must hold a run to resume (its {DESCRIPTION})", str(folder))
    before = json.loads(file.read_text())
    changed = sorted(name for name in description if before.get(name) != json.loads(json.dumps(description[name])))
    if changed:
        name = changed[0]
        rule = f"must hold a run of the same settings; `{name}` was {before.get(name)!r} there"
        raise InvalidInput(f"sample: `folder` {rule}, got {description[name]!r} in {str(folder)!r}.")


def digest(tree: PyTree) -> str:
    """A short digest of a pytree: its structure, with static fields, and its arrays' bytes."""
    leaves, structure = jax.tree.flatten(tree)
    content = hashlib.sha256()
    for leaf in leaves:
        try:
            array = np.asarray(leaf)
        except TypeError:
            array = np.asarray(0, dtype=object)
        if array.dtype == object:
            content.update(type(leaf).__qualname__.encode())
        else:
            content.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
    # Addresses of functions differ from process to process; nothing else in a structure's text does.
    text = re.sub(r" at 0x[0-9a-f]+", "", str(structure))
    return hashlib.sha256(content.digest() + text.encode()).hexdigest()[:16]
