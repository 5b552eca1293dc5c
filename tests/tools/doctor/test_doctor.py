"""The report states the facts, leaves nothing behind, and names what is unknown."""

from __future__ import annotations

import ast
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import pcircle
from pcircle.core.errors import REQUIRED_PACKAGES
from pcircle.tools.commands import COMMANDS
from pcircle.tools.doctor import machine, places
from pcircle.tools.doctor.cli import parser
from tests.conftest import DEADLINE_S, ROOT, Run
from tests.fusefs.fixture import Mount
from tests.fusefs.rules import Rule
from tests.tools.doctor.running import PROGRAM, document, environment, report, run_doctor
from tests.tools.fcp.running import without_rights

MOVES = ("reflink", "copy_file_range", "sendfile")
IMAGE_BYTES = 512 << 20


def _below(path: bytes) -> list[bytes]:
    return sorted(os.listdir(path))


# ---- file systems ------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("tmpfs", (), {"reflink": False, "case_folding": False, "xattr": True}),
        ("ext4", (), {"reflink": False, "xattr": True, "acl": True, "hard_links": True}),
        ("xfs", ("-m", "reflink=1"), {"reflink": True, "xattr": True, "acl": True}),
        ("btrfs", (), {"reflink": True, "btrfs_subvolume": True}),
    ],
)  # fmt: skip
def test_properties_of_file_systems(
    run: Run,
    mount: Callable[..., bytes],
    kind: str,
    options: tuple[str, ...],
    expected: dict[str, object],
) -> None:
    path = mount(kind, 0 if kind == "tmpfs" else IMAGE_BYTES, *options)
    before = _below(path)
    _, found = report(run, path)
    assert found["type"] == kind
    assert {name: found[name] for name in expected} == expected
    assert {"reflink", "copy_file_range", "locks", "best_threads"} <= found.keys()
    assert found["sendfile"] is True
    assert found["o_tmpfile"] is True
    assert _below(path) == before


def test_a_file_system_that_folds_names_and_truncates_times(run: Run, fuse: Mount) -> None:
    """FAT and CIFS fold names and truncate times; the file system also lacks clones."""
    mounted = fuse(folding="case", times_ns=2 * 10**9)
    whole, found = report(run, mounted.path)
    assert found["case_folding"] is True
    assert found["unicode_folding"] is False
    assert found["time_unit_ns"] == 2 * 10**9
    assert found["reflink"] is False
    assert any("differ only in case" in text for text in whole["advice"])
    assert _below(mounted.backing) == []


def test_an_unwritable_path(run: Run, place: bytes) -> None:
    prefix = without_rights("dac_override")
    os.chmod(place, 0o500)
    done = run_doctor(run, "--json=-", place, prefix=prefix)
    os.chmod(place, 0o700)
    whole = document(done)
    (found,) = whole["paths"].values()
    assert found["trials"] == {"value": None, "why": "Permission denied"}
    assert found["type"]["value"]
    assert done.returncode == 0


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_an_unexaminable_path(run: Run, place: bytes, kind: str) -> None:
    path = place + b"/x"
    if kind == "file":
        Path(os.fsdecode(path)).touch()
    done = run_doctor(run, path)
    assert done.returncode == 1
    why = {"missing": "No such file or directory", "file": "Not a directory"}[kind]
    text = done.stdout.decode()
    assert text.startswith(f"does not work\n  - {os.fsdecode(path)}: {why}\n")
    assert text.endswith(f"\nverdict: 1 problem: {os.fsdecode(path)}: {why}\n")


def test_the_last_line_is_the_verdict(run: Run, place: bytes) -> None:
    text = run_doctor(run, "--no-trials", place).stdout.decode()
    assert re.fullmatch(
        r"verdict: no problems(, \d+ recommendations?.*: .+)?", text.splitlines()[-1]
    )
    missing = [os.fsdecode(place) + name for name in ("/x", "/y")]
    last = run_doctor(run, "--no-trials", *missing).stdout.decode().splitlines()[-1]
    assert last == f"verdict: 2 problems, listed above: {missing[0]}: No such file or directory"


def test_without_trials_nothing_is_written(run: Run, place: bytes) -> None:
    before = os.stat(place)
    whole, found = report(run, place, "--no-trials")
    assert found["trials"] is None
    assert not {"reflink", "best_threads"} & found.keys()
    assert os.stat(place).st_mtime_ns == before.st_mtime_ns
    assert whole["broken"] == []


def test_threads_pay_on_a_slow_file_system(run: Run, fuse: Mount) -> None:
    mounted = fuse()
    mounted.rules(Rule(delay_s=0.005))
    # The values are measured: on a busy machine only a quiet moment shows them.
    for _ in range(40):
        _, found = report(run, mounted.path)
        assert min(found["operations_per_s"], found["operations_per_s_blocking"]) > 0
        if found["best_threads"] > 1:
            break
    assert found["best_threads"] > 1
    assert _below(mounted.path) == []


def test_a_file_system_that_does_not_answer(run: Run, fuse: Mount) -> None:
    """It is named, others are reported, and nothing is left behind when it answers again."""
    mounted = fuse()
    for limit_s in (2, 20):  # a busy machine may give no other answer in a short time
        mounted.rules(Rule(ops=("unlink",), delay_s=2.5 * limit_s, times=1))
        done = run_doctor(run, "--json=-", f"--timeout={limit_s}", mounted.path, b"/")
        hanging, root = document(done)["paths"].values()
        assert f"no response within {limit_s} s" in hanging["trials"]["why"]
        if root.get("hard_links", {}).get("value") is not None:
            break
    assert root["size_bytes"]["value"]  # in a chroot no list of mounts has the type of /
    assert root["hard_links"]["value"] is not None
    mounted.rules()
    deadline_s = time.monotonic() + DEADLINE_S
    while _below(mounted.backing):
        assert time.monotonic() < deadline_s, _below(mounted.backing)
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_termination_leaves_nothing(place: bytes, fuse: Mount, number: signal.Signals) -> None:
    """Only the started process gets the signal, as from `kill`, during the trials."""
    mounted = fuse()
    mounted.rules(Rule(delay_s=0.02))
    with subprocess.Popen(
        [*PROGRAM, "--timeout=1m", mounted.path],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        deadline_s = time.monotonic() + DEADLINE_S
        while not _below(mounted.backing):
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
        process.send_signal(number)
    while _below(mounted.backing):
        assert time.monotonic() < deadline_s, _below(mounted.backing)
        time.sleep(0.05)


@pytest.mark.parametrize("kind", ["link", "directory"])
def test_a_swapped_directory_is_not_touched(place: bytes, kind: str) -> None:
    """The owner of PATH swaps the directory as soon as it exists."""
    victim = place + b"/victim"
    os.mkdir(victim)
    os.mkdir(place + b"/path")
    names = [b"fifo", b"source", b"target"]
    for name in names:
        Path(os.fsdecode(victim + b"/" + name)).touch()

    def swap(new: bytes) -> None:
        os.rename(new, place + b"/away")
        if kind == "link":
            os.symlink(victim, new)
        else:
            os.mkdir(new + b"x")
            os.rename(new + b"x", new)
            Path(os.fsdecode(new + b"/theirs")).mkdir()

    before = os.stat(victim).st_mtime_ns
    with pytest.raises(
        OSError, match=r"another directory|Not a directory|symbolic links|not empty"
    ):
        places.possible(place + b"/path", swap)
    assert _below(victim) == names
    assert os.stat(victim).st_mtime_ns == before
    assert len(_below(place + b"/path")) == 1


# ---- the machine -------------------------------------------------------------


def test_limits_are_those_of_the_process(run: Run, place: bytes) -> None:
    limited = ["sh", "-c", 'ulimit -Sn 256; exec "$@"', "sh"]
    whole = document(run_doctor(run, "--json=-", "--no-trials", place, prefix=limited))
    assert whole["limits"]["open_files"] == {"value": 256}
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert whole["limits"]["open_files_hard"] == {"value": hard}
    assert any(f"ulimit -n {hard}" in text for text in whole["advice"])
    assert whole["cores"]["usable"]["value"] == len(os.sched_getaffinity(0))
    software = whole["software"]
    assert software["pcircle"]["value"] == pcircle.__version__
    assert software["kernel"]["value"] == f"Linux {os.uname().release}"
    assert all(software[name]["value"] for name in REQUIRED_PACKAGES)


def test_dependencies_are_those_of_the_package() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    assert re.findall(r'"([\w-]+)', block[1]) == list(REQUIRED_PACKAGES)
    optional = {"matplotlib", "pyarrow", "cloudpickle", "blake3"}
    assert set(machine.OPTIONAL) == optional


def test_a_dependency_that_crashes(run: Run, place: bytes, tmp_path: Path) -> None:
    """A dependency that was compiled for a newer processor ends the process."""
    (tmp_path / "numpy").mkdir()
    (tmp_path / "numpy" / "__init__.py").write_text("import os\nos.kill(os.getpid(), 4)\n")
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = run_doctor(run, "--no-trials", place, environ=environment(PYTHONPATH=paths))
    assert done.returncode == 1
    assert "numpy is required: the package numpy cannot be used here: it crashes its" in (
        done.stdout.decode()
    )


@pytest.mark.parametrize(
    ("files", "group", "expected"),
    [
        # version 2: the smallest limit on the way up counts
        (
            {"job/cpu.max": "150000 100000", "job/step/cpu.max": "max 100000",
             "job/memory.max": "1073741824", "job/step/memory.max": "max",
             "job/step/memory.current": "4096", "job/step/pids.max": "100"},
            "0::/job/step\n",
            {"version": 2, "cores": 1.5, "memory_bytes": 1 << 30, "memory_used_bytes": 4096,
             "processes": 100},
        ),
        # in a container the group's own path is not visible
        (
            {"memory.max": "4096", "cpu.max": "max 100000", "memory.current": "1"},
            "0::/docker/abc\n",
            {"version": 2, "cores": "unlimited", "memory_bytes": 4096, "memory_used_bytes": 1,
             "processes": "unlimited"},
        ),
        # version 1: a hierarchy each; no limit is a large number
        (
            {"cpu,cpuacct/job/cpu.cfs_quota_us": "200000", "memory/job/memory.usage_in_bytes": "7",
             "cpu,cpuacct/job/cpu.cfs_period_us": "100000", "pids/job/pids.max": "max",
             "memory/job/memory.limit_in_bytes": "9223372036854771712"},
            "3:pids:/job\n2:cpu,cpuacct:/job\n1:memory:/job\n",
            {"version": 1, "cores": 2.0, "memory_bytes": "unlimited", "memory_used_bytes": 7,
             "processes": "unlimited"},
        ),
    ],
)  # fmt: skip
def test_control_groups(
    tmp_path: Path, files: dict[str, str], group: str, expected: dict[str, object]
) -> None:
    for name, text in files.items():
        path = tmp_path / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    (tmp_path / "cgroup").write_text(group)
    found = machine.control_groups(str(tmp_path / "groups"), str(tmp_path / "cgroup"))
    assert {name: fact.value for name, fact in found.items()} == expected


def test_missing_control_groups_are_reported(tmp_path: Path) -> None:
    found = machine.control_groups(str(tmp_path), str(tmp_path / "none"))
    assert [fact.value for fact in found.values()] == [None]
    (tmp_path / "cgroup").write_text("0::/\n")
    (tmp_path / "groups").mkdir()
    found = machine.control_groups(str(tmp_path / "groups"), str(tmp_path / "cgroup"))
    assert found["memory_bytes"].why == "no control groups are mounted here"


# ---- launchers ---------------------------------------------------------------


@pytest.mark.mpi
def test_under_a_launcher_the_first_rank_reports(
    run: Run, mpirun: Callable[[int], list[str]], place: bytes
) -> None:
    done = run_doctor(run, "--json=-", "--no-trials", place, prefix=mpirun(2))
    assert done.returncode == 0, done.stderr
    launching = document(done)["launching"]
    assert launching["ranks"]["value"] == 2
    assert launching["nodes"]["value"] == 1
    assert launching["mpi_library"]["value"]
    assert "mpirun" in launching["launcher"]["value"]


@pytest.mark.mpi
def test_a_launcher_that_does_not_fit_is_named(
    run: Run, mpirun: Callable[[int], list[str]], place: bytes
) -> None:
    mpirun(1)
    environ = environment(OMPI_COMM_WORLD_SIZE="2", OMPI_COMM_WORLD_RANK="0")
    done = run_doctor(run, "--no-trials", place, environ=environ)
    said = done.stdout.decode()
    assert done.returncode == 1, done.stderr
    assert "does not work\n  - Open MPI's mpirun started" in said
    assert "do not match" in said


@pytest.mark.mpi
def test_the_mpirun_of_another_library_is_named(
    run: Run, mpirun: Callable[[int], list[str]], place: bytes, tmp_path: Path
) -> None:
    """The mpirun that `PATH` finds is used, not the one next to the interpreter."""
    own = Path(mpirun(1)[0])
    whole, _ = report(run, place, "--no-trials", environ=environment(PATH=f"{own.parent}:/bin"))
    assert whole["launching"]["mpirun"]["value"].startswith(f"{own} (")
    library = whole["launching"]["mpi_library"]["value"]
    assert not any("first in PATH" in text for text in whole["advice"])
    answers = {
        "Open MPI": "HYDRA build details:\\n    Version:    4.9.9",
        "MPICH": "mpirun (Open MPI) 4.9.9",
    }
    answer = answers["Open MPI" if "Open MPI" in library else "MPICH"]
    other = tmp_path / "mpirun"
    other.write_text(f"#!/bin/sh\nprintf '{answer}\\n'\n")
    other.chmod(0o755)
    path = f"{tmp_path}:{own.parent}:/bin"
    whole, _ = report(run, place, "--no-trials", environ=environment(PATH=path))
    assert whole["launching"]["mpirun"]["value"].startswith(f"{other} (")
    assert "4.9.9)" in whole["launching"]["mpirun"]["value"]
    (advice,) = [text for text in whole["advice"] if "first in PATH" in text]
    assert advice.startswith(f"{other} belongs to ")
    assert library in advice


@pytest.mark.mpi
def test_the_version_of_a_library_has_no_nul(
    run: Run, mpirun: Callable[[int], list[str]], place: bytes
) -> None:
    for prefix in ([], mpirun(1)):
        for options in (["--json=-"], []):
            done = run_doctor(run, *options, "--no-trials", place, prefix=prefix)
            for nul in (b"\0", b"x00", b"u0000"):
                assert nul not in done.stdout


def test_a_missing_mpi_library_is_reported(run: Run, place: bytes, tmp_path: Path) -> None:
    """The report continues."""
    (tmp_path / "mpi4py").mkdir()
    (tmp_path / "mpi4py" / "__init__.py").write_text("raise RuntimeError('cannot load libmpi')\n")
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = run_doctor(run, "--no-trials", place, environ=environment(PYTHONPATH=paths))
    assert done.returncode == 0
    said = done.stdout.decode()
    assert "unknown: no MPI library could be loaded: cannot load libmpi" in said
    assert "unknown\n  - launching, mpi library: no MPI" in said


def test_a_batch_job_is_named(run: Run, place: bytes) -> None:
    environ = environment(SLURM_JOB_ID="42")
    whole, _ = report(run, place, "--no-trials", environ=environ)
    assert whole["launching"]["launcher"]["value"] == "none"
    assert whole["launching"]["batch_job"]["value"] == "Slurm 42"


# ---- the command -------------------------------------------------------------


def test_the_text_contains_the_whole_document(run: Run, place: bytes, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run_doctor(run, "--no-trials", "--json", str(file), place)
    said = " ".join(done.stdout.decode().split())
    whole = document(subprocess.CompletedProcess([], 0, file.read_bytes()))
    facts = [fact for part in whole.values() if isinstance(part, dict) for fact in part.items()]
    names = [name for name, fact in facts if "value" in fact]
    assert len(names) > 30
    for name in names:
        label = re.sub(r" (bytes|us|ns)$", "", name.replace("_", " "))
        assert f" {label} " in f" {said} ", name


def test_foreign_names_are_escaped_on_the_terminal(run: Run, place: bytes) -> None:
    path = place + b"/\x1b[31m"
    os.mkdir(path)
    environ = environment(SLURM_JOB_ID="\x1b]0;x\x07")
    done = run_doctor(run, path, environ=environ)
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--timeout=0"], "--timeout: invalid value '0': must be greater than 0"),
        (["--timeout=x"], "--timeout: "),
        ([""], "empty file name"),
        (["--json=/nonexistent/x"], "its directory does not exist"),
        (["--nothing"], "unknown option '--nothing'"),
    ],
)
def test_refusals(run: Run, arguments: list[str], said: str) -> None:
    done = run_doctor(run, *arguments)
    assert done.returncode == 2
    assert said in done.stderr.decode()
    assert done.stderr.decode().endswith("Try 'pcircle doctor --help'.\n")
    assert done.stdout == b""


def test_help_has_the_usual_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = parser().format_help()
    assert [line for line in text.splitlines() if len(line) > 80] == []
    examples = text.partition("\nExamples:\n")[2].splitlines()
    assert len(examples) == 4
    for line in examples:
        words = shlex.split(line)
        assert parser().parse(words[words.index("doctor") + 1 :], {}) is not None


@pytest.mark.parametrize("way", ["launcher", "module"])
def test_pcircle_lists_the_commands(run: Run, way: str) -> None:
    start = [str(ROOT / "bin" / "pcircle")] if way == "launcher" else ["-m", "pcircle"]
    done = run([sys.executable, *start], env=environment(), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    for command in COMMANDS:
        (line,) = (
            text_line for text_line in lines if text_line.startswith(f"  {command.command_line}  ")
        )
        assert line.endswith(f"  {command.summary}")
    version = run([sys.executable, *start, "--version"], env=environment(), cwd=ROOT)
    assert version.stdout.decode() == f"pcircle {pcircle.__version__}\n"
    wrong = run([sys.executable, *start, "doktor"], env=environment(), cwd=ROOT)
    assert wrong.returncode == 2
    assert wrong.stderr.decode() == (
        "pcircle: unknown command 'doktor'; did you mean 'doctor'?\nTry 'pcircle --help'.\n"
    )


def test_the_list_of_commands_imports_little(run: Run) -> None:
    program = "import sys, pcircle.__main__ as m\nm._answer([])\nprint(sorted(sys.modules))"
    done = run([sys.executable, "-c", program], env=environment(), cwd=ROOT)
    loaded = set(ast.literal_eval(done.stdout.decode().splitlines()[-1]))
    assert loaded.isdisjoint(
        {"argparse", "numpy", "mpi4py", "rich", "msgspec", "pcircle.tools.fcp"}
    )
