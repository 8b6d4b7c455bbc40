"""Options of object stores, as people give them and as the client takes them."""

import difflib
import os
import re
from datetime import timedelta
from typing import Any

from corgi2.errors import StoreError
from corgi2.stores.credentials import profile_settings
from corgi2.stores.fork import obstore
from corgi2.stores.retries import one_line
from corgi2.stores.store import CONNECTIONS, Options
from corgi2.stores.url import Url

_CLASSES = {"s3": "S3Store", "gs": "GCSStore", "az": "AzureStore"}

_TRUE, _FALSE = {"1", "true", "yes", "on"}, {"0", "false", "no", "off"}

_memories: dict[tuple[str, int], object] = {}


def make_client(root: Url, options: Options, retries: int) -> object:
    stores = obstore().store
    if root.scheme == "memory":
        if options.keys() - _OURS:
            raise _unknown(root, options)
        return _memory(root.bucket)
    found = profile_settings(options) if root.scheme == "s3" else {}
    if _environment_endpoint():
        found.pop("endpoint", None)
    settings = client_settings(root, {**found, **options}, retries)
    try:
        return getattr(stores, _CLASSES[root.scheme])(root.bucket, **settings)
    except obstore().exceptions.UnknownConfigurationKeyError as error:
        raise _unknown(root, options) from error
    except (ValueError, TypeError, obstore().exceptions.BaseError) as error:
        raise _refused(root, options, error) from error


def _unknown(root: Url, options: Options) -> ValueError:
    """The error for an unknown option; obstore names it in its own spelling."""
    known = {*_OURS, *_KNOWN_OF[root.scheme]}
    name = next((name for name in options if not _is_known(root, name)), next(iter(options), ""))
    near = difflib.get_close_matches(name.lower(), known, 1, 0.0)
    return ValueError(f"{root}: there is no storage option {name!r}; the nearest is {near[0]!r}")


def _is_known(root: Url, name: str) -> bool:
    """Whether an option exists; for names that are not corgi2's, obstore is asked."""
    if name in _OURS or root.scheme == "memory":
        return name in _OURS
    try:
        getattr(obstore().store, _CLASSES[root.scheme])(root.bucket, **{name: "true"})
    except obstore().exceptions.UnknownConfigurationKeyError:
        return False
    except (ValueError, TypeError, obstore().exceptions.BaseError):
        return True
    return True


_SECRET = re.compile("key|secret|token|password|credential|sas", re.IGNORECASE)
_ADDRESS_WITH_SECRET = re.compile(r"://[^/]*@|://.*\?", re.DOTALL)


def is_secret(name: str) -> bool:
    """Whether the value of such an option must not be shown."""
    return _SECRET.search(name) is not None


def without_secrets(options: Options) -> dict[str, object]:
    """What may be written down: plain values, except secrets and addresses that may hold one."""
    return {
        name: value
        for name, value in options.items()
        if isinstance(value, str | int | float) and not is_secret(name) and not _ADDRESS_WITH_SECRET.search(str(value))
    }


def secrets_of(options: Options) -> dict[str, object]:
    """The options that may not be written down."""
    shown = without_secrets(options)
    return {name: value for name, value in options.items() if name not in shown}


def _refused(root: Url, options: Options, error: Exception) -> Exception:
    """A value that obstore cannot read is wrong usage; one from elsewhere, such as the environment, is a StoreError."""
    text = one_line(error)
    shown = {name: value for name, value in options.items() if not is_secret(name)}
    named = [name for name, value in shown.items() if str(value) and f'"{value}"' in text]
    if named:
        return ValueError(f"{root}: storage option {named[0]} cannot be {options[named[0]]!r}: {text}")
    if "client_options" in options:  # which only Python gives
        return ValueError(f"{root}: storage option client_options: {text}")
    return StoreError(f"{root}: {text}")


def _memory(name: str) -> object:
    if any(other == name and pid != os.getpid() for other, pid in _memories):
        raise StoreError(
            f"memory://{name}: is not available in a forked process; use a folder, such as /dev/shm/{name}"
        )
    return _memories.setdefault((name, os.getpid()), obstore().store.MemoryStore())


def client_settings(root: Url, options: Options, retries: int) -> dict[str, Any]:
    """corgi2's options as obstore's: a few have simpler names in corgi2, all others are obstore's own."""
    settings: dict[str, Any] = {key: value for key, value in options.items() if key not in _OURS}
    if "anonymous" in options:
        settings["skip_signature"] = _flag("anonymous", options["anonymous"])
    endpoint = str(options.get("endpoint") or (_environment_endpoint() if root.scheme == "s3" else ""))
    _check_headers(root, settings)
    if endpoint and not _is_address(endpoint):
        raise ValueError(f"endpoint must be a URL such as http://127.0.0.1:9000 (got {endpoint!r})")
    if root.scheme == "gs" and "endpoint" in settings:
        settings["base_url"] = settings.pop("endpoint")
    settings["client_options"] = {
        "timeout": "1h",
        "read_timeout": f"{_seconds(options)}s",
        "allow_http": endpoint.startswith("http://"),
        **settings.get("client_options", {}),
    }
    settings["retry_config"] = {
        "max_retries": retries,
        "retry_timeout": timedelta(minutes=3),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2},
    }
    return settings


_ENDPOINT = re.compile(r"https?://([\w.-]+|\[[0-9a-fA-F:.]+\])(?::(\d{1,5}))?(/\S*)?")
"""Checked here, because obstore ends the program if it cannot build a request from an endpoint."""

_LAST_PORT = 65_535

_IN_HEADERS = {"s3": ("access_key_id", "session_token", "region"), "az": ("account_name", "sas_token")}
"""Options that travel in a request's headers, in which obstore cannot put everything either."""


def _is_address(endpoint: str) -> bool:
    found = _ENDPOINT.fullmatch(endpoint)
    return found is not None and int(found[2] or 0) <= _LAST_PORT


def _check_headers(root: Url, settings: dict[str, Any]) -> None:
    """Refuse what no header can hold, such as a line break that was copied along with a key."""
    for name in _IN_HEADERS.get(root.scheme, ()):
        given, variable = settings.get(name), f"AWS_{name.upper()}" if root.scheme == "s3" else ""
        text = str(os.environ.get(variable, "") if given is None else given)
        if not (text.isascii() and text.isprintable()):
            where = f"storage option {name}" if given is not None else variable
            raise ValueError(f"{root}: {where} holds a line break, or another character that no key or region has")


_OURS = {"anonymous", "connections", "profile", "ranges", "retries", "timeout"}

_KNOWN_OF = {
    "memory": set[str](),
    "s3": {"endpoint", "region", "access_key_id", "secret_access_key", "session_token", "virtual_hosted_style_request"},
    "gs": {"endpoint", "service_account_path", "service_account_key", "application_credentials"},
    "az": {"endpoint", "account_name", "account_key", "sas_token", "client_id", "client_secret", "tenant_id"},
}
"""The options that people give; obstore knows more."""


def check_second(options: Options | None, is_named: bool) -> None:
    """Refuse options for a second store if only one is named, rather than ignore them."""
    if options and not is_named:
        raise ValueError("dst_options= is for a second store, and one alone is named; give src_options=")


def names_endpoint(options: Options) -> bool:
    """Whether options, the environment or a profile say which server of S3 is asked; else it is Amazon's."""
    given = any("endpoint" in name.lower() for name in options)
    return given or bool(_environment_endpoint()) or "endpoint" in profile_settings(options)


def _environment_endpoint() -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def retries_of(options: Options) -> int:
    return _count("retries", options.get("retries", 8))


def connections_of(options: Options) -> int:
    """Requests in flight in one process."""
    return max(1, _count("connections", options.get("connections", CONNECTIONS)))


def may_split(options: Options) -> bool:
    """Whether several requests may share a read; if not, every block is read by one request."""
    return _flag("ranges", options.get("ranges", True))


def _seconds(options: Options) -> int:
    return max(1, _count("timeout", options.get("timeout", 60)))


def _count(name: str, value: object) -> int:
    text = str(value)
    if not text.isdigit():
        raise ValueError(f"storage option {name} must be a whole number (got {value!r})")
    return int(text)


def _flag(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in _TRUE | _FALSE:
        raise ValueError(f"storage option {name} must be true or false (got {value!r})")
    return text in _TRUE
