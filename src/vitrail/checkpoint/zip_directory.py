"""Reads a zip's directory and believes none of it: what it says is checked against the file.

The standard library's zipfile reads whatever it can (data in front, two members on the same bytes, a million members).
A weight file is none of that, and two readers that disagree about an archive are how hostile ones get through.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vitrail.checkpoint.entry import MAX_NAME, MAX_TENSORS, check_name
from vitrail.checkpoint.source import ANOTHER, Source, shown
from vitrail.errors import CheckpointError

STORED, DEFLATED = 0, 8
ENCRYPTED, LATER_SIZES, UTF8 = 0x1, 0x8, 0x800  # flag bits; LATER_SIZES: written after the bytes, for a stream
KNOWN_FLAGS = 0x6 | LATER_SIZES | UTF8  # 0x6: how hard the deflater tried
ZIP64 = 45  # the newest version of the format that reading an .npz needs
MAX_RATIO = 200
FREE_RATIO = 2**26  # bytes; members up to this size may compress further: a fresh head of zeros does so by 1,000


@dataclass(frozen=True, slots=True)
class Member:
    """One file of the archive: where its bytes start, how many there are, and how many they become."""

    name: str
    method: int
    flags: int
    crc: int
    stored: int
    size: int
    header: int  # offset of the local header
    start: int = 0  # offset of the bytes, known once the local header has been read

    @property
    def tensor(self) -> str:
        """What the user knows it as."""
        return self.name.removesuffix(".npy")


class End(NamedTuple):
    """The end record: where the directory is."""

    signature: bytes
    disk: int
    first_disk: int
    here: int
    members: int
    length: int
    offset: int


class Central(NamedTuple):
    """One line of the directory, as it is written."""

    signature: bytes
    made_by: int
    version: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    stored: int
    size: int
    name: int  # lengths of what follows
    extra: int
    comment: int
    disk: int
    internal: int
    external: int
    header: int


class Local(NamedTuple):
    """What stands in front of a member's bytes and repeats the directory."""

    signature: bytes
    version: int
    flags: int
    method: int
    time: int
    date: int
    crc: int
    stored: int
    size: int
    name: int
    extra: int


END = struct.Struct("<4s4H2IH")
END64_LOCATOR = struct.Struct("<4sIQI")
END64 = struct.Struct("<4sQ2H2I4Q")
CENTRAL = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")


def members(source: Source) -> list[Member]:
    """Every member, with the place of its bytes, in file order."""
    end, end_at = _end(source)
    if end.disk or end.first_disk or end.here != end.members:
        raise damaged(source, "it says it is one of several disks")
    if end.members > MAX_TENSORS:
        raise source.refuse(
            f"is a zip archive of {end.members:,} members.", f"At most {MAX_TENSORS:,} are read.", ANOTHER
        )
    if end.offset + end.length != end_at or end.length > end.members * (CENTRAL.size + 2 * MAX_NAME + 128):
        raise damaged(source, "its directory is not where the end record says, or is too long")
    listed = list(_listed(source, source.read(end.offset, end.length), end.members))
    if repeated := len(listed) - len({member.name for member in listed}):
        raise source.refuse(
            f"is a zip archive with {repeated} repeated names.", "Every member has its own name.", ANOTHER
        )
    return list(_located(source, listed, end.offset))


def _end(source: Source) -> tuple[End, int]:
    """The end record, of 32 or 64 bits, and the offset at which it starts."""
    at = source.size - END.size
    if at < 0:
        raise damaged(source, "it has no end record")
    *fields, comment = END.unpack(source.read(at, END.size))
    if fields[0] != b"PK\5\6" or comment:
        raise damaged(source, "it does not end with the end record")
    locator_at = at - END64_LOCATOR.size
    if locator_at < 0 or source.read(locator_at, 4) != b"PK\6\7":
        return End(*fields), at
    return _end64(source, locator_at)


def _end64(source: Source, locator_at: int) -> tuple[End, int]:
    at = locator_at - END64.size
    _, disk, claimed, disks = END64_LOCATOR.unpack(source.read(locator_at, END64_LOCATOR.size))
    if at < 0 or disk or disks > 1 or claimed != at:
        raise damaged(source, "its zip64 locator points elsewhere")
    signature, size, _, _, *fields = END64.unpack(source.read(at, END64.size))
    if signature != b"PK\6\6" or size != END64.size - 12:
        raise damaged(source, "its zip64 end record is damaged")
    return End(signature, *fields), at


def _listed(source: Source, directory: bytes, count: int) -> Iterator[Member]:
    """The members as the directory lists them."""
    at = 0
    for _ in range(count):
        if at + CENTRAL.size > len(directory):
            raise damaged(source, "its directory is cut short")
        line = Central(*CENTRAL.unpack_from(directory, at))
        name_at = at + CENTRAL.size
        extra_at = name_at + line.name
        at = extra_at + line.extra + line.comment
        if line.signature != b"PK\1\2" or at > len(directory) or line.disk or line.version > ZIP64:
            raise damaged(source, "its directory is damaged")
        name = _text(source, directory[name_at:extra_at], line.flags)
        extra = directory[extra_at : extra_at + line.extra]
        size, stored, header = _wide(source, extra, (line.size, line.stored, line.header))
        member = Member(name, line.method, line.flags, line.crc, stored, size, header)
        _check(source, member)
        yield member
    if at != len(directory):
        raise damaged(source, "its directory lists more members than it counts")


def _text(source: Source, raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise damaged(source, f"the name {raw[:40]!r} is not UTF-8") from error


def _wide(source: Source, extra: bytes, values: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes and offset, taken from the zip64 field where 32 bits were too few."""
    missing = sum(value == 0xFFFFFFFF for value in values)
    at = 0
    while missing and at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if tag == 1 and len(field) == length >= 8 * missing:
            wide = iter(struct.unpack_from(f"<{missing}Q", field))
            return tuple(next(wide) if value == 0xFFFFFFFF else value for value in values)
        at += 4 + length
    if missing:
        raise damaged(source, "a zip64 size is missing")
    return values


def _check(source: Source, member: Member) -> None:
    """A member we could read: a plain name, a known method, a believable compression ratio."""
    check_name(source, member.tensor)
    if member.flags & ~KNOWN_FLAGS:
        reason = "is encrypted." if member.flags & ENCRYPTED else "uses a zip feature no .npz needs."
        raise source.refuse(reason, "Weights are stored as they are.", ANOTHER, tensor=member.tensor)
    if member.method not in (STORED, DEFLATED):
        reason = f"is compressed with method {member.method}."
        raise source.refuse(reason, "Members are stored or deflated.", ANOTHER, tensor=member.tensor)
    if member.method == STORED and member.stored != member.size:
        reason = f"is stored as {member.stored:,} bytes and said to be {member.size:,}."
        raise source.refuse(reason, "A stored member has one size.", tensor=member.tensor)
    if member.size > FREE_RATIO and member.size > MAX_RATIO * member.stored:
        reason = f"grows from {member.stored:,} to {member.size:,} bytes when unpacked."
        raise source.refuse(
            reason, f"Weights compress by much less than {MAX_RATIO} to 1.", ANOTHER, tensor=member.tensor
        )


def _located(source: Source, listed: list[Member], limit: int) -> Iterator[Member]:
    """The members in file order, each behind a local header that agrees with the directory; none overlap."""
    free = 0
    for member in sorted(listed, key=lambda member: member.header):
        if member.header < free or member.header + LOCAL.size > limit:
            raise source.refuse("shares bytes with another member, or lies outside the file.", tensor=member.tensor)
        local = Local(*LOCAL.unpack(source.read(member.header, LOCAL.size)))
        name_at = member.header + LOCAL.size
        start = name_at + local.name + local.extra
        free = start + member.stored
        if free > limit:
            raise source.refuse("does not fit into the file.", tensor=member.tensor)
        texts = source.read(name_at, local.name + local.extra)
        _check_agreement(source, member, local, texts)
        yield dataclasses.replace(member, start=start)


def _check_agreement(source: Source, member: Member, local: Local, texts: bytes) -> None:
    name = _text(source, texts[: local.name], local.flags)
    same = (name, local.method, local.flags) == (member.name, member.method, member.flags)
    if same and not local.flags & LATER_SIZES:
        size, stored = _wide(source, texts[local.name :], (local.size, local.stored))
        same = (local.crc, stored, size) == (member.crc, member.stored, member.size)
    if local.signature != b"PK\3\4" or not same:
        reason = "is described differently in the directory and in place."
        raise source.refuse(reason, "Both descriptions agree.", tensor=member.tensor)


def damaged(source: Source, how: str) -> CheckpointError:
    """The refusal of an archive that does not hold together."""
    return source.refuse(
        f"is not a whole zip archive: {shown(how)}.",
        "An .npz is a zip archive of arrays, as numpy.savez writes it.",
        "It was cut short or is damaged: fetch or copy it again.",
    )
