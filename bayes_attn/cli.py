"""The command line: `bayes-attn theory`, `plan`, `phase-diagram`, `sample`, `train` and `transition`.

Nothing heavy is imported before the arguments are understood.
"""

import contextlib
import io
import json
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from bayes_attn.errors import InvalidInput, require
from bayes_attn.workflow.settings import (
    PhaseDiagramSettings,
    PlanSettings,
    SampleSettings,
    TheorySettings,
    TrainSettings,
    TransitionSettings,
    model_json,
    population,
    theory_json,
)

NO_ANSWER = 1
"""Exit code where the theory's equations could not be solved."""
BAD_INPUT = 2
"""Exit code for input that breaks a rule."""
INTERRUPTED = 130

Command = (
    Annotated[TheorySettings, tyro.conf.subcommand("theory", prefix_name=False)]
    | Annotated[PlanSettings, tyro.conf.subcommand("plan", prefix_name=False)]
    | Annotated[PhaseDiagramSettings, tyro.conf.subcommand("phase-diagram", prefix_name=False)]
    | Annotated[SampleSettings, tyro.conf.subcommand("sample", prefix_name=False)]
    | Annotated[TrainSettings, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[TransitionSettings, tyro.conf.subcommand("transition", prefix_name=False)]
)


def _parse(
    arguments: list[str] | None,
) -> TheorySettings | PlanSettings | PhaseDiagramSettings | SampleSettings | TrainSettings | TransitionSettings:
    """Tyro's parser, with its boxed error messages folded into one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                Command,
                prog="bayes-attn",
                description="Phase transitions in attention, Bayesian: where a copy head appears, and how abruptly.",
                args=arguments,
            )
    except SystemExit as exit_:
        if exit_.code:
            # The box's title, then the complaint up to the first rule; hints follow, and do not fit on a line.
            lines = [line.strip(" │╭╮╰╯") for line in complaint.getvalue().splitlines()]
            rules = [number for number, line in enumerate(lines) if number and set(line) <= {"─"}]
            said = " ".join(line for line in lines[1 : rules[0] if rules else None] if line)
            raise InvalidInput(f"bayes-attn: {said.rstrip('.')}. See bayes-attn --help.") from None
        raise


def _prepare() -> None:
    """Double precision, and compiled code kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "bayes_attn"
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(cache))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")
    os.environ["JAX_ENABLE_X64"] = "1"


def _heed_signals() -> threading.Event:
    """Unwind on Ctrl-C and on a polite kill alike; the event is set once a signal has come.

    Where the exception cannot travel, as in a callback of the garbage collector, Python would print it and go on; here
    the event remembers it, and the run stops at its next report of progress.
    """
    stopped = threading.Event()
    otherwise = sys.unraisablehook

    def unraisable(lost: "sys.UnraisableHookArgs") -> None:
        if lost.exc_type is not KeyboardInterrupt:
            otherwise(lost)

    sys.unraisablehook = unraisable

    def stop(_number: int, _frame: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
    return stopped


@contextlib.contextmanager
def _progress(stopped: threading.Event) -> Iterator[Callable[[str, float], None]]:
    """A bar per stage on standard error, with the time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:>9}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=Console(stderr=True))
    stages: dict[str, Any] = {}

    def tell(stage: str, fraction: float) -> None:
        if stopped.is_set():
            raise KeyboardInterrupt
        # Started by the first report, so that a refusal prints its line and nothing else.
        bar.start()
        if stage not in stages:
            stages[stage] = bar.add_task(stage, total=1.0)
        bar.update(stages[stage], completed=fraction)

    try:
        yield tell
    finally:
        if stages:
            bar.stop()


def _theory(settings: TheorySettings) -> None:
    from bayes_attn.theory import densities, transition

    require(settings.density or settings.load is None, "theory", "load", "goes with --density", settings.load)
    require(settings.json or not settings.density, "theory", "density", "goes with --json", settings.density)
    if settings.load is not None:
        require(0 <= settings.load < float("inf"), "theory", "load", "must be a number of at least 0", settings.load)
    posterior = population(settings)
    found = transition(posterior)
    content = theory_json(settings, found)
    if settings.density:
        load = found.steepest_load if settings.load is None else settings.load
        (density,) = densities(posterior, [load])
        if density is None:
            raise ArithmeticError(f"the saddle points do not span the density at load {load:g}")
        content["load"] = load
        content["density"] = {name: values.tolist() for name, values in density._asdict().items()}
    if settings.json:
        print(json.dumps(content, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    units = {"critical_data": "sequences", "barrier": "kT", "barrier_error": "kT"}
    table = Table(title=f"{settings.attention} attention, L = {settings.length}, V = {settings.vocab}")
    table.add_column("quantity")
    table.add_column("value", justify="right")
    for name, value in content.items():
        if name not in ("attention", "length", "vocab") and value is not None:
            shown = f"{value:.6g}" if isinstance(value, float) else str(value)
            table.add_row(name.replace("_", " "), f"{shown} {units.get(name, '')}".strip())
    Console().print(table)


def _plan(settings: PlanSettings) -> None:
    from bayes_attn.planner import plans
    from bayes_attn.workflow.store import load_table

    if settings.table is None:
        require(settings.data is not None, "plan", "data", "must be set, or table", settings.data)
        rows = [settings]
    else:
        rows = load_table(settings.table, settings)
    found = plans([population(row) for row in rows], [float(row.data or 0.0) for row in rows])
    if settings.json:
        content = [asdict(one) for one in found]
        if settings.table is not None:
            content = {"rows": [model_json(row) | one for row, one in zip(rows, content, strict=True)]}
        else:
            (content,) = content
        print(json.dumps(content, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    if settings.table is not None:
        table = Table(caption="Data amounts in sequences. Adam: from scratch.", collapse_padding=True)
        for head in ("attention", "L", "V", "data", "phase", "rises at", "missing", "spinodals", "Adam at"):
            table.add_column(head, justify="left" if head in ("attention", "phase") else "right", no_wrap=True)
        for row, one in zip(rows, found, strict=True):
            both = [one.spinodal_low_data, one.spinodal_high_data]
            table.add_row(
                row.attention,
                str(row.length),
                str(row.vocab),
                f"{one.data:.5g}",
                one.phase,
                _shown(one.centre_data),
                _shown(one.data_to_coexistence),
                "–".join(f"{value:.4g}" for value in both if value is not None),
                _shown(one.map_spinodal_high_data or one.map_critical_data),
            )
        Console().print(table)
        return
    table = Table(title=f"{settings.data:g} sequences, L = {settings.length}, V = {settings.vocab}")
    table.add_column("in sequences, unless said otherwise")
    table.add_column(f"{settings.attention} attention", justify="right")
    content, columns = asdict(found[0]), [asdict(found[0])]
    if found[0].linear is not None:
        table.add_column("linear attention", justify="right")
        columns.append(asdict(found[0].linear))
    for name in content:
        values = [column[name] for column in columns]
        if name not in ("linear", "data") and any(value is not None for value in values):
            shown = [_shown(value) for value in values]
            table.add_row(f"{name.replace('_', ' ')}{' (dimensionless)' if name == 'load' else ''}", *shown)
    Console().print(table)


def _shown(value: float | str | None) -> str:
    return "" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


def _phase_diagram(settings: PhaseDiagramSettings, stopped: threading.Event) -> None:
    from bayes_attn.workflow.diagram import NAME, run_phase_diagram

    with _progress(stopped) as tell:
        content, folder = run_phase_diagram(settings, tell)
    if settings.json:
        print(json.dumps(content, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    end = content["end_point"]
    if end is not None:
        console.print(
            f"Critical end point: load {end['load']:.5g} ± {end['load_error']:.1g}, field {end['field']:.5g} ± "
            f"{end['field_error']:.1g}, copy mass {end['copy_mass']:.3f}.",
            highlight=False,
        )
    counted = [code for row in content["region"] for code in row]
    shares = [f"{name} {counted.count(code) / len(counted):.0%}" for code, name in enumerate(content["regions"])]
    console.print(f"Regions: {', '.join(shares)} of {len(counted)} points.", highlight=False)
    console.print(f"Figure: {folder / NAME}.png", highlight=False, soft_wrap=True)


def _sample(settings: SampleSettings, stopped: threading.Event) -> None:
    from bayes_attn.workflow.sampling_job import RECORDS, run_sample

    try:
        with _progress(stopped) as tell:
            results, folder = run_sample(settings, tell)
    except KeyboardInterrupt:
        if settings.out is not None and (settings.out / RECORDS).is_dir():
            line = f"bayes-attn: interrupted; the same command with --resume goes on in {settings.out}."
            print(line, file=sys.stderr)
            raise SystemExit(INTERRUPTED) from None
        raise
    if settings.json:
        print(json.dumps(results, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table(collapse_padding=True)
    controls = {"inverse_temperature": "β", "load": "load", "field": "field"}
    varying = [name for name in controls if len({row[name] for row in results["rows"]}) > 1]
    for name in ("rung", *(controls[name] for name in varying), "m", "q", "ESS", "R-hat", "swap", "log Z ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    swaps = [*(f"{rate:.2f}" for rate in results["swap_rates"] or []), *[""] * results["rungs"]]
    for number, row in enumerate(results["rows"]):
        ratio = "" if row["log_ratio"] is None else f"{row['log_ratio']:.3f} ± {row['log_ratio_error']:.3f}"
        table.add_row(
            str(number), *(f"{row[name]:.3f}" for name in varying),
            f"{row['copy_mass']:.4f} ± {row['copy_mass_error']:.4f}", f"{row['participation']:.4f}",
            f"{row['ess']:.0f}", f"{row['rhat']:.3f}", swaps[number], ratio,
        )  # fmt: skip
    console.print(table)
    if results["round_trips"] is not None:
        console.print(
            f"Round trips: {results['round_trips']:,} ({results['round_trip_rate_ratio']:.2f} of the predicted rate); "
            f"communication barrier {results['communication_barrier']:.2f}.",
            highlight=False,
        )
    if results["phase_round_trips"] is not None:
        console.print(f"Round trips between the phases: {results['phase_round_trips']:,}.", highlight=False)
    if results["copy_weight"] is not None:
        console.print(
            f"Share of the copy phase: {results['copy_weight']:.3f} ± {results['copy_weight_error']:.3f}.",
            highlight=False,
        )
    for advice in results["advice"]:
        console.print(f"Advice: {advice}.", highlight=False)
    console.print(f"Folder: {folder}", highlight=False, soft_wrap=True)


def _train(settings: TrainSettings, stopped: threading.Event) -> None:
    from bayes_attn.workflow.training_job import run_training
    from bayes_attn.workflow.training_report import sentences

    with _progress(stopped) as tell:
        run, results, folder = run_training(settings, tell)
    if settings.json:
        print(json.dumps(results, allow_nan=False))
        return
    from rich.console import Console

    console = Console()
    for sentence in sentences(run, results):
        console.print(sentence, highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def _transition(settings: TransitionSettings, stopped: threading.Event) -> None:
    from bayes_attn.workflow.experiment import run_transition

    with _progress(stopped) as tell:
        run, results, folder = run_transition(settings, tell)
    if settings.json:
        print(json.dumps(results, allow_nan=False))
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    table = Table()
    columns = ("load", "sequences", f"{run.symbol} sampled", f"{run.symbol} theory", "q sampled", "ESS", "R-hat")
    for name in columns:
        table.add_column(name, justify="right")
    for row in results["rows"]:
        table.add_row(
            f"{row['load']:.3f}",
            f"{row['data']:.1f}",
            f"{row['copy_mass']:.4f} ± {row['copy_mass_error']:.4f}",
            "" if row["theory_copy_mass"] is None else f"{row['theory_copy_mass']:.4f}",
            f"{row['participation']:.4f}",
            f"{row['ess']:.0f}",
            f"{row['rhat']:.3f}",
        )
    console.print(table)
    for sentence in results["sentences"]:
        console.print(sentence, highlight=False)
    console.print(f"Report: {folder / 'report.html'}", highlight=False, soft_wrap=True)


def main(arguments: list[str] | None = None) -> None:
    """Entry point.

    Exit codes: 0 done, 1 the theory could not be solved for these settings, 2 bad input, 130 interrupted; except for 0,
    with one line on standard error and nothing written (an interrupted `sample` keeps what it has, to be resumed).
    """
    try:
        stopped = _heed_signals()
        settings = _parse(arguments)
        _prepare()
        warnings.filterwarnings("ignore", category=FutureWarning)
        if isinstance(settings, TheorySettings):
            _theory(settings)
        elif isinstance(settings, PlanSettings):
            _plan(settings)
        elif isinstance(settings, PhaseDiagramSettings):
            _phase_diagram(settings, stopped)
        elif isinstance(settings, SampleSettings):
            _sample(settings, stopped)
        elif isinstance(settings, TrainSettings):
            _train(settings, stopped)
        else:
            _transition(settings, stopped)
    except InvalidInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(BAD_INPUT) from None
    except ArithmeticError as error:
        print(f"bayes-attn: the theory has no answer here: {' '.join(str(error).split())}.", file=sys.stderr)
        raise SystemExit(NO_ANSWER) from None
    except KeyboardInterrupt:
        print("bayes-attn: interrupted; nothing was written.", file=sys.stderr)
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
