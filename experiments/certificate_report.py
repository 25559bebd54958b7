"""Tables and figures of the certificates, from what was measured."""

import numpy as np

from experiments import bandit_rows, certificate_rows
from roid_jax.linear import hidden_mode, play, separation, theory
from roid_jax.report import figures, tables


def make_tables(report: certificate_rows.Report) -> list[tables.Table]:
    """Returns the tables of the bound, the certificate, the identities and the separation."""
    return [
        _bound_table(report),
        _ratio_table(report),
        _identity_table(report),
        _threshold_table(report),
        _contest_table(report),
    ]


def _bound_table(report: certificate_rows.Report) -> tables.Table:
    body: list[tuple[str, ...]] = []
    for cell in report.cells:
        for row in certificate_rows.bound_rows(cell):
            is_first = row["method"] == cell.methods[0].name
            name = bandit_rows.label(play.Method(row["method"], row["eta"]))
            body.append(
                (
                    f"{row['H']} {row['d']} {row['n']}" if is_first else "",
                    name,
                    tables.with_error(row["regret"], row["regret_error"]),
                    f"{row['information']:.1f}",
                    *(f"{row[key]:.0f}" for key in ("master_bound", "elliptical_bound")),
                    f"{row['coverage_bound']:.0f}",
                    f"{row['coverage']:.2f}",
                )
            )
        body.append(())
    episodes = report.config.episodic.episodes
    columns = ("H d n", "method", "regret", "nats", "bound", "ellip.", "cover.", "C†")
    notes = (
        "bound: from the information gained (Proposition 3); ellip., cover.: Theorem 7.",
        "The bound covers the randomised rule; TS and the deterministic rule are there to compare.",
    )
    title = f"Bayesian regret over T = {episodes} episodes, and what bounds it"
    return tables.Table(title, columns, tuple(body[:-1]), notes, text_columns=2)


def _ratio_table(report: certificate_rows.Report) -> tables.Table:
    body: list[tuple[str, ...]] = []
    for cell in report.cells:
        for row in certificate_rows.ratio_rows(cell):
            name = bandit_rows.label(play.Method(row["method"], row["eta"]))
            body.append(
                (
                    f"{row['H']} {row['d']} {row['n']}",
                    name,
                    f"{row['violations']} of {row['steps']}",
                    f"{row['worst']:.4f}",
                    f"{100 * row['thompson_share_of_constant']:.1f}%",
                )
            )
        body.append(())
    probe = certificate_rows.probe_ratio_row()
    notes = (
        "exceeds: steps on which the rule's ratio is above that of Thompson sampling (Lemma 2); "
        "worst: the largest quotient of the two; TS / C_w: how near Lemma 5 comes to being tight.",
        f"Hidden-mode bandit at N = 1000: IDS {probe['ids']:.3f} > TS {probe['thompson']:.3f} > "
        f"randomised IDS {probe['ids_randomised']:.3f}.",
    )
    columns = ("H d n", "rule", "exceeds", "worst", "TS / C_w")
    return tables.Table("Ratio certificate", columns, tuple(body[:-1]), notes, text_columns=2)


def _identity_table(report: certificate_rows.Report) -> tables.Table:
    body = []
    for cell in report.cells:
        errors = {
            row["identity"]: f"{row['error']:.1e}" for row in certificate_rows.identity_rows(cell)
        }
        body.append((f"{cell.config.horizon} {cell.config.feature_dim}", *errors.values()))
    columns = ("H d", "log-determinant", "trace", "second moment")
    notes = ("The largest relative error over all runs, in float32.",)
    return tables.Table("Identities behind the bound", columns, tuple(body), notes)


def _threshold_table(report: certificate_rows.Report) -> tables.Table:
    rows = certificate_rows.threshold_rows(report.config)
    body = tuple(
        (f"q = {rate:g}", *(str(row["N_star"]) for row in rows if row["q"] == rate))
        for rate in report.config.reveal_rates
    )
    columns = ("", *(f"c = {cost:g}" for cost in report.config.probe_costs))
    hidden = hidden_mode.HiddenModeConfig()
    gaps = separation.gaps_of(hidden.rewards)
    star = separation.warm_start_threshold(gaps, reveal_rate=hidden.reveal_rate, prior=hidden.prior)
    notes = (
        "From N_star offline rows on, vanilla IDS takes the probe.",
        f"Hidden-mode bandit of the paper: it separates from N = {star} on, and in the limit TS "
        f"regrets at least {separation.asymptotic_ratio(gaps):.2f} times as much.",
    )
    return tables.Table("N_star of the concrete H = 2 instance", columns, body, notes)


def _contest_table(report: certificate_rows.Report) -> tables.Table:
    body = []
    for row in certificate_rows.contest_rows(report.contest):
        body.append(
            (
                str(row["N"]),
                f"{row['p']:.4f}",
                str(row["T"]),
                tables.number(row["ids_regret"]),
                tables.number(row["ids_bound"]),
                tables.with_error(row["thompson_regret"], row["thompson_error"]),
                tables.number(row["thompson_bound"]),
                "yes" if row["separates"] else "no",
            )
        )
    config = report.config.separation
    star = separation.concrete_threshold(config.probe_cost, reveal_rate=config.reveal_rate)
    title = f"Separation at q = {config.reveal_rate:g}, c = {config.probe_cost:g} (N_star = {star})"
    columns = ("N", "p", "T", "IDS 0", "at most", "TS", "at least", "separates")
    notes = ("T = ceil(1/p). Below N_star the theorem says nothing about IDS.",)
    return tables.Table(title, columns, tuple(body), notes)


def make_figures(report: certificate_rows.Report) -> dict[str, bytes]:
    """Returns the figures as PNG, by file name."""
    return {
        "bounds": _bound_figure(report),
        "ratios": _ratio_figure(report),
        "separation": _contest_figure(report),
    }


def _bound_figure(report: certificate_rows.Report) -> bytes:
    panels = []
    for cell in report.cells:
        steps = np.arange(1, cell.config.episodes + 1)
        size = cell.config.horizon, cell.config.feature_dim
        constant = theory.reference_ratio_constant(horizon=size[0], dim=size[1])
        for i, n in enumerate(cell.config.offline_rows):
            regret = np.asarray(cell.episodes.regret)[:, i].mean(axis=(0, 1)).cumsum(axis=-1)
            gain = np.asarray(cell.episodes.gain)[:, i].sum(-1).mean(axis=(0, 1)).cumsum(axis=-1)
            first = cell.config.etas[0]
            shown = [j for j, method in enumerate(cell.methods) if method.eta in (None, first)]
            lines = [
                figures.Line(bandit_rows.label(cell.methods[j]), steps, regret[j]) for j in shown
            ]
            rule = next(j for j in shown if cell.methods[j].name == "ids_randomised")
            master = np.asarray(
                theory.master_bound(gain[rule], episodes=steps, ratio=constant, eta=first)
            )
            ends = np.array([cell.config.episodes])
            branches = {
                "elliptical branch": cell.measured.elliptical,
                "coverage branch": cell.measured.covered,
            }
            lines.append(figures.Line("bound", steps, master, None, "-"))
            for (name, leaf), style in zip(branches.items(), ("^", "s"), strict=True):
                value = np.asarray(leaf)[:, i, rule].mean()
                lines.append(figures.Line(name, ends, np.array([value]), None, style))
            title = f"H = {size[0]}, d = {size[1]}, n = {n}"
            panels.append(figures.Panel(title, "episode", "Bayesian regret", lines, y_scale="log"))
    columns = min(4, len(panels))
    title = "Measured Bayesian regret and the bound of randomised IDS"
    return figures.draw(panels, columns=columns, title=title, width=3.6)


def _ratio_figure(report: certificate_rows.Report) -> bytes:
    panels = []
    for cell in report.cells:
        steps = np.arange(1, cell.config.episodes + 1)
        ratios = cell.episodes.certificate
        for i, n in enumerate(cell.config.offline_rows):
            shown = (
                ("TS", ratios.reference),
                ("IDS", ratios.single),
                ("randomised IDS", ratios.mixed),
            )
            lines = [
                figures.Line(name, steps, np.asarray(leaf)[:, i, ..., 0].mean(axis=(0, 1, 2)))
                for name, leaf in shown
            ]
            title = f"H = {cell.config.horizon}, d = {cell.config.feature_dim}, n = {n}"
            panels.append(figures.Panel(title, "episode", "information ratio", lines))
    columns = min(4, len(panels))
    title = f"Information ratio at eta = {report.config.episodic.etas[0]:g}, mean over runs"
    return figures.draw(panels, columns=columns, title=title, width=3.6)


def _contest_figure(report: certificate_rows.Report) -> bytes:
    contest, rows = report.contest, certificate_rows.contest_rows(report.contest)
    gaps = separation.gaps_of(contest.config.rewards)
    sizes = np.array(contest.config.offline_rows)

    def column(key: str) -> np.ndarray:
        return np.array([np.nan if row[key] is None else row[key] for row in rows])

    over_rows = [
        figures.Line("TS", sizes, column("thompson_regret"), column("thompson_error"), "o-"),
        figures.Line("IDS 0", sizes, column("ids_regret"), None, "o-"),
        figures.Line("TS at least", sizes, column("thompson_bound"), None, "--"),
        figures.Line("IDS 0 at most", sizes, column("ids_bound"), None, "--"),
    ]
    last = len(sizes) - 1
    steps = np.arange(1, contest.config.horizon + 1)
    p = float(contest.config.residual_probability()[last])
    curves = contest.curves[:, last]
    error = curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
    says = [separation.separation(p, gaps, episodes=int(step)) for step in steps]
    over_time = [
        figures.Line("TS", steps, curves[:, 0].mean(0), error[0]),
        figures.Line("IDS 0", steps, curves[:, 1].mean(0), None),
        figures.Line("TS at least", steps, np.array([s.thompson_bound for s in says]), None, "--"),
        figures.Line(
            "IDS 0 at most",
            steps,
            np.array([s.ids_bound if s.ids_probes else np.nan for s in says]),
            None,
            "--",
        ),
    ]
    panels = [
        figures.Panel("at T = ceil(1/p)", "offline rows N", "regret", over_rows),
        figures.Panel(f"at N = {sizes[last]}", "episode T", "regret", over_time),
    ]
    return figures.draw(panels, columns=2, title="Separation: measured and bounds", width=5.0)
