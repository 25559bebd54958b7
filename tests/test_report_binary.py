"""`experiments.report` over made-up result files: its numbers, its files, its page in a browser."""

import csv
import functools
import pathlib
import shutil

import made_runs
import numpy as np
import processes
import pytest

from experiments import quoted, report, report_runs, report_tables
from roid_jax import directories
from roid_jax.evaluation import REFERENCE_RETURNS

ROOT = pathlib.Path(__file__).parent.parent
TASKS = ("hopper-medium-v2", "halfcheetah-medium-v2")


def write(out, *words, studies=()):
    """Writes a report as the binary does, in this process."""
    runs = report_runs.read(list(map(str, words)))
    report.write(
        directories.open_workdir(out), runs, report_tables.make(runs), list(map(str, studies))
    )


call = functools.partial(processes.call, "experiments.report")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("report")
    raw = made_runs.write_sweep(root / "sweep", tasks=TASKS, seeds=5, candidates=True)
    done = call(root / "sweep", f"--out={root / 'out'}")
    assert done.returncode == 0, done.stderr
    return root, raw, done


def read_csv(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


def score(task, returns):
    low, high = REFERENCE_RETURNS[task.split("-")[0]]
    return 100.0 * (returns - low) / (high - low)


def test_the_table_is_what_the_raw_returns_say(made):
    root, raw, _ = made
    rows = {(row["task"], row["run"], row[""]): row for row in read_csv(root / "out/scores.csv")}
    for task in TASKS:
        for agent in ("roid", "pex"):
            seeds = [score(task, raw[task, agent, seed]).mean(axis=1)[1:] for seed in range(5)]
            last_ten = sorted(float(np.mean(one[-10:])) for one in seeds)
            mean = rows[task, agent, "mean"]
            assert float(mean["last 10"].split()[0]) == pytest.approx(np.mean(last_ten), abs=0.051)
            last = np.mean([one[-1] for one in seeds])
            assert float(mean["last"].split()[0]) == pytest.approx(last, abs=0.051)
            best = np.mean([one.max() for one in seeds])
            assert float(mean["best"].split()[0]) == pytest.approx(best, abs=0.051)
            middle = np.mean(last_ten[1:4])  # of five seeds a quarter is one, on each side
            iqm = rows[task, agent, "IQM"]
            assert float(iqm["last 10"].split()[0]) == pytest.approx(middle, abs=0.051)


def test_its_intervals_are_a_bootstrap_of_the_seeds(made):
    root, raw, _ = made
    random = np.random.default_rng(0)
    task, agent = "hopper-medium-v2", "roid"
    seeds = [score(task, raw[task, agent, seed]).mean(axis=1)[1:][-10:].mean() for seed in range(5)]
    draws = np.mean(random.choice(seeds, (20_000, 5)), axis=1)
    low, high = np.quantile(draws, [0.025, 0.975])
    (row,) = [
        row
        for row in read_csv(root / "out/scores.csv")
        if (row["task"], row["run"], row[""]) == (task, agent, "mean")
    ]
    found = row["last 10"].split("[")[1].strip("]").split(", ")
    assert [float(number) for number in found] == pytest.approx([low, high], abs=0.25)


def test_it_is_the_same_again_to_the_byte(made, tmp_path):
    root, _, _ = made
    write(tmp_path, root / "sweep")
    for name in ("scores.csv", "overall.csv", "improvement.csv", "index.html", "curves.png"):
        assert (tmp_path / name).read_bytes() == (root / "out" / name).read_bytes(), name


def test_every_file_is_there(made):
    root, _, done = made
    out = root / "out"
    for table in ("scores", "overall", "improvement", "seeds"):
        for suffix in ("md", "csv", "tex"):
            assert (out / f"{table}.{suffix}").stat().st_size > 50
    for figure in ("curves", "profile", "diagnostics"):
        assert (out / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        assert b"<svg" in (out / f"{figure}.svg").read_bytes()
    assert len(list((out / "runs").glob("*.html"))) == 20
    assert "Over all tasks" in done.stdout and "index.html" in done.stdout


def test_the_papers_numbers_stand_beside_ours(made):
    root, _, _ = made
    rows = read_csv(root / "out/scores.csv")
    (row,) = [r for r in rows if (r["task"], r["run"], r[""]) == (TASKS[0], "roid", "mean")]
    assert row["quoted"] == "51.21 → 113.22"
    sums = {
        agent: sum(table[agent][1] for table in quoted.D4RL.values())
        for agent in quoted.D4RL[TASKS[0]]
    }
    printed = {"rlpd": 567.9, "odt": 422.3, "pex": 489.0, "calql": 522.6, "boorl": 633.2}
    for agent, total in {**printed, "roid": 648.9}.items():
        assert sums[agent] == pytest.approx(total, abs=0.051)


def test_which_beats_which_counts_pairs(made):
    root, raw, _ = made
    last = {key: score(key[0], one).mean(axis=1)[1:][-10:].mean() for key, one in raw.items()}
    wins = [
        last[task, "pex", a] > last[task, "roid", b]
        for task in TASKS
        for a in range(5)
        for b in range(5)
    ]
    (row,) = read_csv(root / "out/improvement.csv")
    assert (row["run"], row["over"]) == ("pex", "roid") or (row["run"], row["over"]) == (
        "roid",
        "pex",
    )
    chance = np.mean(wins) if row["run"] == "pex" else 1 - np.mean(wins)
    assert float(row["probability of improvement"].split()[0]) == pytest.approx(chance, abs=0.006)


def test_a_name_that_is_not_on_every_task_is_left_out_of_the_whole(tmp_path):
    made_runs.write_sweep(tmp_path / "a", tasks=TASKS, seeds=2)
    made_runs.write_sweep(tmp_path / "b", agents=("odt",), tasks=TASKS[:1], seeds=2)
    runs = report_runs.read([str(tmp_path / "a"), str(tmp_path / "b")])
    names = [row[0] for row in report_tables.over_tasks(runs).rows]
    assert names == ["roid", "pex"] or sorted(names) == ["pex", "roid"]


@pytest.mark.parametrize("content", ["", "not json\n", "[1, 2]\n", '{"phase": 3}\n'])
def test_results_that_cannot_be_read_are_refused(tmp_path, content):
    made_runs.write(tmp_path / "mine", name="roid", task=TASKS[0], seed=0)
    (tmp_path / "mine/seed_0/results.jsonl").write_text(content)
    with pytest.raises(ValueError, match=r"is not what experiments.train writes|has come to its"):
        report_runs.read([str(tmp_path / "mine")])


def test_results_that_cannot_be_read_and_can_be_made_again_are_not_to_be_removed(tmp_path):
    made_runs.write(tmp_path / "mine", name="roid", task=TASKS[0], seed=0)
    (tmp_path / "mine/seed_0/results.jsonl").write_text("{")
    with pytest.raises(ValueError, match=r"JSON.*; remove it, or name another workdir"):
        report_runs.read([str(tmp_path / "mine")])
    (tmp_path / "mine/seed_0/checkpoints").mkdir()
    with pytest.raises(ValueError, match="; start that training again, which writes it anew"):
        report_runs.read([str(tmp_path / "mine")])


@pytest.mark.parametrize("word", ["", "mine=", "="])
def test_a_workdir_without_a_name_is_refused(tmp_path, word):
    done = call(word, f"--out={tmp_path / 'out'}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert f"{word!r} has no workdir" in done.stderr


def test_what_cannot_be_read_gets_one_line(tmp_path):
    done = call(tmp_path, f"--out={tmp_path / 'out'}")
    assert done.returncode == 2 and not (tmp_path / "out").exists()
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1, done.stderr


def test_a_study_of_the_linear_path_has_its_tables_and_figures_on_the_page(tmp_path):
    made_runs.write(tmp_path / "mine", name="roid", task=TASKS[0], seed=0)
    study = tmp_path / "bandits"
    study.mkdir()
    (study / "tables.md").write_text(
        "### Bandit\n\n| N | a |\n| --- | ---: |\n| 1 | 0.15 |\n\nn.\n"
    )
    shutil.copy(ROOT / "docs/figures/hidden_mode_phase.png", study)
    assert report.is_study(str(study)) and not report.is_study(str(tmp_path / "mine"))
    write(tmp_path / "out", tmp_path / "mine", studies=[study])
    text = (tmp_path / "out/index.html").read_text()
    assert "Study: bandits" in text and "0.15" in text and "data:image/png;base64," in text


def test_a_study_needs_no_runs_beside_it_and_may_have_a_name(tmp_path):
    study = ROOT / "docs/results/bandits"
    done = call(f"linear={study}", f"--out={tmp_path}")
    assert done.returncode == 0, done.stderr
    assert "Study: linear" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    ("file", "content", "expected"),
    [
        ("mine/seed_0/config.json", '{"run": {}, "command": []}', "is not what experiments.train"),
        ("study/tables.md", "### Table\n| a |\n", "is not what experiments.bandits writes"),
    ],
)
def test_damaged_files_get_one_line(tmp_path, file, content, expected):
    made_runs.write(tmp_path / "mine", name="roid", task=TASKS[0], seed=0)
    (tmp_path / "study").mkdir()
    shutil.copy(ROOT / "docs/results/bandits/tables.md", tmp_path / "study")
    (tmp_path / file).write_text(content)
    done = call(tmp_path / "mine", tmp_path / "study", f"--out={tmp_path / 'out'}")
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert expected in done.stderr


def test_names_that_would_share_a_page_are_refused(tmp_path):
    for name in ("a b", "a-b"):
        made_runs.write(tmp_path / name, name=name, task=TASKS[0], seed=0)
    with pytest.raises(ValueError, match="two runs would have the page"):
        report_runs.read([f"{name}={tmp_path / name}" for name in ("a b", "a-b")])


def test_only_what_the_paper_ran_has_its_number_beside_it(tmp_path):
    made_runs.write(tmp_path / "mine", name="roid", task=TASKS[0], seed=0)
    (run,) = report_runs.read([str(tmp_path / "mine")])
    assert report_tables._quoted(run.task, run) == "51.21 → 113.22"
    about = {**run.about, "run": {**run.about["run"], "dataset": "hdf5:/my/own.hdf5"}}
    assert report_tables._quoted(run.task, run._replace(about=about)) == ""
    config = {**run.about["config"], "agent": {"selector": {"name": "thompson"}}}
    about = {**run.about, "config": config}
    assert report_tables._quoted(run.task, run._replace(about=about)) == ""


def test_the_terminals_table_fits_eighty_columns(made):
    _, _, done = made
    lines = done.stdout.splitlines()
    (line,) = [line for line in lines if line.startswith("hopper-medium-v2") and "roid" in line]
    assert len(line) <= 80 and line.split()[1] == "roid"


def test_two_hundred_runs_make_a_page_of_less_than_five_megabytes(tmp_path):
    made_runs.write_sweep(
        tmp_path / "sweep",
        agents=("roid", "boorl", "rlpd", "calql", "pex"),
        tasks=tuple(quoted.D4RL)[:4],
        seeds=10,
        evaluations=40,
    )
    write(tmp_path / "out", tmp_path / "sweep")
    assert (tmp_path / "out/index.html").stat().st_size < 5e6
    assert len(list((tmp_path / "out/runs").glob("*.html"))) == 200


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium here to open the page with")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.mark.parametrize("width, scheme", [(1280, "light"), (390, "dark")])
def test_the_page_opens_and_can_be_clicked_through(made, browser, width, scheme, tmp_path):
    root, _, _ = made
    opened = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    said, asked = [], []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: asked.append(request.url))
    opened.goto((root / "out/index.html").as_uri())
    opened.screenshot(path=str(root / f"page-{width}-{scheme}.png"), full_page=True)

    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    seeds = opened.locator("table", has_text="Every seed")
    seeds.get_by_role("button", name="last 10").click()
    column = [head.inner_text() for head in seeds.locator("th").all()].index(["last 10", ""][0])
    bodies = seeds.locator("tbody").all()
    for body in bodies:
        cells = body.locator(f"td:nth-child({column + 1})").all_inner_texts()
        assert cells == sorted(cells, key=float)
    seeds.get_by_role("button", name="last 10").click()
    cells = bodies[0].locator(f"td:nth-child({column + 1})").all_inner_texts()
    assert cells == sorted(cells, key=float, reverse=True)

    opened.get_by_role("link", name="pex-hopper-medium-v2-seed-3").click()
    assert opened.locator("h1").inner_text() == "pex on hopper-medium-v2, seed 3"
    assert opened.locator("h2", has_text="Regret against information").count() == 1
    assert opened.locator("svg").count() >= 8
    opened.screenshot(path=str(root / f"run-{width}-{scheme}.png"), full_page=True)
    opened.get_by_role("link", name="all runs").click()
    assert opened.locator("h1").inner_text() == "Offline to online"
    opened.close()
    assert said == []
    assert all(url.startswith(("file:", "data:")) for url in asked), asked
