"""vitrail prune: a smaller, faster model, and what that cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vitrail.cli.options import config_options, json_option
from vitrail.cli.progress import progress

if TYPE_CHECKING:
    from torch import Tensor

    from vitrail.model.vit import VisionTransformer
    from vitrail.prune.prune import Pruned


@click.command()
@click.argument("model")
@click.argument("data", nargs=-1, required=True)
@click.option("--heads", metavar="30%", help="Take out so many heads.  [default: 30%]")
@click.option("--max-drop", type=float, metavar="POINTS", help="As many heads as cost at most these points of quality.")
@click.option("--speed", metavar="1.3x", help="As few heads as make the model so fast.")
@click.option("--layers", type=click.IntRange(min=0), default=0, help="Whole blocks to take out first.")
@click.option("--neurons", default="0", metavar="25%", help="Of each MLP, to take out first.")
@click.option(
    "--score",
    type=click.Choice(["ablation", "gradient", "taylor", "entropy", "distance", "random"]),
    default="ablation",
    show_default=True,
    help="What makes a head important.",
)
@click.option(
    "--rounds", type=click.IntRange(min=1), default=1, show_default=True, help="Score anew so often on the way."
)
@click.option("--recover", type=click.IntRange(min=0), default=0, help="Steps of fine-tuning at the end.")
@click.option(
    "--images", type=click.IntRange(min=4), default=200, show_default=True, help="Pictures: half score, half measure."
)
@click.option("--batch-size", type=click.IntRange(min=1), default=8, show_default=True, help="Also of the timing.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="A folder.  [default: runs/prune]")
@json_option
@config_options
def command(
    model: str,
    data: tuple[str, ...],
    heads: str | None,
    max_drop: float | None,
    speed: str | None,
    layers: int,
    neurons: str,
    score: str,
    rounds: int,
    recover: int,
    images: int,
    batch_size: int,
    seed: int,
    out: Path | None,
    as_json: bool,
    config: Path | None,
    assignments: tuple[str, ...],
    print_config: bool,
) -> None:
    """Take out the heads a model misses least.

    DATA is labelled (class folders, a manifest, tar shards), or any pictures: then the model's own answers before
    pruning are what it should keep. Quality and speed are measured, and drawn beside random choices; the smaller
    model is an ordinary checkpoint.
    """
    from vitrail.cli.model_argument import model_from_arguments

    settings, build = model_from_arguments(model, {}, config, assignments)
    if print_config:
        click.echo("\n".join(settings.lines()))
        return
    from vitrail.prune.prune import prune
    from vitrail.prune.save import as_data, encoded, save
    from vitrail.runs.directory import next_free

    whole = build(allocate=True)
    pictures, labels = sampled(whole, data, images)
    with progress("models measured", quiet=as_json) as told:
        found = prune(
            *(whole, pictures, labels),
            heads=heads,
            max_drop=max_drop,
            speed=speed,
            layers=layers,
            neurons=neurons,
            score=score,  # type: ignore[arg-type]
            rounds=rounds,
            recover=recover,
            batch_size=batch_size,
            seed=seed,
            progress=told,
        )
    paths = [str(path) for path in save(found, out or next_free(Path("runs/prune")))]
    if as_json:
        click.echo(encoded({**as_data(found), "files": paths}))
    else:
        show(found, paths)


def sampled(model: VisionTransformer, data: tuple[str, ...], count: int) -> tuple[Tensor, Tensor | None]:
    """An even sample of the pictures as the model takes them, and their labels where DATA has some."""
    import torch

    from vitrail.cli.pictures import even_sample, tensors

    items, labels = listed(model, data)
    pictures, good = tensors(model, even_sample(items, count), least=4)
    if labels is None:
        return pictures, None
    chosen = even_sample(labels, count)
    return pictures, torch.tensor([chosen[place] for place in good])


def listed(model: VisionTransformer, data: tuple[str, ...]) -> tuple[list[Any], list[int] | None]:
    """The files of DATA, and the number of each one's class if DATA is labelled."""
    from vitrail.images.folder import read_data
    from vitrail.images.labels import match_labels
    from vitrail.images.listing import list_inputs

    if len(data) > 1 or not is_labelled(Path(data[0])):
        return list(list_inputs(data).items), None
    found = read_data(data[0])
    samples = next(found.splits[split] for split in ("val", "test", "train", "all") if split in found.splits)
    numbers = list(range(len(found.classes)))
    if model.config.num_classes:
        numbers = [number for number in match_labels(found.classes, model.labels) if number is not None]
    return [sample.item for sample in samples], [numbers[sample.label] for sample in samples]


def is_labelled(path: Path) -> bool:
    """Whether a path is data with classes, rather than a folder of pictures."""
    if path.is_dir():
        return any(entry.is_dir() or entry.suffix == ".tar" for entry in path.iterdir() if entry.name[0] != ".")
    return path.suffix in (".csv", ".parquet", ".tar")


def show(found: Pruned, paths: list[str]) -> None:
    """The curve as a table, then what was chosen."""
    from vitrail.prune.curve import Point, Quality, unmeasurable

    def quality(name: str, point: Quality) -> str:
        points = f"{100 * point.change:+.1f} [{100 * point.change_low:+.1f}, {100 * point.change_high:+.1f}]"
        return f"{name:>10} {point.heads:6.0f} {point.quality:9.1%} {points:>21} {point.loss:8.4f}"

    def row(name: str, point: Point) -> str:
        speed = f"{point.speed:.2f}x [{point.speed_low:.2f}, {point.speed_high:.2f}]"
        return f"{quality(name, point)} {point.milliseconds:9.1f} {speed:>20} {point.parameters:12,}"

    click.echo(
        f"quality: {found.measure}; change: in points, with its 95% interval over pictures; heads by {found.score}; "
        "speed: median and quartiles of turns beside the whole model"
    )
    click.echo(
        f"{'':10} {'heads':>6} {'quality':>9} {'change':>21} {'loss':>8} {'ms/batch':>9} {'times as fast':>20} "
        f"{'parameters':>12}"
    )
    for point, chance in zip(found.curve, found.chance, strict=True):
        click.echo(row("", point))
        click.echo(quality("random", chance))
    click.echo(row("before", found.before))
    click.echo(row("after", found.after))
    if found.layers or found.neurons:
        click.echo(f"taken out first: blocks {found.layers or 'none'}, {found.neurons} neurons of each MLP")
    free = unmeasurable(found.curve)
    click.echo(f"no loss that these pictures can measure: up to {free.heads} heads")
    taken = ", ".join(f"layer {layer}: {heads}" for layer, heads in found.removed.items())
    click.echo(f"heads taken out: {taken or 'none'}")
    click.echo("\n".join(paths))
