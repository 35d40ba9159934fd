"""The environment, as far as it changes what vitrail does. Values that may hold a secret are not repeated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from vitrail.doctor.report import Finding, Variable
from vitrail.errors import ConfigError, did_you_mean
from vitrail.settings import Sections, from_environment, known_keys, resolve
from vitrail.train.settings import SECTIONS as TRAINING

FAMILIES: tuple[Sections, ...] = (TRAINING,)  # the sections of each family of commands

# What others named and vitrail, or a library under it, heeds.
EFFECTS = {
    "VITRAIL_CACHE": "where downloads and compiled engines are kept",
    "XDG_CACHE_HOME": "where downloads and compiled engines are kept, without VITRAIL_CACHE",
    "TMPDIR": "where temporary files go",
    "HF_ENDPOINT": "the hub that hf:owner/name is fetched from",
    "HF_TOKEN": "who asks the hub",
    "HTTPS_PROXY": "the way to the hub",
    "https_proxy": "the way to the hub",
    "OMP_NUM_THREADS": "threads that torch computes with",
    "MKL_NUM_THREADS": "threads of torch's 32-bit matrix products",
    "ONEDNN_MAX_CPU_ISA": "the newest instructions oneDNN may use",
    "CUDA_VISIBLE_DEVICES": "the GPUs torch can see",
    "PYTORCH_ALLOC_CONF": "how torch manages a GPU's memory",
    "NO_COLOR": "no colours",
}
SECRET = ("HF_TOKEN", "HTTPS_PROXY", "https_proxy")


def variables(environment: Mapping[str, str] = os.environ) -> tuple[Variable, ...]:
    """Those that are set, and what each does."""
    keys = settable()
    effects = EFFECTS | {name: f"sets {key}" for name, key in keys.items()}
    return tuple(
        Variable(name=name, value="(set)" if name in SECRET else environment[name], effect=effects[name])
        for name in sorted(environment)
        if name in effects
    )


def settable(families: Iterable[Sections] = FAMILIES) -> dict[str, str]:
    """The variable of each setting, such as VITRAIL_TRAIN_LR for train.lr."""
    keys = [key for sections in families for key in known_keys(sections)]
    return {"VITRAIL_" + key.upper().replace(".", "_"): key for key in keys}


def misspelt(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Variables of ours that no command knows: the command they were meant for refuses them, or never sees them."""
    known = {*EFFECTS, *settable()}
    return [
        Finding(
            severity="problem",
            found=f"The environment sets {name}, which names no setting.",
            expected=did_you_mean(name, known),
            fix=f"Correct it, or unset {name}.",
        )
        for name in sorted(environment)
        if name.startswith("VITRAIL_") and name not in known
    ]


def impossible(environment: Mapping[str, str] = os.environ) -> list[Finding]:
    """Variables of ours whose value no command can use."""
    findings = []
    for sections in FAMILIES:
        own = settable([sections])
        try:
            resolve(
                sections, from_environment(sections, {name: environment[name] for name in environment if name in own})
            )
        except ConfigError as error:
            findings.append(Finding(severity="problem", found=error.found, expected=error.expected, fix=error.fix))
    return findings
