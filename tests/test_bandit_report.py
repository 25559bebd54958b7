import dataclasses

import numpy as np
import pytest

from experiments import bandit_report, bandit_rows, quoted, suites
from roid_jax.linear import play
from roid_jax.report import tables


def study(problem, **changes):
    config = getattr(suites.BANDITS["default"], problem)
    config = dataclasses.replace(config, **changes)
    methods = play.methods_for(config.etas)
    shape = (3, len(config.offline_rows), len(methods), 4)
    regret = np.random.default_rng(0).exponential(size=shape)
    return bandit_rows.Study(problem, config, methods, regret, None)


@pytest.mark.parametrize(
    "problem, printed",
    [("hidden_mode", quoted.HIDDEN_MODE), ("biased_linear", quoted.BIASED_LINEAR)],
)
def test_every_printed_number_of_the_paper_stands_beside_ours(problem, printed):
    rows = bandit_rows.make_rows(study(problem))
    found = {(row["method"], row["eta"], row["N"]): row["paper"] for row in rows if row["paper"]}
    expected = {
        (*method, n): value for method, line in printed.items() for n, value in line.items()
    }
    assert found == expected


@pytest.mark.parametrize(
    "problem, changes",
    [("hidden_mode", {"horizon": 20}), ("biased_linear", {"noise": 1.0, "model_noise": 1.0})],
)
def test_another_setting_is_not_set_beside_the_paper(problem, changes):
    other = study(problem, **changes)
    assert all(row["paper"] is None for row in bandit_rows.make_rows(other))
    text = tables.to_markdown(bandit_report.make_tables(other)[0])
    assert "paper |" not in text and "not the paper's setting" in text


def test_rows_are_the_mean_and_spread_of_the_totals():
    made = study("biased_linear")
    row = next(r for r in bandit_rows.make_rows(made) if r["method"] == "ucb" and r["N"] == 50)
    totals = made.regret[:, 1, 1].sum(axis=-1)
    assert row["mean"] == pytest.approx(totals.mean())
    assert row["std"] == pytest.approx(totals.std(ddof=1))


def test_one_seed_has_no_spread():
    made = study("biased_linear")
    rows = bandit_rows.make_rows(made._replace(regret=made.regret[:1]))
    assert all(row["std"] is None for row in rows)
