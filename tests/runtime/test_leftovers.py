"""What belongs to a process that is gone is removed; what belongs to a living one, or cannot be judged, is not."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from waiting import PATIENCE_S

from gmiflow.runtime.comm import shared_memory
from gmiflow.runtime.failure import GMIError
from gmiflow.runtime.leftovers import MARK, PREFIX, clean_stale, new_token, owner_is_gone, temporary_folder
from gmiflow.runtime.rendezvous import Rendezvous


@pytest.fixture(scope="module")
def gone():
    """The token of a process that has ended."""
    code = "from gmiflow.runtime.leftovers import new_token; print(new_token())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


def sleeper(token):
    return subprocess.Popen(["sleep", "3600"], env={**os.environ, MARK: token})


def elsewhere(token):
    """The same process id in another namespace of processes."""
    user, space, *rest = token.split("-")
    return "-".join([user, str(int(space) + 1), *rest])


def test_processes_and_files_of_a_run_that_was_killed_go(gone):
    orphan, kept, foreign = sleeper(gone), sleeper(new_token()), sleeper(elsewhere(gone))
    folder = Path(tempfile.gettempdir()) / f"{PREFIX}{gone}"
    folder.mkdir()
    (folder / "file").touch()
    memory = shared_memory.directory() / f"{PREFIX}{gone}-train.gradient"
    memory.touch()
    try:
        clean_stale()  # or another test's run, at this very moment
        assert orphan.wait(PATIENCE_S) == -9
        assert not folder.exists() and not memory.exists()
        assert kept.poll() is None and foreign.poll() is None
    finally:
        for process in (orphan, kept, foreign):
            process.kill()
            process.wait()


def test_tokens_tell_whose_they_are(gone):
    assert owner_is_gone(gone) and owner_is_gone(f"{gone}-train.gradient")
    for token in (new_token(), elsewhere(gone), f"9{gone}", "", "a-b", "1-2-3"):
        assert not owner_is_gone(token)


def test_a_temporary_folder_is_private_and_removed():
    with temporary_folder() as folder:
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "inside").mkdir()
    assert not folder.exists()


def test_a_meeting_place_of_a_run_that_has_ended_is_not_used_again(tmp_path, gone):
    """Its shared memory would be cleared away by the next run of the user while it is at work."""
    (tmp_path / "token").write_text(gone)
    with pytest.raises(GMIError, match="is that of a run that has ended") as refused:
        Rendezvous.join(tmp_path)
    assert refused.value.failure.code == "E0711"
    assert refused.value.failure.notes == ("use a fresh rendezvous directory for each run",)
    (tmp_path / "token").write_text(new_token())
    assert Rendezvous.join(tmp_path).token == Rendezvous.join(tmp_path).token
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(GMIError, match="cannot be a rendezvous directory: ") as refused:
        Rendezvous.join(file)
    assert refused.value.failure.code == "E0711"
