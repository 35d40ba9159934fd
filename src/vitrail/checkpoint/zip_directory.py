"""Reads a zip's directory and believes none of it: what it says is checked against the file.

The standard library's zipfile reads whatever it can (data in front, two members on the same bytes, a million members).
A weight file is none of that, and two readers that disagree about an archive are how hostile ones get through.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from vitrail.checkpoint.entry import MAX_NAME, MAX_TENSORS, check_name
from vitrail.checkpoint.source import Source, shown

STORED, DEFLATED = 0, 8
ENCRYPTED, LATER_SIZES, UTF8 = 0x1, 0x8, 0x800  # flag bits
KNOWN_FLAGS = 0x6 | LATER_SIZES | UTF8  # 0x6: how hard the deflater tried
MAX_RATIO = 200
FREE_RATIO = 2**20  # members up to this size may compress further: a bias of zeros does so by 1,000

END = struct.Struct("<4s4H2IH")
END64_LOCATOR = struct.Struct("<4sIQI")
END64 = struct.Struct("<4sQ2H2I4Q")
CENTRAL = struct.Struct("<4s6H3I5H2I")
LOCAL = struct.Struct("<4s5H3I2H")


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
    start: int = 0  # offset of the bytes; known once the local header has been read


def members(source: Source) -> list[Member]:
    """Every member, with the place of its bytes, in file order."""
    directory, count, offset = _directory(source)
    listed = _listed(source, directory, count)
    repeated = len(listed) - len({member.name for member in listed})
    if repeated:
        raise source.refuse(f"is a zip archive with {repeated} repeated names.", "Every member has its own name.")
    return _located(source, listed, offset)


def _directory(source: Source) -> tuple[bytes, int, int]:
    """The central directory's bytes, its number of members, and its offset."""
    end_at = source.size - END.size
    if end_at < 0:
        raise _damaged(source, "it has no end record")
    signature, disk, start_disk, here, count, length, offset, comment = END.unpack(source.read(end_at, END.size))
    if signature != b"PK\5\6" or comment:
        raise _damaged(source, "it does not end with the end record")
    if source.read(max(0, end_at - END64_LOCATOR.size), 4) == b"PK\6\7":
        end_at, disk, start_disk, here, count, length, offset = _end64(source, end_at)
    if disk or start_disk or here != count:
        raise _damaged(source, "it says it is one of several disks")
    if count > MAX_TENSORS:
        raise source.refuse(f"is a zip archive of {count:,} members.", f"At most {MAX_TENSORS:,} are read.")
    if offset + length != end_at or length > count * (CENTRAL.size + 2 * MAX_NAME + 128):
        raise _damaged(source, "its directory is not where the end record says, or is too long")
    return source.read(offset, length), count, offset


def _end64(source: Source, end_at: int) -> tuple[int, int, int, int, int, int, int]:
    locator_at = end_at - END64_LOCATOR.size
    record_at = locator_at - END64.size
    if record_at < 0:
        raise _damaged(source, "its zip64 end record is missing")
    signature, disk, claimed, disks = END64_LOCATOR.unpack(source.read(locator_at, END64_LOCATOR.size))
    record = END64.unpack(source.read(record_at, END64.size))
    if signature != b"PK\6\7" or disk or disks > 1 or claimed != record_at:
        raise _damaged(source, "its zip64 locator points elsewhere")
    signature, size, _, _, disk, start_disk, here, count, length, offset = record
    if signature != b"PK\6\6" or size != END64.size - 12:
        raise _damaged(source, "its zip64 end record is damaged")
    return record_at, disk, start_disk, here, count, length, offset


def _listed(source: Source, directory: bytes, count: int) -> list[Member]:
    listed = []
    at = 0
    for _ in range(count):
        if at + CENTRAL.size > len(directory):
            raise _damaged(source, "its directory is cut short")
        (
            signature,
            _,
            _,
            flags,
            method,
            _,
            _,
            crc,
            stored,
            size,
            name_length,
            extra_length,
            comment,
            disk,
            _,
            _,
            header,
        ) = CENTRAL.unpack_from(directory, at)
        at += CENTRAL.size
        end = at + name_length + extra_length + comment
        if signature != b"PK\1\2" or end > len(directory) or disk:
            raise _damaged(source, "its directory is damaged")
        name = _name(source, directory[at : at + name_length], flags)
        extra = directory[at + name_length : at + name_length + extra_length]
        size, stored, header = _wide(source, extra, (size, stored, header))
        at = end
        listed.append(_checked(source, Member(name, method, flags, crc, stored, size, header)))
    if at != len(directory):
        raise _damaged(source, "its directory lists more members than it counts")
    return listed


def _name(source: Source, raw: bytes, flags: int) -> str:
    try:
        return raw.decode("utf-8" if flags & UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise _damaged(source, f"the name {raw[:40]!r} is not UTF-8") from error


def _wide(source: Source, extra: bytes, values: tuple[int, int, int]) -> tuple[int, int, int]:
    """Size, stored size and offset, taken from the zip64 field where 32 bits were too few."""
    missing = [value == 0xFFFFFFFF for value in values]
    if not any(missing):
        return values
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        field = extra[at + 4 : at + 4 + length]
        if tag == 1 and len(field) == length >= 8 * sum(missing):
            wide = iter(struct.unpack_from(f"<{sum(missing)}Q", field))
            size, stored, header = (
                next(wide) if lacks else value for lacks, value in zip(missing, values, strict=True)
            )
            return size, stored, header
        at += 4 + length
    raise _damaged(source, "a zip64 size is missing")


def _checked(source: Source, member: Member) -> Member:
    """A member we could read: known method, plain name, a believable compression ratio."""
    check_name(source, member.name)
    if member.flags & ~KNOWN_FLAGS:
        encrypted = member.flags & ENCRYPTED
        raise source.refuse("is encrypted." if encrypted else "uses a zip feature nobody needs.", tensor=member.name)
    if member.method not in (STORED, DEFLATED):
        raise source.refuse(
            f"is compressed with method {member.method}.", "Members are stored or deflated.", tensor=member.name
        )
    if member.method == STORED and member.stored != member.size:
        raise source.refuse(f"is stored as {member.stored:,} bytes and said to be {member.size:,}.", tensor=member.name)
    if member.size > FREE_RATIO and member.size > MAX_RATIO * member.stored:
        raise source.refuse(
            f"grows from {member.stored:,} to {member.size:,} bytes when unpacked.",
            f"Weights compress by much less than {MAX_RATIO} to 1.",
            tensor=member.name,
        )
    return member


def _located(source: Source, listed: list[Member], limit: int) -> list[Member]:
    """Members in file order, each behind its own local header that agrees with the directory; none overlap."""
    located = []
    free = 0
    for member in sorted(listed, key=lambda member: member.header):
        if member.header < free or member.header + LOCAL.size > limit:
            raise source.refuse("shares bytes with another member, or lies outside the file.", tensor=member.name)
        signature, _, flags, method, _, _, crc, stored, size, name_length, extra_length = LOCAL.unpack(
            source.read(member.header, LOCAL.size)
        )
        start = member.header + LOCAL.size + name_length + extra_length
        free = start + member.stored
        if free > limit:
            raise source.refuse("does not fit into the file.", tensor=member.name)
        name = _name(source, source.read(member.header + LOCAL.size, name_length), flags)
        if signature != b"PK\3\4" or (name, method, flags) != (member.name, member.method, member.flags):
            raise source.refuse("is described differently in the directory and in place.", tensor=member.name)
        if not flags & LATER_SIZES:
            extra = source.read(member.header + LOCAL.size + name_length, extra_length)
            size, stored, _ = _wide(source, extra, (size, stored, 0))
            if (crc, stored, size) != (member.crc, member.stored, member.size):
                raise source.refuse("has one size in the directory and another in place.", tensor=member.name)
        located.append(Member(name, method, flags, member.crc, member.stored, member.size, member.header, start))
    return located


def _damaged(source: Source, how: str) -> Exception:
    return source.refuse(
        f"is not a whole zip archive: {shown(how)}.",
        "An .npz is a zip archive of arrays, as numpy.savez writes it.",
        "It was cut short or is damaged: fetch or copy it again.",
    )


class MemberReader:
    """A member's bytes from its start, unpacked as they are read, and checked against its checksum at the end."""

    def __init__(self, source: Source, member: Member) -> None:
        self.source, self.member = source, member
        self.at, self.end = member.start, member.start + member.stored
        self.left, self.crc = member.size, 0
        self.inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == DEFLATED else None
        self.pending = b""

    def fill(self, buffer: memoryview) -> None:
        """The next bytes; the caller never asks for more than the member's size."""
        if self.inflater is None:
            self.source.readinto(self.at, buffer)
            self.at += len(buffer)
        else:
            self._inflate(buffer)
        self.crc = zlib.crc32(buffer, self.crc)
        self.left -= len(buffer)
        if self.left == 0 and self.crc != self.member.crc:
            raise self.source.refuse(
                "does not match its checksum.",
                "The bytes are those that were written.",
                "The file is damaged: fetch or copy it again.",
                tensor=self.member.name,
            )

    def _inflate(self, buffer: memoryview) -> None:
        assert self.inflater is not None
        done = 0
        while done < len(buffer):
            if not self.pending and self.at < self.end:
                self.pending = self.source.read(self.at, min(2**16, self.end - self.at))
                self.at += len(self.pending)
            try:
                piece = self.inflater.decompress(self.pending, len(buffer) - done)
            except zlib.error as error:
                raise self.source.refuse(f"cannot be unpacked: {error}.", tensor=self.member.name) from error
            self.pending = self.inflater.unconsumed_tail
            if not piece and (self.inflater.eof or (not self.pending and self.at == self.end)):
                raise self.source.refuse("unpacks to fewer bytes than it says.", tensor=self.member.name)
            buffer[done : done + len(piece)] = piece
            done += len(piece)
