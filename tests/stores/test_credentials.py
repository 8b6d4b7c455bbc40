"""Who asks: keys in the options, in the environment, or of a profile that boto3 reads. The S3 says who it was."""

import hashlib
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from corgi2.errors import StoreError
from corgi2.stores import open_store
from tests.conftest import S3, SECRET

pytest.importorskip("boto3")

CONFIG = """
[default]
region = us-east-1
[profile team]
region = us-east-1
credential_process = cat {answer}
[profile here]
region = us-east-1
endpoint_url = {endpoint}
aws_access_key_id = AKIDHERE
aws_secret_access_key = s
[profile web]
role_arn = arn:aws:iam::123456789012:role/reader
web_identity_token_file = {answer}
[profile sso]
region = us-east-1
sso_start_url = https://example.awsapps.com/start
sso_region = us-east-1
sso_account_id = 123456789012
sso_role_name = reader
"""
WEB = ("AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_ENDPOINT_URL_STS")
ANSWER = '{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "s"}'
KEYS = """
[default]
aws_access_key_id = AKIDDEFAULT
aws_secret_access_key = s
"""


@pytest.fixture
def _profiles(s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this test alone, and no word in the environment."""
    (tmp_path / "answer").write_text(ANSWER)
    text = CONFIG.format(answer=tmp_path / "answer", endpoint=s3.options["endpoint"])
    (tmp_path / "config").write_text(text)
    (tmp_path / "credentials").write_text(KEYS)
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", *WEB):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def _who(s3: S3, **options: object) -> str:
    """The key that a listing was signed with."""
    s3.proxy.headers.clear()
    open_store(s3.url, {"timeout": 5, "retries": 0, **options}).list()
    match = re.search(r"Credential=(\w+)/", s3.proxy.headers[-1]["authorization"])
    assert match is not None
    return match[1]


@pytest.mark.usefixtures("_profiles")
def test_the_default_profile_is_used_where_nothing_else_is_said(s3: S3) -> None:
    assert _who(s3, endpoint=s3.options["endpoint"]) == "AKIDDEFAULT"


@pytest.mark.usefixtures("_profiles")
def test_a_profile_is_named_by_an_option_or_by_the_environment(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = s3.options["endpoint"]
    assert _who(s3, endpoint=endpoint, profile="team") == "AKIDPROCESS", "whatever the profile names is asked"
    monkeypatch.setenv("AWS_PROFILE", "team")
    assert _who(s3, endpoint=endpoint) == "AKIDPROCESS"
    assert _who(s3, endpoint=endpoint, profile="here") == "AKIDHERE", "the option comes first"


@pytest.mark.usefixtures("_profiles")
def test_a_profile_may_name_the_server_too(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _who(s3, profile="here") == "AKIDHERE"
    monkeypatch.setenv("AWS_ENDPOINT_URL", str(s3.options["endpoint"]))
    assert _who(s3, profile="here") == "AKIDHERE"


@pytest.mark.usefixtures("_profiles")
def test_keys_come_before_profiles_that_were_not_named(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = s3.options["endpoint"]
    assert _who(s3, endpoint=endpoint, access_key_id="AKIDGIVEN", secret_access_key=SECRET) == "AKIDGIVEN"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDOUTSIDE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    assert _who(s3, endpoint=endpoint) == "AKIDOUTSIDE"
    assert _who(s3, endpoint=endpoint, profile="here") == "AKIDHERE"


@pytest.mark.usefixtures("_profiles")
def test_a_web_identity_is_exchanged_for_keys(
    s3: S3, moto_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{moto_port}")
    endpoint = s3.options["endpoint"]
    assert _who(s3, endpoint=endpoint, profile="web").startswith("ASIA"), "keys for a while"
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "answer"))
    monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
    assert _who(s3, endpoint=endpoint).startswith("ASIA"), "it comes before the default profile"


@pytest.mark.usefixtures("_profiles")
def test_a_profile_of_sso_takes_its_keys_from_the_portal(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"accessKeyId": "AKIDSSO", "secretAccessKey": "s", "sessionToken": "t", "expiration": 4_000_000_000_000}
    start = "https://example.awsapps.com/start"
    token = {"startUrl": start, "region": "us-east-1", "accessToken": "t", "expiresAt": "2096-10-02T00:00:00Z"}
    name = hashlib.sha1(start.encode(), usedforsecurity=False).hexdigest()
    (tmp_path / f"{name}.json").write_text(json.dumps(token))
    monkeypatch.setattr("botocore.credentials.SSOProvider._SSO_TOKEN_CACHE_DIR", str(tmp_path))

    class Portal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"roleCredentials": keys}).encode())

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Portal) as portal, ThreadPoolExecutor(1) as pool:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", f"http://127.0.0.1:{portal.server_port}")
        pool.submit(portal.serve_forever)
        try:
            assert _who(s3, endpoint=s3.options["endpoint"], profile="sso") == "AKIDSSO"
        finally:
            portal.shutdown()


@pytest.mark.usefixtures("_profiles")
def test_a_profile_that_is_not_there_or_two_answers_to_who_asks_are_wrong_usage(s3: S3) -> None:
    with pytest.raises(ValueError, match=r"nobody.*could not be found"):
        open_store(s3.url, {"profile": "nobody"}).list()
    with pytest.raises(ValueError, match="profile and access_key_id both give credentials"):
        open_store(s3.url, {"profile": "here", "access_key_id": "AKID"}).list()


@pytest.mark.usefixtures("_profiles")
def test_without_boto3_a_profile_that_was_named_says_what_to_install(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    with pytest.raises(StoreError, match=r"profile 'team'.*boto3") as error:
        open_store(s3.url, {"profile": "team"}).list()
    assert error.value.hint == "pip install 'corgi2[aws]'"
