"""What a failed request means: one table, from the errors that obstore raises to what is done about them.

obstore has classes for a few conditions; all others show only in the text. `tests/stores/test_meanings.py` provokes
them on real servers.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Meaning(Enum):
    """What is done about a failed request."""

    RETRY = "the store was busy, or the connection broke or timed out: the request is sent again"
    GONE = "there is no such object: a lookup says so, a deletion succeeds, and a read raises a `ChangedError`"
    EXISTS = "somebody else has created the object: `create` says so"
    CHANGED = "the object is not the one that was listed: `ChangedError`"
    UNREADABLE = "the store's answer cannot be understood: the store is asked whether it did what was requested"
    OPTION = "because of an option, the request cannot be sent: `StoreError`, at once"
    REFUSED = "the store refused, and would refuse again: `StoreError`, at once"


@dataclass(frozen=True, slots=True)
class _Row:
    meaning: Meaning
    text: str = ""
    """A regular expression that is found in the text of the error."""
    kinds: Sequence[str] = ()
    """Names of classes, one of which is the error's."""

    def holds(self, text: str, kinds: set[str]) -> bool:
        return (not self.kinds or not kinds.isdisjoint(self.kinds)) and re.search(self.text, text) is not None


_TABLE = (
    _Row(Meaning.REFUSED, "NoSuchBucket|ContainerNotFound|The specified bucket does not exist"),
    _Row(Meaning.GONE, kinds=("FileNotFoundError", "NotFoundError")),
    _Row(Meaning.EXISTS, kinds=("AlreadyExistsError",)),
    _Row(Meaning.CHANGED, kinds=("PreconditionError",)),
    _Row(Meaning.RETRY, r"status code: (408|429|5\d\d)\b"),
    _Row(Meaning.REFUSED, r"status code: \d+"),
    _Row(Meaning.OPTION, "builder error"),
    _Row(Meaning.RETRY, "HTTP error"),
    _Row(Meaning.UNREADABLE, "DeleteObjects response"),
)
"""The first row that matches counts; an error without a row means REFUSED."""


def meaning_of(error: BaseException | None) -> Meaning:
    text, kinds = _said(error)[0], {kind.__name__ for kind in type(error).__mro__}
    return next((row.meaning for row in _TABLE if row.holds(text, kinds)), Meaning.REFUSED)


_CODE = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)

_STATUS = re.compile(r"status code: (\d+) ([A-Za-z -]*)")

_QUERY = re.compile(r"\?\S*")

_USER = re.compile(r"//[^/@\s]+@")


def one_line(error: BaseException) -> str:
    """What the store said, without its XML, its debugging text, or a URL's query, which may hold a signature."""
    text, debug = _said(error)
    if "/latest/api/token" in text or "/latest/meta-data" in text:
        return "no credentials found; set the usual environment variables, give access_key_id=…, or anonymous=true"
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        text = f"{status[1]} {status[2]} " + (f"{code[1]}: {code[2]}" if code else "")
    elif "kind: Timeout" in debug:
        text += " (timed out)"
    return _USER.sub("//", _QUERY.sub("", " ".join(text.split())))[:400]


def _said(error: BaseException | None) -> tuple[str, str]:
    """What obstore says, and its debugging text."""
    text, _, debug = str(error).partition("\n\nDebug source")
    return text, debug
