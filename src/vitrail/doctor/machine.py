"""Processor, memory and GPUs, read from the system itself: no library is asked, so this is quick and cannot crash."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from pathlib import Path

from vitrail.doctor.report import Machine
from vitrail.engines.base import cores
from vitrail.engines.cache import processor

# What a processor calls an ability: what people call it.
ABILITIES = {
    "avx2": "AVX2",
    "avx512f": "AVX-512",
    "avx512_bf16": "bfloat16",
    "avx512_vnni": "int8 (VNNI)",
    "avx_vnni": "int8 (AVX-VNNI)",
    "amx_bf16": "bfloat16 (AMX)",
    "amx_int8": "int8 (AMX)",
    "asimd": "NEON",
    "bf16": "bfloat16",
    "i8mm": "int8",
}
CONTROL = Path("/sys/fs/cgroup")  # where a container says what it allows (cgroup v2)
NVIDIA = Path("/proc/driver/nvidia/gpus")


def this_machine() -> Machine:
    """The machine this process runs on."""
    memory, free = total_memory(), free_memory()
    return Machine(
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        processor=processor_name(),
        abilities=abilities(),
        cores=cores(),
        quota=quota(CONTROL),
        memory=memory,
        free_memory=free,
        gpus=gpus(),
    )


def processor_name() -> str:
    """As the processor calls itself; ARM processors on Linux do not say."""
    found = re.search(r"model name\s*:\s*(.+)", processor())
    return found[1].strip() if found else platform.processor() or platform.machine()


def abilities() -> tuple[str, ...]:
    """The instructions that matter here, in words."""
    words = set(processor().split())
    return tuple(dict.fromkeys(called for word, called in ABILITIES.items() if word in words))


def quota(control: Path) -> float | None:
    """How many cores' worth of time a container gets, where it is limited."""
    with suppress(OSError, ValueError):
        allowed, period = (control / "cpu.max").read_text().split()
        return None if allowed == "max" else int(allowed) / int(period)
    return None


def total_memory() -> int | None:
    """Bytes the machine has."""
    with suppress(ValueError, OSError, AttributeError):  # Windows has no sysconf
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def free_memory() -> int | None:
    """Bytes a new process could take before the machine or the container runs out."""
    free: int | None = None
    with suppress(OSError, AttributeError, TypeError):
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
        free = int(found[1]) * 1024 if found else None
    with suppress(OSError, ValueError):  # "max" is no number
        left = int((CONTROL / "memory.max").read_text()) - int((CONTROL / "memory.current").read_text())
        free = left if free is None else min(free, left)
    return free


def gpus() -> tuple[str, ...]:
    """The GPUs the system shows; whether torch can use them is for torch to say."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return ("Apple GPU (Metal)",)
    if NVIDIA.is_dir():
        return tuple(nvidia_name(folder / "information") for folder in sorted(NVIDIA.iterdir()))
    if list(Path("/dev").glob("nvidia[0-9]*")):  # a container that shows the device and not the driver's files
        return ("NVIDIA GPU",)
    return ("AMD GPU (ROCm)",) if Path("/dev/kfd").exists() else ()


def nvidia_name(information: Path) -> str:
    """As the driver calls it."""
    with suppress(OSError):
        found = re.search(r"Model:\s*(.+)", information.read_text())
        if found:
            return found[1].strip()
    return "NVIDIA GPU"
