"""What an experiment leaves: a JSON, its figures and a report of one page."""

from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from bayes_attn.workflow.report import embedded, template
from bayes_attn.workflow.store import write_json, written_whole


class Shown(NamedTuple):
    """A figure as the report has it."""

    heading: str
    caption: str
    figure: Figure


def write_study(
    folder: Path,
    name: str,
    question: str | None,
    sentences: list[str],
    shown: dict[str, Shown],
    content: dict[str, Any],
) -> None:
    """Write `folder` whole: NAME.json, a PNG for every figure, and report.html.

    Parameters
    ----------
    folder: new or empty, see `choose_folder`.
    name: of the experiment.
    question: its docstring: the question, a paragraph on what is done, and the command line.
    sentences: what was found.
    shown: figures by file name, in their order.
    content: of the JSON.
    """
    first, *rest = (question or "").strip().split("\n\n")
    title = " ".join(first.split()).removeprefix("Question: ")
    figures: dict[str, Figure | None] = {key: one.figure for key, one in shown.items()}
    headings = {key: one.heading for key, one in shown.items()}
    captions = {key: one.caption for key, one in shown.items()}
    with written_whole(folder) as scratch:
        page = template("study.html.jinja").render(
            title=title[0].upper() + title[1:],
            paragraphs=[" ".join(paragraph.split()) for paragraph in rest[:-1]],
            command=rest[-1].strip(),
            sentences=sentences,
            figures=embedded(figures, headings, captions, scratch),
        )
        (scratch / "report.html").write_text(page, encoding="utf-8")
        write_json(scratch / f"{name}.json", content)
    print(f"Written to {folder}.")
