"""The bytes of a frame: length, its checksum, content, the content's checksum."""

LENGTH_BYTES = 8
HEAD_BYTES = LENGTH_BYTES + 4
FOOT_BYTES = 4
FRAME_BYTES = HEAD_BYTES + FOOT_BYTES
