from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from belljar.audit import masking
from belljar.audit.masking import MASK, Known

SECRET = "hunter2xyzzy"
"""Contains no hint that makes the masker look closer, so each place below must provide that hint itself."""
assert not any(hint in SECRET for hint in masking._HINTS)


@pytest.mark.parametrize(
    "text",
    [
        f"TOKEN={SECRET} cmd",
        f"export AWS_SECRET_ACCESS_KEY='{SECRET}' && ls",
        f'DB_PASSWORD="{SECRET} and more" psql',
        f'MY_KEY="{SECRET}',
        f"API_TOKEN=$'{SECRET}'",
        f"PGPASSWORD={SECRET} psql",
        f"MYSQL_PWD={SECRET} mysql",
        f"tool --password {SECRET}",
        f"tool --api-key={SECRET} x",
        f"curl -H 'Authorization: Bearer {SECRET}' localhost",
        f"curl -H 'authorization: Basic {SECRET}' localhost",
        f"curl -H 'X-Api-Key: {SECRET}' localhost",
        f"curl -u me:{SECRET} localhost",
        f"git clone https://me:{SECRET}@example.invalid/x.git",
        f"sshpass -p {SECRET} ssh host",
        f"mysql -u root -p{SECRET} db",
        f'{{"client_secret": "{SECRET}"}}',
        f"curl 'localhost/?access_token={SECRET}&x=1'",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"docker login -u me -p {SECRET} registry.example",
        f"podman login -p{SECRET}",
        f"git clone https://{SECRET}@example.invalid/x.git",
        f"redis-cli -h host -a {SECRET} ping",
        f"echo 'machine example.invalid login me password {SECRET}' >> .netrc",
        f"npm config set //registry.example/:_authToken {SECRET}",
        f"echo //registry.example/:_authToken={SECRET} > .npmrc",
        f"curl 'https://example.invalid/blob?sv=1&sig={SECRET}'",
        f"curl 'https://example.invalid/o?X-Amz-Signature={SECRET}&x=1'",
        f"zip -r -P {SECRET} out.zip in",
        f"unzip -P {SECRET} out.zip",
        f"7z x -p{SECRET} out.7z",
        f"JWT={SECRET} run",
        f"mongosh -u me -p {SECRET}",
        f"ldapsearch -D cn=me -w {SECRET} x",
        f"mariadb -p{SECRET} db",
        f"mysqldump -p{SECRET} db",
        f"mongodump -p {SECRET}",
        f"MY_PWD={SECRET} x",
        f"curl 'example.invalid/blob?sv=1&sig={SECRET}'",
        f"rabbitmqadmin -p {SECRET} list",
        f"curl 'example.invalid/o?hmac={SECRET}'",
        f"tool --user me:{SECRET}",
        f"GPG_PASSPHRASE={SECRET} gpg",
        f"MY_PASSWD={SECRET} x",
        f"HTTP_PASS={SECRET} x",
        f"GIT_CREDENTIAL={SECRET} x",
        f"curl --cookie {SECRET} localhost",
        f"wget --header 'Cookie: {SECRET}' localhost",
        f"BEARER={SECRET} x",
        f"REGISTRY_AUTH={SECRET} x",
        f"SENTRY_DSN={SECRET} x",
        f"a-very-long-name.with.dots-and_a_token_in_it.and-more-behind-it-to-be-sure={SECRET}",
    ],
)
def test_values_in_places_for_secrets_are_masked(text: str) -> None:
    assert SECRET not in masking.text(text)
    assert MASK in masking.text(text)
    assert SECRET not in str(Known(text).hide(f"it is {SECRET} and more"))


@pytest.mark.parametrize(
    "token",
    [
        "ghp_zyxwvutsrqponmlkjihgfedcba0123456789",
        "glpat-tsrqponmlkjihgfedcba",
        "xoxb-1234567890-abcdef",
        "AKIAPONMLKJIHGFEDCBA",
        "sk-proj-vutsrqponmlkjihgfedcba",
        # In two parts, so that secret scanners do not report them.
        "ASIA" + "PONMLKJIHGFEDCBA",
        "github_" + "pat_zyxwvutsrqponmlkjihgfedcba",
        "sk_" + "live_ponmlkjihgfedcba",
        "rk_" + "test_ponmlkjihgfedcba",
        "AI" + "zazyxwvutsrqponmlkjihgfedcba0123456789",
        "ya29" + ".ponmlkjihgfedcba",
        "np" + "m_zyxwvutsrqponmlkjihgfedcba0123456789",
        "py" + "pi-zyxwvutsrqponmlkjihgfedcba0123456789",
        "h" + "f_zyxwvutsrqponmlkjihgfedcba",
        "S" + "G.rqponmlkjihgfedcba.rqponmlkjihgfedcba",
        "dop" + "_v1_0123456789abcdef0123456789abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc",
    ],
)
def test_tokens_are_recognised_by_their_shape(token: str) -> None:
    assert masking.text(f"echo {token} | cat") == f"echo {MASK} | cat"


@pytest.mark.parametrize(
    "text",
    [
        "ls -la && echo $TOKEN",
        "TOKEN=$(cat file) run",
        "PWD=/workspace OLDPWD=/tmp",
        "GIT_AUTHOR_NAME=Me git commit -m 'the key change'",
        "KEYBOARD=us MONKEY=3",
        "KeyError: 'risk'",
        "python -m pytest tests/test_token.py -k key",
        "cat ~/.ssh/authorized_keys",
        "git clone https://example.invalid/secret/repo.git",
        "git clone ssh://git@example.invalid/repo.git",
        "zip -r out.zip in && unzip -l out.zip",
        "docker ps -a && redis-cli ping",
        "cp -p machine default login",
        "curl 'https://example.invalid/?design=1&significant=2'",
    ],
)
def test_ordinary_commands_stay_as_they_are(text: str) -> None:
    assert masking.text(text) == text


def test_an_environment_is_masked_by_name_and_by_value() -> None:
    env = {"API_KEY": "x", "URL": "http://u:pw@h/", "HOME": "/home/me"}
    assert masking.environment(env) == {
        "API_KEY": MASK,
        "URL": f"http://u:{MASK}@h/",
        "HOME": "/home/me",
    }


def test_documents_are_masked_all_the_way_down() -> None:
    data = {
        "argv": ["psql", "--password", "x"],
        "nested": [{"token": "t", "n": 1}],
        "text": "TOKEN=1 x",
    }
    assert masking.value(data) == {
        "argv": ["psql", "--password", MASK],
        "nested": [{"token": MASK, "n": 1}],
        "text": f"TOKEN={MASK} x",
    }


def test_output_is_masked_only_for_values_that_are_known() -> None:
    known = Known("run it", {"API_KEY": SECRET, "PORT": "8080"})
    assert known.hide({"stdout": f"{SECRET} 8080 password=abc"}) == {
        "stdout": f"{MASK} 8080 password=abc"
    }


def test_a_value_too_short_to_be_distinctive_is_left_in_output() -> None:
    assert Known("", {"TOKEN": "1"}).hide("1 2 3") == "1 2 3"


@given(st.text())
def test_any_text_can_be_masked_and_masking_twice_adds_nothing(text: str) -> None:
    once = masking.text(text)
    assert masking.text(once) == once
