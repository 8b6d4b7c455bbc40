"""The files that corgi2 keeps: a line with the version of their form and a checksum, and then their content.

Accidental damage to such a file is noticed when it is read, and so is another version: one line names the file and the
way out. Anyone who can write a file can also seal it: a seal proves nothing against an adversary.
"""

from corgi2.errors import SourceError
from corgi2.records import Buffer, Checksum

VERSION = 5
"""The version of everything in ``.corgi2/``. Raised whenever that changes; guaranteed from the first release on."""
OTHER_VERSION = "use the version that wrote it, or, if its shards are a copy, delete the folder and shuffle again"
"""The way out if a shuffle was begun, or finished, by another version."""
_NAME, _DIGITS, _LONGEST = b"corgi2", 2 * Checksum.SIZE, 64


def seal(data: Buffer) -> bytes:
    return b"%s %d %s\n%s" % (_NAME, VERSION, Checksum.of(data).hex().encode(), data)


def unseal(data: Buffer, name: str, way_out: str, of_other_version: str = OTHER_VERSION) -> memoryview:
    """The content of a sealed file, without a copy; the ways out are those from damage, and from another version."""
    line, newline, _ = bytes(data[:_LONGEST]).partition(b"\n")
    words = line.split(b" ")
    if not newline or len(words) != 3 or words[0] != _NAME or not words[1].isdigit() or len(words[2]) != _DIGITS:
        raise SourceError(f"{name}: is damaged, or was written by an earlier version of corgi2; {way_out}")
    if int(words[1]) != VERSION:
        raise SourceError(
            f"{name}: has version {int(words[1])}, but this corgi2 knows version {VERSION}", hint=of_other_version
        )
    body = memoryview(data)[len(line) + 1 :]
    if Checksum.of(body).hex().encode() != words[2]:
        raise SourceError(f"{name}: is damaged: its checksum is wrong; {way_out}")
    return body
