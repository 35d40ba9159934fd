"""From settings to a run that can begin, and from a run's folder to one that can go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from vitrail.config import Frozen, Preprocess, ViTConfig, replace
from vitrail.errors import CheckpointError, ConfigError, DataError, did_you_mean
from vitrail.images.augment import Augment
from vitrail.model.vit import VisionTransformer, build_empty
from vitrail.runs import commit
from vitrail.runs.directory import Run, log_event, tidy
from vitrail.runs.signals import Signals
from vitrail.settings import Layer, Settings, known_keys, resolve, stored
from vitrail.train.adapters import learning_tensors
from vitrail.train.arithmetic import Arithmetic, arithmetic_for
from vitrail.train.config import DataConfig, TrainConfig
from vitrail.train.data import TrainingData, read_training_data, with_classes_of
from vitrail.train.distributed import ALONE, World
from vitrail.train.features import refuse_mixing
from vitrail.train.job import Job
from vitrail.train.loss import loss_for
from vitrail.train.memory import available, portion_that_fits, predicted
from vitrail.train.optim import make_optimizer
from vitrail.train.origin import starting_model
from vitrail.train.passes import Single, passes_for, sharded
from vitrail.train.presets import Preset, Start, advised, start_of
from vitrail.train.recompute import recomputed
from vitrail.train.settings import OWN, SECTIONS
from vitrail.train.state import Progress, TrainState, read_facts, restore
from vitrail.train.trackers import check_trackers

Record = TypeVar("Record", bound=Frozen)


@dataclass(frozen=True)
class Plan:
    """A run before it has a folder: every setting and where it came from, the data, the model it starts from."""

    settings: Settings
    data: TrainingData
    model: VisionTransformer
    notes: tuple[str, ...] = ()  # what was decided, for whoever started the run
    world: World = ALONE

    @property
    def start(self) -> Start:
        """Where the weights come from."""
        return start_of(self.record("train", TrainConfig).model)

    def record(self, name: str, kind: type[Record]) -> Record:
        """One section of the settings."""
        record = self.settings.records[name]
        assert isinstance(record, kind)
        return record


def make_plan(layers: Sequence[Layer], preset: Preset = "none", world: World = ALONE) -> Plan:
    """What was asked for, worked out: data read, model made, every value known."""
    refuse_unknown(layers)
    train, where = own_sections(layers)
    data = read_training_data(where, train)
    advice = advised(preset, layers, data)
    layers = [advice.layer, *layers]
    train, _ = own_sections(layers)
    refuse_mixing(train)
    check_trackers(train.track)
    asked = {key: value for layer in layers for key, value in _only(layer, ("model",)).values.items()}
    model = starting_model(
        train.model, {key.removeprefix("model."): value for key, value in asked.items()}, data.classes, train.seed
    )
    base = [stored("model", model.config, train.model), stored("preprocess", model.preprocess, train.model)]
    settings = resolve(SECTIONS, [*base, *layers])
    preprocess = settings.records["preprocess"]
    model.preprocess = msgspec.convert(msgspec.to_builtins(preprocess), Preprocess)
    settings, memory = world.told(decided(settings, model, world))
    return Plan(settings, with_classes_of(data, model.labels), model, (*advice.notes, memory), world)


def own_sections(layers: Sequence[Layer]) -> tuple[TrainConfig, DataConfig]:
    """How to train and on what, which is known before any model is."""
    own = resolve(OWN, [_only(layer, tuple(OWN)) for layer in layers]).records
    train, where = own["train"], own["data"]
    assert isinstance(train, TrainConfig)
    assert isinstance(where, DataConfig)
    return train, where


def decided(settings: Settings, model: VisionTransformer, world: World) -> tuple[Settings, str]:
    """The same settings with what this machine decides written out, so that another would do the same sums.

    And a sentence about memory.
    """
    train = settings.records["train"]
    assert isinstance(train, TrainConfig)
    arithmetic = arithmetic_for(train.precision, train.device)
    learning = learning_tensors(model, train)
    share = -(-train.batch_size // world.size)
    portion = portion_that_fits(model, learning, train, arithmetic, share, world)
    needed = predicted(model, learning, train, arithmetic.dtype, portion) / 2**30
    free = available(arithmetic.device, world) / 2**30
    said = f"memory: about {needed:.1f} GB for {portion} pictures at a time; {free:.1f} GB are free"
    train = replace(train, micro_batch=portion, precision=arithmetic.name)
    return Settings({**settings.records, "train": train}, settings.origins), said


def refuse_unknown(layers: Sequence[Layer]) -> None:
    """A key that does not exist, before anything is read."""
    known = set(known_keys(SECTIONS))
    for layer in layers:
        for key in layer.values:
            if key not in known:
                raise ConfigError(f"{layer.origin} sets {key!r}, which does not exist.", did_you_mean(key, known))


def begin(plan: Plan, run: Run, signals: Signals) -> tuple[Job, TrainState]:
    """A run at its first step."""
    train = plan.record("train", TrainConfig)
    arithmetic = arithmetic_for(train.precision, train.device, plan.world)
    state = fresh_state(plan.model.to(arithmetic.device), train, arithmetic, plan.world)
    return job_of(plan, run, signals, arithmetic), state


def go_on(settings: Settings, run: Run, signals: Signals, world: World = ALONE) -> tuple[Job, TrainState]:
    """A run at its newest checkpoint; one that was stopped before its first begins again."""
    chosen = world.led(lambda: newest_checkpoint(run))
    if chosen is None:
        return begin(make_plan([Layer("config.toml", _flat(settings.records))], world=world), run, signals)
    facts = read_facts(chosen.path)
    plan = plan_of(settings, facts, world)
    if plan.data.fingerprint != facts["data"]:
        raise DataError(
            f"The pictures in {plan.data.root} are not those the run began with.",
            "The same files, labels and classes: a run that goes on repeats what it would have done.",
            f"Put them back, or start a new run from the weights: --model {run.weights / 'last'}",
        )
    job, state = begin(plan, run, signals)
    restore(state, chosen.path, world)
    if state.progress.epochs < job.config.epochs:
        state.progress.finished = ""  # more epochs may have been asked for
    log_event(run, "resume", step=state.progress.step, path=chosen.path.name)
    return job, state


def newest_checkpoint(run: Run) -> commit.Checkpoint | None:
    """Where a run goes on, in a folder made ready for it; None if it was stopped before its first checkpoint."""
    tidy(run)
    chosen, damaged = commit.newest(run.checkpoints)
    for one in damaged:
        log_event(run, "damaged checkpoint", path=one.path.name, reason=one.reason)
    chosen = commit.tidy(run.checkpoints, chosen, damaged)
    if chosen is None and damaged:
        raise CheckpointError(
            f"None of the {len(damaged)} checkpoints in {run.checkpoints} is intact: {damaged[0].reason}",
            "One that is as it was written.",
            f"Start a new run from the weights: --model {run.weights / 'last'}",
        )
    return chosen


def plan_of(settings: Settings, facts: Mapping[str, Any], world: World) -> Plan:
    """The plan of a run that has a checkpoint: its model as the config describes it, weights still to come."""
    config, train, where = (settings.records[name] for name in ("model", "train", "data"))
    assert isinstance(config, ViTConfig)
    assert isinstance(train, TrainConfig)
    assert isinstance(where, DataConfig)
    model = build_empty(config).to_empty(device="cpu")
    model.labels, model.preprocess = facts["labels"], msgspec.convert(facts["preprocess"], Preprocess)
    data = read_training_data(where, train)
    if set(data.classes) != set(model.labels):
        raise DataError(
            f"{where.path} has other classes than the run began with.", f"{', '.join(model.labels[:8])}", ""
        )
    return Plan(settings, with_classes_of(data, model.labels), model, world=world)


def fresh_state(
    model: VisionTransformer, config: TrainConfig, arithmetic: Arithmetic, world: World = ALONE
) -> TrainState:
    """A state before the first step."""
    import torch

    if world.launched and config.parallel == "fsdp":
        model = sharded(model, config, arithmetic)
    if config.gradient_checkpointing:
        recomputed(model)
    learning = learning_tensors(model, config)
    optimizer = make_optimizer(config, learning, model.config.num_hidden_layers)
    average = {name: tensor.detach().clone() for name, tensor in learning.items()} if config.ema else None
    scaler = torch.amp.GradScaler(arithmetic.device.type) if arithmetic.dtype == torch.float16 else None
    passes = passes_for(Single(model, learning, config, arithmetic), world)
    return TrainState(model, learning, optimizer, average, scaler, Progress(), passes)


def job_of(plan: Plan, run: Run, signals: Signals, arithmetic: Arithmetic) -> Job:
    """The run's surroundings."""
    train = plan.record("train", TrainConfig)
    return Job(
        run=run,
        config=train,
        data_config=plan.record("data", DataConfig),
        augment=plan.record("augment", Augment),
        data=plan.data,
        arithmetic=arithmetic,
        loss=loss_for(train, plan.data.counts()),
        micro_batch=train.micro_batch,
        world=plan.world,
        signals=signals,
    )


def _only(layer: Layer, sections: tuple[str, ...]) -> Layer:
    kept = {key: value for key, value in layer.values.items() if key.partition(".")[0] in sections}
    return Layer(layer.origin, kept)


def _flat(records: Mapping[str, Frozen]) -> dict[str, Any]:
    """Every field that is not at its default, by dotted key."""
    return {key: value for name, record in records.items() for key, value in stored(name, record, "").values.items()}
