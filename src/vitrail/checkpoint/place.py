"""What a user may write for a model, and where on this machine it is: a path, a run, `demo`, `hf:owner/name`."""

from __future__ import annotations

from pathlib import Path

from vitrail.checkpoint import hub
from vitrail.errors import CheckpointError

DEMO = "demo"  # the word; a folder of that name is ./demo
DEMO_MODEL = Path(__file__).parents[1] / "demo_model"  # travels inside the package
READ = (".safetensors", ".npz", ".bin", ".pth", ".pt", ".json")
OF_A_RUN = ("weights/best", "weights/last")  # what a run directory is read as


def names_a_checkpoint(name: str) -> bool:
    """Whether a word on the command line stands for a checkpoint, and not for a variant such as B/16."""
    return name == DEMO or hub.is_remote(name) or Path(name).exists()


def locate(name: Path | str, *, from_pickle: bool = False) -> Path:
    """The file or folder that holds the weights; only `hf:` reaches for the network."""
    if name == DEMO:
        return _demo()
    path = hub.fetch(str(name), from_pickle=from_pickle) if hub.is_remote(str(name)) else Path(name)
    return _best_of_a_run(path) if (path / "run.json").is_file() else path


def _demo() -> Path:
    if not DEMO_MODEL.is_dir():
        raise CheckpointError(
            "This copy of vitrail came without its demo model.",
            f"A native checkpoint in {DEMO_MODEL}.",
            f"Install vitrail again, or name another model; a folder called demo is ./{DEMO}.",
        )
    return DEMO_MODEL


def _best_of_a_run(run: Path) -> Path:
    found = next((run / name for name in OF_A_RUN if (run / name).is_dir()), None)
    if found is None:
        raise CheckpointError(
            f"{run} is a run without weights: its first epoch was not finished.",
            f"A model in {run / OF_A_RUN[0]}.",
            f"Let it go on: vitrail train --resume {run}",
        )
    return found


def files_of(path: Path) -> list[Path]:
    """Every file that a model at this place may be read from: while none of them changes, neither does the model."""
    if path.is_dir():
        return sorted(file for file in path.iterdir() if file.suffix in READ and file.is_file())
    beside = (path.with_suffix(".json"), path.parent / "config.json", path.parent / "preprocessor_config.json")
    return [path, *(file for file in beside if file.is_file())]
