"""The README and SECURITY.md: commands run on the database of `oteval demo`, promises hold."""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from oteval import Store, refresh
from oteval.ingest.otlp import decode_protobuf
from oteval.reconstruct.dialects import DIALECTS
from scripts import make_readme_figures, newcomer
from scripts.newcomer import Step, steps

from .commands import Done, Run
from .make import ROOT
from .otlp_endpoint import listening

TEXT = (ROOT / "README.md").read_text("utf-8")
DOORS = ("I changed a prompt", "I watch agents in production", "I study sessions")
SERVER = "http://127.0.0.1:4318"
LIVE = "oteval-demo/live.duckdb"


def check(step: Step, done: Done) -> None:
    """Assert the status, and that the shown lines are lines of the output, in order."""
    assert done.status == step.status, (step.words, done)
    printed = iter([line.rstrip() for line in done.out.splitlines()])
    missing = [line for line in step.lines if line not in printed]
    assert not missing, (step.words, done.out)


def door(title: str) -> str:
    """Return the text below a heading of the third level."""
    return re.split(r"^##", TEXT.partition(f"### {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def check_door(demo: Run, title: str, *, parsed: tuple[str, ...]) -> None:
    """Run the commands below a heading in order; of some, check the options only."""
    oteval_steps = [step for step in steps(door(title)) if step.words[0] == "oteval"]
    assert 4 <= len(oteval_steps) <= 8
    with listening() as endpoint:
        for step in oteval_steps:
            arguments = [endpoint.url if word == SERVER else word for word in step.words[1:]]
            if arguments[0] in parsed:
                options = arguments[: arguments.index("--")] if "--" in arguments else arguments
                assert demo(*options, "--help").status == 0
                continue
            if "diverged" in "".join(step.lines):
                agent = Path("examples", "refunds_agent.py")
                agent.write_text(agent.read_text("utf-8").replace(" and the policy", ""), "utf-8")
            check(step, demo(*arguments))
            if endpoint.url in arguments:
                serve(demo, endpoint.bodies())


def serve(oteval: Run, bodies: list[bytes]) -> None:
    """Store and score requests, as the server of the README does."""
    with Store(LIVE) as store:
        for body in bodies:
            store.spans.write(decode_protobuf(body).spans, [])
        refresh(store)
    assert oteval("score", "-c", "oteval-demo/oteval.yaml", "--db", LIVE).status == 1


@pytest.fixture
def demo(oteval: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command in a folder with the demo and the examples, as in a checkout."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=lambda *_: ["node"])
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert oteval("demo").status == 0
    for step in steps(TEXT):
        if step.words[0] == "export":
            monkeypatch.setenv(*step.words[1].split("=", 1))
    return oteval


def test_the_demo_prints_what_the_readme_shows(oteval: Run, monkeypatch: pytest.MonkeyPatch):
    """The lines below `make demo` are lines of its output."""
    monkeypatch.setenv("COLUMNS", "100")
    step = next(step for step in steps(TEXT) if step.words == ["make", "demo"])

    assert len(step.lines) >= 8
    check(step, oteval("demo"))


def test_the_first_screen_has_the_commands_of_a_newcomer():
    """Its options exist, and it ends with the command that names the broken run."""
    words = [step.words for step in newcomer.first_screen()]

    assert [line[1] for line in words] == ["run", "init", "score", "whatif"]
    assert newcomer.BROKEN in words[0]


@pytest.mark.slow
def test_the_first_screen_works_with_an_agent(tmp_path: Path):
    """An agent of OpenAI's client is recorded and scored; an edited prompt breaks the run shown."""
    with newcomer.model_server() as url:
        environment = Path(sys.executable).parent.parent
        player = newcomer.Newcomer(environment, tmp_path / "newcomer", url)
        newcomer.play(player, newcomer.PLAIN)


@pytest.mark.parametrize("title", DOORS)
def test_the_commands_of_a_door_work_on_the_demo(demo: Run, title: str):
    """Each command has the exit status that its comment names; servers and replays only parse."""
    check_door(demo, title, parsed=("serve", "view", "replay", "whatif"))


@pytest.mark.slow
def test_the_replays_of_a_door_work_on_the_demo(demo: Run):
    """The agent of the examples passes, gets a test, and differs once its prompt is changed."""
    check_door(demo, "I changed a prompt", parsed=())


def test_what_the_readme_installs_exists():
    """The extras are those of the package, and the targets are those of the Makefile."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    words = [step.words for step in steps(TEXT)]

    extras = [extra for line in words for word in line for extra in re.findall(r"\[(.*)\]", word)]
    assert set(extras) <= set(project["optional-dependencies"])
    for line in words:
        assert line[0] != "make" or re.search(rf"^{line[1]}:", makefile, re.MULTILINE), line


def test_the_readme_counts_the_dialects():
    """The number of dialects is that of the registry."""
    assert f"\n{len(DIALECTS)} [dialects](docs/reference/dialects.md)" in TEXT


def test_the_ways_to_report_a_vulnerability_exist():
    """SECURITY.md says that the package names no mail address, as long as it names none."""
    authors = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["authors"]
    says_none = "names no mail address" in (ROOT / "SECURITY.md").read_text("utf-8")

    assert says_none == (not any("email" in author for author in authors))


def test_the_figures_of_the_readme_are_those_of_the_results():
    """The tables are made from benchmarks/RESULTS.md."""
    assert make_readme_figures.page() == TEXT, "run python -m scripts.make_readme_figures"
