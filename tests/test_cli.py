"""The command line, in this process: what it prints, what it writes, and how it refuses."""

import html
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from bayes_attn.cli import main

SHARED = {
    "attention", "length", "vocab", "order", "critical_load", "critical_data", "spinodal_low", "spinodal_high",
    "barrier", "copy_mass_disordered", "copy_mass_copy", "critical_load_error",
}  # fmt: skip
SIXTEEN = ["--length", "16", "--vocab", "16"]
ROW = {"load", "data", "copy_mass", "copy_mass_error", "participation", "theory_copy_mass", "ess", "rhat"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    """Run a verb with --json; standard output must be one JSON object and nothing else."""
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one small run of the main job."""
    folder = tmp_path_factory.mktemp("main") / "run"
    main(["transition", "--small", *SIXTEEN, "--sizes", "none", "--out", str(folder)])
    return folder


def test_theory_of_softmax(capsys: pytest.CaptureFixture[str]) -> None:
    content = run(capsys, "theory")
    assert set(content) >= SHARED
    assert content["order"] == "first"
    assert content["critical_load"] == pytest.approx(2.613, abs=0.002)
    assert content["critical_data"] == pytest.approx(content["critical_load"] * 16)


def test_theory_of_linear_attention(capsys: pytest.CaptureFixture[str]) -> None:
    content = run(capsys, "theory", "--attention", "linear", "--noise", "2")
    assert content["order"] == "second"
    assert content["critical_data"] == pytest.approx(2 * 16 * (1 + 256 / 240))
    assert content["barrier"] is None


def test_theory_of_a_crossover(capsys: pytest.CaptureFixture[str]) -> None:
    content = run(capsys, "theory", "--length", "12", "--vocab", "12")
    assert content["order"] == "crossover"
    assert content["critical_load"] is None


def test_theory_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    main(["theory", "--attention", "linear"])
    assert "critical load" in capsys.readouterr().out


def test_results(small: Path) -> None:
    results = json.loads((small / "results.json").read_text())
    assert set(results) >= SHARED | {"rows", "seed", "versions", "seconds"}
    assert all(set(row) == ROW for row in results["rows"])
    assert len(results["rows"]) == 10
    for row in results["rows"]:
        # 4.5 standard errors, and the density's corrections of order 1/L.
        assert abs(row["copy_mass"] - row["theory_copy_mass"]) < 4.5 * row["copy_mass_error"] + 0.02 * row["copy_mass"]
        assert row["rhat"] < 1.1
    assert results["phase_round_trips"] > 10
    assert results["path"] == "load"
    assert results["rungs"] >= 10
    assert results["scans"] == 4_000
    assert 1 < results["communication_barrier"] < results["rungs"]
    assert 0.1 < results["round_trip_rate_ratio"] < 1.5
    assert abs(results["copy_weight"] - 0.5) < 4.5 * results["copy_weight_error"] + 0.05
    assert results["copy_weight_error"] < 0.1
    assert results["seconds"] > 0
    assert results["versions"]["jax"]
    assert results["verdict"] in ("first-order", "undecided")
    assert {"name", "value", "error", "passed"} <= set(results["criteria"][0])
    # The analytic density at L = 16 has a valley of 1.09 kT at equal height; the saddle points' barrier is 0.81.
    assert abs(results["barrier_sampled"] - 1.09) < 4.5 * results["barrier_sampled_error"]
    assert abs(results["barrier_sampled"] - results["barrier_theory"]) < 4.5 * results["barrier_sampled_error"] + 0.05
    assert results["barrier_theory"] > results["barrier"]
    assert abs(results["latent_heat"] - results["latent_heat_theory"]) < 4.5 * results["latent_heat_error"] + 0.2
    branches = results["phase_free_energies"]
    difference = np.array(branches["copy"]) - np.array(branches["disordered"])
    gap = np.abs(difference - np.array(branches["difference_theory"]))
    assert np.all(gap < 4.5 * np.array(branches["difference_error"]) + 0.1)
    assert results["bimodality"]["dip_p_value"] < 0.05
    assert results["bimodality"]["ashmans_d"] > 2
    assert {row["phase"] for row in results["convergence"]} == {"overall", "disordered", "copy"}
    assert results["energy_missing_information"] > 0.3
    for name in ("critical_load_equal_weight", "critical_load_equal_height"):
        assert abs(results[name] - results["critical_load"]) < 4.5 * results[f"{name}_error"] + 0.05


def test_posterior_file(small: Path) -> None:
    with xr.open_datatree(small / "posterior.nc", engine="netcdf4") as tree:
        logits = tree["posterior"]["logits"]
        assert logits.dims == ("chain", "draw", "load", "query", "key")
        assert logits.shape == (4, 100, 10, 16, 16)
        assert {"copy_mass", "participation"} <= set(tree["posterior"].data_vars)
        assert {"lp", "acceptance_rate", "diverging"} <= set(tree["sample_stats"].data_vars)
        # The stored order parameter is that of the stored logits.
        weights = np.exp(logits.values) / np.exp(logits.values).sum(-1, keepdims=True)
        rows = np.arange(16)
        np.testing.assert_allclose(weights[..., rows, rows - 1].mean(-1), tree["posterior"]["copy_mass"], rtol=1e-5)
        results = json.loads((small / "results.json").read_text())
        every = tree["every_scan"]["copy_mass"].mean(("chain", "scan"))
        np.testing.assert_allclose(every, [row["copy_mass"] for row in results["rows"]], rtol=1e-5)


def test_report_is_whole_and_self_contained(small: Path) -> None:
    page = html.unescape((small / "report.html").read_text())
    results = json.loads((small / "results.json").read_text())
    for heading in ("Copy mass against data", "Below, at and above", "Mean attention matrices", "Convergence"):
        assert heading in page
    assert page.count("data:image/png;base64,") == 6
    for text in (
        "R-hat",
        "effective sample size",
        "swap rate",
        "round trips",
        "uv run bayes-attn transition --length 16 --vocab 16 --sizes none --seed 0 --small",
    ):
        assert text in page
    assert all(sentence in page for sentence in results["sentences"])
    assert "http" not in page
    for name in ("copy_mass", "histograms", "attention", "diagnostics"):
        assert (small / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_second_run_into_the_same_folder_is_refused(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (small / "results.json").read_bytes()
    with pytest.raises(SystemExit) as stop:
        main(["transition", "--small", "--out", str(small)])
    assert stop.value.code == 2
    assert "holds a run's results" in capsys.readouterr().err
    assert (small / "results.json").read_bytes() == before


def test_linear_attention_runs_to_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--attention", "linear", "--length", "8", "--vocab", "8", "--sizes", "none", "--small"]
    results = run(capsys, "transition", *options, "--out", str(tmp_path / "run"))
    assert results["order"] == "second"
    assert results["verdict"] in ("second-order", "undecided")
    for row in results["rows"]:
        assert abs(row["copy_mass"] - row["theory_copy_mass"]) < 4.5 * row["copy_mass_error"]


def test_own_tokens_run_to_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokens = np.random.default_rng(1).integers(0, 4, size=(30, 5))
    np.save(tmp_path / "tokens.npy", tokens)
    options = ["--tokens", str(tmp_path / "tokens.npy"), "--length", "5", "--vocab", "4", "--noise", "2"]
    results = run(capsys, "transition", *options, "--small", "--out", str(tmp_path / "run"))
    assert results["posterior"] == "dataset"
    data = [row["data"] for row in results["rows"]]
    np.testing.assert_allclose(data, np.round(data), atol=1e-9)
    assert data[-1] <= 30
    page = (tmp_path / "run" / "report.html").read_text()
    assert "independent tokens with the frequencies of these" in page
    np.testing.assert_allclose(results["frequencies"], np.bincount(tokens.ravel()) / tokens.size)


BAD = {
    "unknown attention": (["--attention", "cosine"], "`attention` must be one of softmax, linear, got 'cosine'"),
    "short": (["--length", "2"], "`length` must be an integer of at least 3, got 2"),
    "no vocabulary": (["--vocab", "1"], "`vocab` must be an integer of at least 2, got 1"),
    "no logit scale": (["--logit-scale", "0"], "`logit_scale` must be a positive finite number, got 0.0"),
    "negative value scale": (["--value-scale", "-1"], "`value_scale` must be a positive finite number, got -1.0"),
    "no noise": (["--noise", "nan"], "`noise` must be a positive finite number, got nan"),
    "not a number": (["--length", "many"], "--length"),
    "unknown option": (["--lenght", "16"], "--lenght"),
}
BAD_TRANSITION = {
    "posterior": (["--posterior", "both"], "`posterior` must be population or dataset, got 'both'"),
    "own frequencies": (
        ["--tokens", "{tmp}/good.npy", "--zipf", "1"],
        "`zipf` does not go with own tokens, whose frequencies are counted, got 1.0",
    ),
    "sizes": (["--sizes", "8,16"], "`sizes` must be none, or lengths from 3 to 15 with commas between, got '8,16'"),
    "path": (["--path", "round"], "`path` must be load or detour, got 'round'"),
    "seed": (["--seed", "-1"], "`seed` must be an integer of at least 0, got -1"),
    "one token": (["--tokens", "{tmp}/same.npy"], "`tokens` must hold at least two different tokens, got 1"),
    "missing tokens": (["--tokens", "{tmp}/none.npy"], "`tokens` must be a file that exists"),
    "real tokens": (["--tokens", "{tmp}/real.npy"], "`tokens` must hold integers, got dtype float64"),
    "flat tokens": (["--tokens", "{tmp}/flat.npy"], "`tokens` must be two-dimensional"),
    "cut tokens": (["--tokens", "{tmp}/cut.npy"], "`tokens` must be a whole .npy file"),
    "large token": (
        ["--tokens", "{tmp}/large.npy"],
        "`tokens` must lie in 0 ... 15 (`vocab` = 16), got 16 at sequence 0",
    ),
    "wrong length": (["--tokens", "{tmp}/long.npy"], "must have rows of `length` = 16 positions, got rows of 17"),
    "tokens without a data set": (
        ["--tokens", "{tmp}/good.npy", "--posterior", "population"],
        "`posterior` must be dataset when `tokens` is given",
    ),
    "file as folder": (["--out", "{tmp}/good.npy"], "`out` must be a folder"),
    "full folder": (["--out", "{tmp}"], "`out` must be new or empty"),
}
CASES = [("theory", *case) for case in BAD.values()]
CASES += [("transition", *case) for case in [*BAD.values(), *BAD_TRANSITION.values()]]


@pytest.mark.parametrize(("verb", "options", "message"), CASES, ids=lambda case: str(case)[:40])
def test_bad_input_gets_one_line(
    verb: str, options: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    good = np.zeros((60, 16), int)
    np.save(tmp_path / "good.npy", good + np.arange(16) % 2)
    np.save(tmp_path / "same.npy", good)
    np.save(tmp_path / "real.npy", good.astype(float))
    np.save(tmp_path / "flat.npy", good.ravel())
    np.save(tmp_path / "large.npy", good + 16)
    np.save(tmp_path / "long.npy", np.zeros((60, 17), int))
    whole = (tmp_path / "good.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:1000])
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    sixteen = SIXTEEN if verb == "transition" and not {"--length", "--vocab"} & set(options) else []
    with pytest.raises(SystemExit) as stop:
        main([verb, *sixteen, *(option.replace("{tmp}", str(tmp_path)) for option in options)])
    captured = capsys.readouterr()
    assert stop.value.code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert sorted(tmp_path.rglob("*")) == before


def test_help_starts_without_the_heavy_libraries() -> None:
    """In a fresh process: help is printed with an example for each verb, and neither jax nor arviz is loaded."""
    code = (
        "import sys\nfrom bayes_attn.cli import main\n"
        "try:\n    main(['transition', '--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('jax', 'arviz', 'matplotlib', 'scipy') if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Example: bayes-attn transition" in done.stdout
    assert done.stderr.strip() == "[]"


def test_frequencies_from_a_file_are_zipfs_where_they_should_be(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts in a text file and frequencies in a .npy file against --zipf; exponent 0 is uniform."""
    counts = 1000 / np.arange(1, 17) ** 0.5
    np.savetxt(tmp_path / "counts.txt", counts)
    np.save(tmp_path / "counts.npy", counts / counts.sum())
    by_zipf = run(capsys, "theory", "--zipf", "0.5")
    for name in ("counts.txt", "counts.npy"):
        by_file = run(capsys, "theory", "--token-frequencies", str(tmp_path / name))
        assert by_file["critical_load"] == pytest.approx(by_zipf["critical_load"], rel=1e-9)
    assert run(capsys, "theory", "--zipf", "0")["critical_load"] == pytest.approx(2.6143, abs=1e-4)
    assert by_zipf["critical_load"] < 2.6


BAD_MODELS = {
    "zipf": (["--zipf", "-1"], "`zipf` must be a number of at least 0, got -1.0"),
    "both": (["--zipf", "1", "--token-frequencies", "x"], "`zipf` does not go with token_frequencies, got 1.0"),
    "no file": (["--token-frequencies", "none.txt"], "`token_frequencies` must be a file that exists, got 'none.txt'"),
    "too few": (
        ["--token-frequencies", "two.txt"],
        "`token_frequencies` must hold `vocab` = 16 numbers, got shape (2,)",
    ),
    "negative": (
        ["--vocab", "2", "--token-frequencies", "two.txt"],
        "`token_frequencies` must hold numbers of at least 0, two of them positive, got -1 ... 2",
    ),
    "words": (
        ["--token-frequencies", "words.txt"],
        "`token_frequencies` must be a .npy file or a text file of numbers",
    ),
    "empty": (["--token-frequencies", "empty.txt"], "`token_frequencies` must hold `vocab` = 16 numbers"),
    "prior": (["--prior", "flat"], "`prior` must be iid, relative-bias or head-product, got 'flat'"),
    "no dimension": (["--prior", "head-product"], "`head_dimension` must be set with prior head-product, got None"),
    "a dimension": (["--head-dimension", "4"], "`head_dimension` goes with prior head-product, got 4"),
    "head": (["--prior", "head-product", "--head-dimension", "4"], "`head_dimension` must be infinite"),
    "causal linear": (["--causal", "--attention", "linear"], "`causal` must be False"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_models_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "two.txt").write_text("2 -1")
    (tmp_path / "words.txt").write_text("many few")
    (tmp_path / "empty.txt").write_text("")
    options, message = BAD_MODELS[name]
    with pytest.raises(SystemExit) as stop:
        main(["theory", *options])
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_where_the_theory_has_no_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for verb in (["theory"], ["transition", "--out", str(tmp_path / "run")]):
        with pytest.raises(SystemExit) as stop:
            main([*verb, "--length", "8", "--vocab", "8", "--logit-scale", "0.003"])
        captured = capsys.readouterr()
        assert stop.value.code == 1
        assert "the law of a row is not resolved" in captured.err
        assert captured.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_leaves_nothing(sent: signal.Signals, tmp_path: Path) -> None:
    """A real signal in the middle of a run: exit code 130, one line, no folder."""
    # A shell may have told its background jobs, and so this child, to ignore Ctrl-C.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"{heed}; from bayes_attn.cli import main; main(['transition', '--out', {str(tmp_path / 'run')!r}])"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".run.partial-*")) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert list(tmp_path.glob(".run.partial-*"))
        process.send_signal(sent)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; nothing was written" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_theory_with_a_density(capsys: pytest.CaptureFixture[str]) -> None:
    content = run(capsys, "theory", "--density", "--load", "2.6")
    m, p = np.array(content["density"]["copy_mass"]), np.array(content["density"]["probability"])
    assert content["load"] == 2.6
    assert np.trapezoid(p, m) == pytest.approx(1)
    assert np.trapezoid(p * m, m) == pytest.approx(0.22, abs=0.01)
    for options in (["--load", "2.6"], ["--density"], ["--density", "--load", "-1", "--json"]):
        with pytest.raises(SystemExit) as stop:
            main(["theory", *options])
        assert stop.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_an_interrupt_that_python_swallows_is_remembered() -> None:
    """Raised in a callback of the garbage collector it cannot travel; the next report of progress stops the run."""
    code = (
        "import gc, os, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from bayes_attn.cli import _heed_signals, _progress\n"
        "stopped = _heed_signals()\n"
        "def callback(phase, info):\n"
        "    if not stopped.is_set():\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        print('not reached')\n"
        "gc.callbacks.append(callback)\n"
        "gc.collect()\n"
        "try:\n"
        "    with _progress(stopped) as tell:\n"
        "        tell('theory', 0.0)\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("stopped\n", "")


@pytest.mark.parametrize(
    ("options", "rungs"),
    [
        (["--path", "temperature", "--rungs", "5"], 5),
        (["--path", "field", "--load", "0.5", "--field", "2", "--precision", "mixed"], 8),
        (["--path", "coexistence", "--sampler", "langevin", "--rungs", "4"], 4),
        (["--path", "four-legs", "--rungs", "9"], 9),
        (["--load", "1.0", "--sampler", "tempered-smc"], 2),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_sampling_along_any_path(
    options: list[str], rungs: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--warmup", "60", "--draws", "3", "--thin", "10", "--chains", "2", "--max-steps", "2"]
    results = run(capsys, "sample", *options, *size, "--out", str(tmp_path / "run"))
    assert results["rungs"] == len(results["rows"]) == rungs
    assert results["scans"] == 30
    folder = tmp_path / "run"
    assert json.loads((folder / "results.json").read_text()) == results
    with xr.open_datatree(folder / "posterior.nc", engine="netcdf4") as tree:
        assert tree["posterior"]["logits"].dims == ("chain", "draw", "rung", "query", "key")
        assert tree["posterior"]["logits"].shape == (2, 3, rungs, 16, 16)
        np.testing.assert_allclose(tree["ladder"]["load"], [row["load"] for row in results["rows"]])
    if "smc" not in options[-1]:
        assert np.load(folder / "records" / "order_0.npy").shape == (2, 30, rungs)
    for key in (
        "path",
        "sampler",
        "round_trips",
        "phase_round_trips",
        "communication_barrier",
        "round_trip_rate_ratio",
    ):
        assert key in results
    if options[1] == "coexistence":
        assert 0 <= results["copy_weight"] <= 1
    elif options[1] != "four-legs":
        assert results["copy_weight"] is None


def test_a_sampling_run_is_resumed_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ctrl-C: exit code 130 and how to go on; then the same numbers as a run that nobody stopped."""
    options = ["sample", "--load", "2", "--rungs", "4", "--chains", "2", "--warmup", "1000", "--draws", "50"]
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    arguments = [*options, "--out", str(tmp_path / "stopped")]
    code = f"{heed}; from bayes_attn.cli import main; main({arguments!r})"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (tmp_path / "stopped" / "records" / "checkpoint.npz").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"interrupted; the same command with --resume goes on in {tmp_path / 'stopped'}." in errors
    resumed = run(capsys, *arguments, "--resume")
    whole = run(capsys, *options, "--out", str(tmp_path / "whole"))
    for results in (resumed, whole):
        del results["seconds"]
    assert resumed == whole
    with pytest.raises(SystemExit) as stop:
        main([*arguments, "--resume", "--seed", "1"])
    assert stop.value.code == 2
    assert "`seed` was 0 there, got 1" in capsys.readouterr().err


BAD_SAMPLE = {
    "path": (
        ["--path", "round"],
        "`path` must be one of temperature, load, field, coexistence, four-legs, got 'round'",
    ),
    "no field": (["--path", "field"], "`field` must be set with path field, got None"),
    "a field": (["--field", "1"], "`field` goes with path field or four-legs, got 1.0"),
    "load": (["--load", "-1"], "`load` must be at least 0, got -1.0"),
    "rungs": (["--rungs", "few"], "`rungs` must be \"auto\" or a positive integer, got 'few'"),
    "too few rungs": (["--path", "four-legs", "--rungs", "3"], "`rungs` must be an integer of at least 5"),
    "sampler": (["--sampler", "gibbs"], "`sampler` must be one of hmc, nuts, mala, langevin"),
    "precision": (["--precision", "half"], "`precision` must be double or mixed, got 'half'"),
    "chains": (["--chains", "0"], "`chains` must be an integer of at least 1, got 0"),
    "draws": (["--draws", "0"], "`draws` must be an integer of at least 1, got 0"),
    "nothing to resume": (["--resume"], "`out` must be the folder of the run to resume"),
    "crossover": (
        ["--path", "coexistence", "--length", "12", "--vocab", "12"],
        "`path` must not be coexistence where the theory has no first-order transition",
    ),
}


@pytest.mark.parametrize("name", BAD_SAMPLE)
def test_bad_sampling_runs_are_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options, message = BAD_SAMPLE[name]
    with pytest.raises(SystemExit) as stop:
        main(["sample", *options])
    captured = capsys.readouterr()
    assert (stop.value.code, captured.out) == (2, "")
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert list(tmp_path.iterdir()) == []
