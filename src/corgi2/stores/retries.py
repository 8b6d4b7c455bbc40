"""What an object store says when it fails: for a moment, or for good; in one line, without secrets."""

import re

_CODE = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)

_STATUS = re.compile(r"status code: (\d+) ([A-Za-z -]*)")

_QUERY = re.compile(r"\?\S*")

_USER = re.compile(r"//[^/@\s]+@")

_TEMPORARY_STATUS = {408, 429, *range(500, 600)}


def is_temporary(error: Exception) -> bool:
    """Whether the store was busy, or the connection broke or timed out. obstore says so only in its text."""
    text = str(error).partition("\n\nDebug source")[0]
    status = _STATUS.search(text)
    return int(status[1]) in _TEMPORARY_STATUS if status else "HTTP error" in text and "builder error" not in text


def one_line(error: BaseException) -> str:
    """What the store said, without its XML, its debugging text, or a URL's query, which may hold a signature."""
    text, _, debug = str(error).partition("\n\nDebug source")
    if "/latest/api/token" in text or "/latest/meta-data" in text:
        return "no credentials found; set the usual environment variables, give access_key_id=…, or anonymous=true"
    status, code = _STATUS.search(text), _CODE.search(text)
    if status:
        text = f"{status[1]} {status[2]} " + (f"{code[1]}: {code[2]}" if code else "")
    elif "kind: Timeout" in debug:
        text += " (timed out)"
    return _USER.sub("//", _QUERY.sub("", " ".join(text.split())))[:400]
