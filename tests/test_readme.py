"""The README's Python runs as written, and its commands exist."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert len(code.strip().splitlines()) <= 10
    exec(code, {})
    critical, *means = (float(number) for number in re.findall(r"\d+\.\d+", capsys.readouterr().out))
    assert critical == pytest.approx(2.614, abs=0.001)
    assert means[0] == pytest.approx(1 / 16, rel=0.02)
    assert means[-1] > 0.5


def test_pictures_are_there() -> None:
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (Path(__file__).parent.parent / picture).read_bytes().startswith(b"\x89PNG")
