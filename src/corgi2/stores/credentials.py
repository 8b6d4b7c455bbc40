"""Credentials that obstore does not find by itself: profiles in ``~/.aws``, and what these refer to (SSO, a process).

boto3, an extra, reads them as all AWS programs do, and renews those that expire. obstore itself knows keys in the
options and in the environment, web identities, and the roles of containers and instances.
"""

import os
from pathlib import Path
from typing import Any

from corgi2.errors import StoreError
from corgi2.stores.store import Options

_KEYS = ("access_key_id", "aws_access_key_id", "secret_access_key", "aws_secret_access_key", "credential_provider")
_FILES = {"AWS_CONFIG_FILE": "~/.aws/config", "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials"}
_HINT = "pip install 'corgi2[aws]'"


def profile_settings(options: Options) -> dict[str, Any]:
    """What a profile adds to the options of an S3 client; nothing if none is asked for, or there is none."""
    named = str(options.get("profile") or os.environ.get("AWS_PROFILE") or "")
    if options.get("profile") and any(options.get(name) for name in _KEYS):
        raise ValueError("storage options profile and access_key_id both give credentials; keep only one of them")
    if _has_keys(options) or not (named or _has_files()):
        return {}
    try:
        return _from_boto3(str(options.get("profile") or "") or None)
    except ImportError as error:
        if not named:  # files of other programs: obstore looks for a role, as it does without them
            return {}
        raise StoreError(
            f"profile {named!r}: reading ~/.aws needs boto3, which is not installed", hint=_HINT
        ) from error


def _has_keys(options: Options) -> bool:
    """Whether the options or the environment give credentials in another way."""
    given = any(options.get(name) for name in _KEYS) or str(options.get("anonymous", "")).lower() in (
        "1",
        "true",
        "yes",
    )
    return given or (not options.get("profile") and bool(os.environ.get("AWS_ACCESS_KEY_ID")))


def _has_files() -> bool:
    return any(Path(os.environ.get(name, usual)).expanduser().is_file() for name, usual in _FILES.items())


def _from_boto3(profile: str | None) -> dict[str, Any]:
    import boto3
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        session = boto3.Session(profile_name=profile)
        if session.get_credentials() is None:
            return {}
        provider = Boto3CredentialProvider(session)
    except BotoCoreError as error:
        raise ValueError(f"credentials of AWS: {error}") from error
    endpoint = session._session.get_scoped_config().get("endpoint_url")
    return {"credential_provider": provider} | ({"endpoint": endpoint} if endpoint else {})
