"""The binaries as a user meets them: run as processes, at tiny size."""

import csv
import json

import processes
import pytest


def call(module, *flags):
    return processes.call(f"experiments.{module}", *flags)


@pytest.fixture(scope="module")
def bandits(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("bandits")
    done = call("bandits", "--preset=smoke", "--seeds=2", "--first_seed=3", f"--workdir={workdir}")
    assert done.returncode == 0, done.stderr
    return workdir, done


def test_bandits_print_both_tables_of_both_problems(bandits):
    _, done = bandits
    for text in ("Hidden-mode bandit", "Biased linear bandit", "main table", "full eta sweep"):
        assert text in done.stdout
    assert done.stderr == ""


def test_bandits_write_one_row_per_method_eta_and_n(bandits):
    workdir, _ = bandits
    rows = [json.loads(line) for line in (workdir / "results.jsonl").read_text().splitlines()]
    cells = [(row["problem"], row["method"], row["eta"], row["N"]) for row in rows]
    assert len(set(cells)) == len(cells) == 4 * 11 + 2 * 7
    assert {row["method"] for row in rows} == {"greedy", "ucb", "thompson", "ids", "ids_randomised"}
    assert all(row["seeds"] == 2 and row["mean"] >= 0 and row["std"] >= 0 for row in rows)
    assert all((row["eta"] is None) == (not row["method"].startswith("ids")) for row in rows)
    hidden = next(r for r in rows if r["method"] == "ids" and r["N"] == 1000 and r["eta"] == 0)
    assert hidden["mean"] == pytest.approx(hidden["analytic"], abs=1e-6) == pytest.approx(0.15)
    assert all(row["paper"] is None for row in rows), "20 steps are not the paper's setting"
    with open(workdir / "results.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == len(rows)


def test_bandits_write_tables_configuration_and_figures(bandits):
    workdir, _ = bandits
    assert "| N |" in (workdir / "tables.md").read_text()
    record = json.loads((workdir / "config.json").read_text())
    assert record["config"]["biased_linear"]["feature_map"]["feature_dim"] == 8
    names = {path.name for path in workdir.glob("*.png")}
    assert names == {
        "hidden_mode_regret.png",
        "hidden_mode_eta.png",
        "hidden_mode_phase.png",
        "biased_linear_regret.png",
        "biased_linear_eta.png",
    }


def test_certificates_write_every_kind_of_row_and_a_figure_of_each(tmp_path):
    done = call("certificates", "--preset=smoke", f"--workdir={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    rows = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    kinds = {"bound", "ratio", "probe_ratio", "identity", "threshold", "separation"}
    assert {row["kind"] for row in rows} == kinds
    randomised = [r for r in rows if r["kind"] == "ratio" and r["method"] == "ids_randomised"]
    assert randomised and all(row["violations"] == 0 for row in randomised)
    star = {(r["q"], r["c"]): r["N_star"] for r in rows if r["kind"] == "threshold"}
    assert star[0.005, 0.15] == 124 and star[0.2, 0.45] == 14
    assert {p.name for p in tmp_path.glob("*.png")} == {
        "bounds.png",
        "ratios.png",
        "separation.png",
    }


MISTAKES = [
    ("bandits", "--problem=chess", "--problem=chess: value should be one of"),
    ("bandits", "--seeds=0", "--seeds=0: 0 is not an integer in the range [1"),
    ("bandits", "--seeds=many", "--seeds=many"),
    ("bandits", "--sedes=3", "Unknown command line flag 'sedes'. Did you mean: seeds"),
    ("bandits", "run", "unexpected argument 'run'"),
    ("bandits", "--config.hidden_mode.horzion=3", "did you mean 'horizon'?"),
    ("bandits", "--config.=3", "unknown field ''"),
    ("bandits", "--config.hidden_mode.horizon=-3", "horizon must be a whole number"),
    ("bandits", "--config.hidden_mode.horizon=long", "--config.hidden_mode.horizon=long"),
    ("bandits", "--config.hidden_mode.rewards=1,2,3", "rewards must be two rows of three numbers"),
    ("bandits", "--config.biased_linear.bias=nan", "bias must be a finite number"),
    ("bandits", "--workdir=", "--workdir is empty; give it a value"),
    ("bandits", "--workdir=/dev/null/x", "cannot write results to '/dev/null/x'"),
    ("certificates", "--config.reveal_rates=abc", "reveal_rates"),
    ("certificates", "--config.separation.offline_rows=100000", "separation.horizon must be"),
    ("certificates", "--config.separation.seeds=1", "seeds must be a whole number from 2"),
    ("certificates", "--config.episodic.horizon=3", "left alone: set horizons, got 3"),
]


@pytest.mark.parametrize("binary, mistake, expected", MISTAKES, ids=[m[1] for m in MISTAKES])
def test_a_mistake_gets_one_clear_line_and_a_bad_exit_code(binary, mistake, expected):
    done = call(binary, mistake)
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("error: ")
    assert expected in done.stderr


def test_help_lists_the_flags_and_every_field_of_the_configuration():
    done = call("bandits", "--help")
    assert done.returncode == 0
    for text in ("--problem", "--preset", "--seeds", "--config.biased_linear.noise=0.05", "beside"):
        assert text in done.stdout + done.stderr
