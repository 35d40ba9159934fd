"""Reads one member of a zip archive from start to end, in pieces as large as the caller's buffer."""

from __future__ import annotations

import zlib

from vitrail.checkpoint.source import Cursor, Source
from vitrail.checkpoint.zip_directory import DEFLATED, Member
from vitrail.errors import CheckpointError


class MemberReader:
    """A member's bytes from its start, unpacked as they are read, and checked against its checksum at the end."""

    def __init__(self, source: Source, member: Member) -> None:
        self.source, self.member = source, member
        self.cursor, self.end = Cursor(source, member.start), member.start + member.stored
        self.left, self.crc = member.size, 0
        self.inflater = zlib.decompressobj(-zlib.MAX_WBITS) if member.method == DEFLATED else None

    def fill(self, buffer: memoryview) -> None:
        """The next bytes; the caller never asks for more than are left."""
        if self.inflater is None:
            self.cursor.fill(buffer)
        else:
            done = 0
            while done < len(buffer):
                piece = self._unpacked(self.inflater, len(buffer) - done)
                if not piece:
                    raise self._refuse("unpacks to fewer bytes than it says.")
                buffer[done : done + len(piece)] = piece
                done += len(piece)
        self.crc = zlib.crc32(buffer, self.crc)
        self.left -= len(buffer)
        if self.left == 0:
            self._check_end()

    def _unpacked(self, inflater: zlib._Decompress, at_most: int) -> bytes:
        """Some of the next bytes; none at the end."""
        packed = inflater.unconsumed_tail
        while True:
            try:
                piece = inflater.decompress(packed, at_most)
            except zlib.error as error:
                raise self._refuse(f"cannot be unpacked: {error}.") from error
            if piece or inflater.eof or self.cursor.offset == self.end:
                return piece
            taken = bytearray(min(2**16, self.end - self.cursor.offset))
            self.cursor.fill(memoryview(taken))
            packed = inflater.unconsumed_tail + taken

    def _check_end(self) -> None:
        if self.inflater is not None and self._unpacked(self.inflater, 1):
            raise self._refuse("unpacks to more bytes than it says.")
        if self.crc != self.member.crc:
            raise self._refuse("does not match its checksum.")

    def _refuse(self, reason: str) -> CheckpointError:
        return self.source.refuse(
            reason,
            "The bytes are those that were written.",
            "The file is damaged: fetch or copy it again.",
            tensor=self.member.tensor,
        )
