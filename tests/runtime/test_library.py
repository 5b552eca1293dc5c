"""Programs of users: `run`, called in typical ways.

Each is a script by a user who has read only the front page: without types, from a prompt, without a
guard, in a process with threads, twice, and with a bug in it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from tests.conftest import Run
from tests.runtime.conftest import Ended, Ranks
from tests.runtime.test_stopping import await_ranks, started

RANKS = [Ranks(1), Ranks(3), pytest.param(Ranks(3, mpi=True), marks=pytest.mark.mpi)]
RANKS.append(pytest.param(Ranks(3, mpi=True, jobs_each=3), marks=pytest.mark.mpi))
SEVERAL = RANKS[1:]

TASK = """\
import os, sys, threading, time
from pathlib import Path
from pcircle.runtime import Task, run
from tests.runtime.tasks import Meeting

class Node:
    def __init__(self, number, depth):
        self.number, self.depth = number, depth

class Numbers(Task):
    def seed(self):
        return [Node(number, (0, 1)) for number in range(4)]

    def process(self, item, here):
        if self.meeting is not None:
            self.meeting.wait(here.is_stopping)  # so each rank has items of another one
        self.mishap(item, here)
        assert isinstance(item, Node) and isinstance(item.depth, tuple)
        if item.depth[0] < 3:
            here.spawn([Node(item.number, (item.depth[0] + 1, 1))] * 3)
        here.note([("at", item.depth)] if (item.number, item.depth[0]) == (3, 0) else [])
        return {"items": 1, "ranks": {os.getpid()}}

    def merge(self, a, b):
        return {"items": a["items"] + b["items"], "ranks": a["ranks"] | b["ranks"]}

    meeting = None

    def mishap(self, item, here):
        pass
"""
THREAD = "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
WAITS = "        while not here.stopping: time.sleep(0.005)\n"
RUN = """\
task = Numbers()
if len(sys.argv) > 2:
    task.meeting = Meeting(sys.argv[2], int(sys.argv[3]))
end = run(task, jobs=int(sys.argv[1]) or None, check=False)
if end.outcome is not None and end.outcome.result is not None:
    print(end.code, end.outcome.result["items"], len(end.outcome.result["ranks"]))
"""
END = "sys.exit(end.code)\n"
GUARD = 'if __name__ == "__main__":\n'


def guarded(text: str) -> str:
    return GUARD + "".join(f"    {line}" for line in text.splitlines(keepends=True))


class Script(Protocol):
    def __call__(self, text: str, ranks: Ranks, *, meet: bool = True) -> Ended: ...


@pytest.fixture
def script(
    run: Run, request: pytest.FixtureRequest, tmp_path: Path, environment: dict[str, str]
) -> Script:
    """Run a script on ranks of which each gets an item; its output precedes its errors."""

    def start(text: str, ranks: Ranks, *, meet: bool = True) -> Ended:
        path, folder = tmp_path / "script.py", tmp_path / "meeting"
        path.write_text(text)
        folder.mkdir()
        line = [sys.executable, str(path), str(ranks.jobs)]
        line += [str(folder), str(ranks.size)] if meet else []
        if ranks.mpi:
            mpirun: Callable[[int], list[str]] = request.getfixturevalue("mpirun")
            line = [*mpirun(ranks.processes), *line]
        done = run(line, env=environment)
        said = done.stdout.decode() + done.stderr.decode()
        return Ended(done.returncode, None, said, Path(environment["TMPDIR"]))

    return start


def assert_counted(ended: Ended, ranks: int) -> None:
    assert ended.code == 0, ended.said
    assert f"0 160 {ranks}\n" in ended.said
    assert ended.said.count("('at', (0, 1))\n") == 1


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("structured", [True, False])
def test_a_task_without_declared_types(script: Script, ranks: Ranks, structured: bool) -> None:
    """Items, results and notices of its own classes, with tuples, arrive unchanged."""
    text = TASK + f"    structured = {structured}\n" + RUN + END
    assert_counted(script(text, ranks), ranks.size)


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_a_process_with_threads(script: Script, ranks: Ranks) -> None:
    assert_counted(script(TASK + guarded(THREAD + RUN + END), ranks), ranks.size)


def test_a_thread_other_than_the_main_thread(script: Script) -> None:
    text = f"def main():\n    global end\n{guarded(RUN).removeprefix(GUARD)}"
    begin = "worker = threading.Thread(target=main)\nworker.start()\nworker.join()\n"
    assert_counted(script(TASK + text + guarded(begin + END), Ranks(3)), 3)


def test_a_module_run_by_name(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    """It also changes the path on which modules are found."""
    folder = tmp_path / "package" / "inner"
    folder.mkdir(parents=True)
    (folder / "program.py").write_text("from . import other\n" + TASK + guarded(THREAD + RUN))
    (folder / "other.py").write_text("")
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    done = run([sys.executable, "-m", "package.inner.program", "2"], env=environment)
    assert (done.returncode, done.stdout.split()[:2]) == (0, [b"0", b"160"]), done.stderr


def test_a_script_with_threads_and_no_guard_gets_an_explanation(script: Script) -> None:
    ended = script(THREAD.join(["import threading\n", TASK]) + RUN + END, Ranks(3))
    assert ended.code == 1
    assert ended.said.count("UsageError: ") == 1
    assert 'start jobs only below `if __name__ == "__main__":`' in ended.said
    assert ended.reports == []


def test_a_rank_that_cannot_start_reports_once_why(script: Script) -> None:
    here = 'if __name__ != "__main__":\n    raise LookupError("not without me")\n'
    ended = script(TASK + here + guarded(THREAD + RUN + END), Ranks(3))
    assert ended.code == 1
    assert ended.said.count("LookupError: not without me\n") == 1
    assert "rank 1 of 3 could not be started:" in ended.said


PROMPT = TASK + THREAD + "Numbers.mishap = Numbers.mishap\n" + RUN


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_task_from_a_prompt(
    run: Run, tmp_path: Path, environment: dict[str, str], jobs: int
) -> None:
    """The prompt is like a notebook: threads, and classes that are in no file."""
    pytest.importorskip("cloudpickle")
    line = [sys.executable, "-c", PROMPT, str(jobs), str(tmp_path / "meeting"), str(jobs)]
    (tmp_path / "meeting").mkdir()
    done = run(line, env=environment)
    said = done.stdout.decode() + done.stderr.decode()
    assert_counted(Ended(done.returncode, None, said, tmp_path), jobs)


def test_a_task_from_a_prompt_without_the_package_for_it(
    run: Run, environment: dict[str, str]
) -> None:
    text = "import sys\nsys.modules['cloudpickle'] = None\n" + PROMPT
    done = run([sys.executable, "-c", text, "3"], env=environment)
    assert done.returncode == 1
    assert b"pip install cloudpickle; put the task into a module" in done.stderr
    assert run([sys.executable, "-c", text, "1"], env=environment).returncode == 0


def test_a_notebook(run: Run, environment: dict[str, str]) -> None:
    """A real kernel runs it, where one is installed."""
    pytest.importorskip("cloudpickle")
    pytest.importorskip("ipykernel")
    pytest.importorskip("jupyter_client")
    cell = "import sys\nsys.argv = ['', '3']\n" + TASK + RUN
    program = (
        "import sys\n"
        "from jupyter_client.manager import start_new_kernel\n"
        "manager, client = start_new_kernel(kernel_name='python3')\n"
        "try:\n"
        "    client.execute_interactive(sys.argv[1], timeout=60)\n"
        "finally:\n"
        "    manager.shutdown_kernel(now=True)\n"
    )
    done = run([sys.executable, "-c", program, cell], env=environment)
    assert b"0 160 " in done.stdout, done.stderr


@pytest.mark.parametrize("ranks", RANKS, ids=str)
def test_several_jobs_of_one_program(script: Script, ranks: Ranks) -> None:
    jobs = RUN * 3 + END
    # MPI is initialized when the second run begins, so its local ranks can't be forked.
    ended = script(TASK + (guarded(jobs) if ranks.jobs_each else jobs), ranks, meet=False)
    assert ended.code == 0, ended.said
    assert ended.said.count("0 160 ") == 3


POLICIES = """\
rank = os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
policies = "steal=near,split=half,end=ring,arity=1" if rank == "0" else "steal=nonsense"
"""


@pytest.mark.parametrize("ranks", SEVERAL, ids=str)
def test_all_ranks_use_the_policies_that_rank_0_is_given(script: Script, ranks: Ranks) -> None:
    """With MPI each rank runs the script; the other ranks' own policies would be refused."""
    job = POLICIES + RUN.replace("check=False", "check=False, policies=policies") + END
    text = TASK + "    structured = False\n" + (guarded(job) if ranks.jobs_each else job)
    assert_counted(script(text, ranks), ranks.size)


# ---- mistakes ------------------------------------------------------------------------


def test_mistyped_policies_are_refused(script: Script) -> None:
    job = RUN.replace("check=False", 'check=False, policies="steal=rnadom"') + END
    ended = script(TASK + job, Ranks(1))
    assert (ended.code, ended.said.count("did you mean 'random'?")) == (2, 1)


def assert_reported_once(ended: Ended, line: str) -> None:
    assert ended.code == 70, ended.said
    assert ended.said.count("Traceback (most recent call last):\n") == 1, ended.said
    assert f"\n{line}\n" in ended.said
    assert ended.reports == []
    assert list(ended.folder.glob("pcircle-*")) == []


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("threads", [False, True], ids=["alone", "threads"])
def test_a_bug_on_all_ranks(script: Script, ranks: Ranks, threads: bool) -> None:
    """Its traceback is printed once, with the faulty line, even if all ranks meet it at once."""
    bug = "        return {}['no such key']\n"
    text = TASK + bug + guarded(THREAD * threads + RUN + END)
    ended = script(text, ranks)
    assert_reported_once(ended, "KeyError: 'no such key'")
    assert f"\n    {bug.strip()}\n" in ended.said
    assert "exception while processing <" in ended.said


@pytest.mark.parametrize("ranks", RANKS, ids=str)
@pytest.mark.parametrize("method", ["seed", "merge", "join", "finish"])
def test_a_bug_elsewhere(script: Script, ranks: Ranks, method: str) -> None:
    bug = f"    def {method}(self, *arguments):\n        return 1 // 0\n"
    ended = script(TASK + bug + RUN + END, ranks)
    assert_reported_once(ended, "ZeroDivisionError: integer division or modulo by zero")
    assert f", in {method}\n" in ended.said


@pytest.mark.parametrize("ranks", SEVERAL, ids=str)
@pytest.mark.parametrize("what", ["an item", "a result"])
def test_values_that_cannot_be_pickled(script: Script, ranks: Ranks, what: str) -> None:
    """An item or result that must be sent to another rank ends the job, with the reason."""
    if what == "an item":  # which other ranks try to steal from the rank that keeps it
        bug = "        if item.number: return\n        here.spawn([lambda: 0])\n" + WAITS
    else:
        bug = "    def process(self, item, here):\n        self.meeting.wait(here.is_stopping)\n"
        bug += "        return {'items': 1, 'ranks': {lambda: 0}}\n"
    ended = script(TASK + bug + RUN + END, ranks)
    assert ended.code == 70, ended.said
    assert ended.said.count("Traceback (most recent call last):\n") == 1, ended.said
    assert "exception while sending" in ended.said
    assert "lambda" in ended.said


@pytest.mark.parametrize("ranks", SEVERAL, ids=str)
def test_values_of_undeclared_types(script: Script, ranks: Ranks) -> None:
    wrong = TASK.replace("Task)", "Task[bytes, int])").replace(
        "Node(number, (0, 1))", "str(number)"
    )
    ended = script(wrong + RUN + END, ranks)
    assert_reported_once(
        ended,
        "TypeError: Numbers spawns, returns or notes a value of an undeclared type: "
        "Expected `bytes`, got `str` - at `$[3][0][0]`",
    )


@pytest.mark.parametrize("threads", [False, True], ids=["alone", "threads"])
def test_an_interrupt_ends_all_processes(
    tmp_path: Path, environment: dict[str, str], threads: bool
) -> None:
    """Ctrl-C reaches all processes: there is one code, and no process is left."""
    (tmp_path / "script.py").write_text(TASK + WAITS + guarded(THREAD * threads + RUN + END))
    folder = tmp_path / "meeting"
    folder.mkdir()
    line = [sys.executable, str(tmp_path / "script.py"), "3", str(folder), "3"]
    with started(line, environment) as process:
        ranks = await_ranks(process, folder, 3)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert said.endswith(b"stopped by SIGINT\n")
    assert b"Traceback" not in said
    assert not any(Path(f"/proc/{rank}").exists() for rank in ranks)


FAILS = """\
from pcircle.core.errors import Defect, StoppedEarly
from pcircle.runtime import Task, run

class Squares(Task):
    structured = False

    def seed(self):
        return range(1000)

    def process(self, number, context):
        if number == 567:
            raise {error}
        return number * number

    def merge(self, a, b):
        return a + b

"""


@pytest.mark.parametrize("ranks", [Ranks(1), RANKS[2]], ids=str)
def test_a_task_that_raises_makes_run_raise(script: Script, ranks: Ranks) -> None:
    """The caller must not mistake a partial result for a complete one."""
    text = FAILS.format(error="LookupError('no such number')")
    ended = script(
        text
        + guarded("run(Squares(), jobs=JOBS)\nprint('went on')\n").replace(
            "JOBS", str(ranks.jobs or None)
        ),
        ranks,
        meet=False,
    )
    assert ended.code != 0
    assert "LookupError: no such number" in ended.said
    assert "pcircle.core.errors.Defect: the job ended with exit code 70" in ended.said
    assert "went on" not in ended.said


@pytest.mark.parametrize(
    ("error", "name"), [("LookupError()", "Defect 70"), ("StoppedEarly('full')", "StoppedEarly 4")]
)
def test_failures_are_data_without_check(script: Script, error: str, name: str) -> None:
    call = (
        "try: run(Squares(), jobs=2)\n"
        "except (Defect, StoppedEarly) as error: print(type(error).__name__, error.exit_code)\n"
        "print(run(Squares(), jobs=2, check=False).code)\n"
    )
    ended = script(FAILS.format(error=error) + guarded(call), Ranks(2), meet=False)
    assert ended.code == 0
    assert [line for line in ended.said.splitlines() if line.startswith(name)] == [name]
    assert name.split()[1] in ended.said.splitlines()
