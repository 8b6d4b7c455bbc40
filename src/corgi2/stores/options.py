"""Options of object stores, as a person gives them and as the client takes them."""

import difflib
import os
import re
from datetime import timedelta
from typing import Any

from corgi2.errors import StoreError
from corgi2.stores.fork import obstore
from corgi2.stores.retries import one_line
from corgi2.stores.store import Options
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
    settings = client_settings(root, options, retries)
    try:
        return getattr(stores, _CLASSES[root.scheme])(root.bucket, **settings)
    except obstore().exceptions.UnknownConfigurationKeyError as error:
        raise _unknown(root, options) from error
    except (ValueError, TypeError, obstore().exceptions.BaseError) as error:
        raise _refused(root, options, error) from error


def _unknown(root: Url, options: Options) -> ValueError:
    """obstore says one of them, in its own spelling."""
    known = {*_OURS, *_KNOWN_OF[root.scheme]}
    name = next((name for name in options if not _is_known(root, name)), next(iter(options), ""))
    near = difflib.get_close_matches(name.lower(), known, 1, 0.0)
    return ValueError(f"{root}: there is no storage option {name!r}; the nearest is {near[0]!r}")


def _is_known(root: Url, name: str) -> bool:
    """Names that are not ours, obstore is asked for."""
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


def _refused(root: Url, options: Options, error: Exception) -> Exception:
    """A value that obstore cannot read is wrong usage; what it finds elsewhere, in the environment, is the store's."""
    text = one_line(error)
    shown = {name: value for name, value in options.items() if not _SECRET.search(name)}
    named = [name for name, value in shown.items() if str(value) and f'"{value}"' in text]
    if named:
        return ValueError(f"{root}: storage option {named[0]} cannot be {options[named[0]]!r}: {text}")
    if "client_options" in options:  # which only Python gives
        return ValueError(f"{root}: storage option client_options: {text}")
    return StoreError(f"{root}: {text}")


def _memory(name: str) -> object:
    if any(other == name and pid != os.getpid() for other, pid in _memories):
        raise StoreError(
            f"memory://{name}: is not to be had in a forked process; use a folder, such as /dev/shm/{name}"
        )
    return _memories.setdefault((name, os.getpid()), obstore().store.MemoryStore())


def client_settings(root: Url, options: Options, retries: int) -> dict[str, Any]:
    """corgi2's options as obstore's: a few have plain names of ours, all others are obstore's own."""
    settings: dict[str, Any] = {key: value for key, value in options.items() if key not in _OURS}
    if "anonymous" in options:
        settings["skip_signature"] = _flag("anonymous", options["anonymous"])
    endpoint = str(options.get("endpoint") or (_environment_endpoint() if root.scheme == "s3" else ""))
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise ValueError(f"endpoint is a URL such as http://127.0.0.1:9000 (got {endpoint!r})")
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


_OURS = {"anonymous", "retries", "timeout"}

_KNOWN_OF = {
    "memory": set[str](),
    "s3": {"endpoint", "region", "access_key_id", "secret_access_key", "session_token", "virtual_hosted_style_request"},
    "gs": {"endpoint", "service_account_path", "service_account_key", "application_credentials"},
    "az": {"endpoint", "account_name", "account_key", "sas_token", "client_id", "client_secret", "tenant_id"},
}
"""Those that people give; obstore knows more."""


def _environment_endpoint() -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def retries_of(options: Options) -> int:
    return _count("retries", options.get("retries", 8))


def _seconds(options: Options) -> int:
    return max(1, _count("timeout", options.get("timeout", 60)))


def _count(name: str, value: object) -> int:
    text = str(value)
    if not text.isdigit():
        raise ValueError(f"storage option {name} is a whole number (got {value!r})")
    return int(text)


def _flag(name: str, value: object) -> bool:
    text = str(value).lower()
    if text not in _TRUE | _FALSE:
        raise ValueError(f"storage option {name} is true or false (got {value!r})")
    return text in _TRUE
