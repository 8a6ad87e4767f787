"""Every option is noticed by all who deal in options, without being named there."""

import json
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from belljar import Allow, Limits, Policy, Pool, Session
from belljar.errors import UsageError
from belljar.host import Host
from belljar.options import (
    FIELDS,
    PUBLIC,
    AllOptions,
    OwnOptions,
    PublicOptions,
    SandboxOptions,
)
from belljar.sandbox import rundir
from belljar.session import kept
from belljar.session.pool import NOT_POOLED
from belljar.surfaces.cli.arguments import add_sandbox_options, options_of

ODD: dict[str, Any] = {
    "workspace": "/srv/work", "image": "python", "policy": Policy.parse('[policy]\nname = "odd"\n'), "network": "full",
    "changes": "staged", "name": "desk", "root": True, "debug": True, "allow_home": True,
    "mounts": (("/data", "/srv/data"),),
    "cache": (("pip", ".cache/pip"),), "metadata": (("job", "17"),), "limits": Limits(memory="300m"), "lease": 77.0,
    "env": (("A", "1"),), "checkpoints": "auto", "keep": True, "id": "bj-0123456789ab", "keepable": True,
    "longest": 5.0, "base": "bj-0123456789ac", "continues": "bj-0123456789ad",
    "account": "user", "reserved": ("/srv/trail",), "snapshot": "ready", "on_close": "keep",
    "author": "Ana <ana@example.org>", "timezone": "Europe/Berlin",
}  # fmt: skip
"""A value for each field that is not its default. A new option needs one here, and nothing else in this file."""


def odd(name: str) -> SandboxOptions:
    return replace(SandboxOptions("/srv/work"), **{name: ODD[name]})


def value(options: SandboxOptions, name: str) -> Any:
    held = getattr(options, name)
    return held.as_dict() if isinstance(held, Policy) else held


@pytest.mark.parametrize("name", FIELDS)
def test_options_are_made_anew_only_where_a_value_differs(name: str) -> None:
    options = odd(name)
    assert options.changed(**{name: getattr(options, name)}) is options
    other = SandboxOptions("/srv/other").changed(**{name: ODD[name]})
    assert value(other, name) == value(options, name)
    with pytest.raises(UsageError):
        options.changed(lease=-1)


@pytest.mark.parametrize("name", FIELDS)
def test_an_option_survives_being_written_down(name: str) -> None:
    assert value(odd(name), name) != value(SandboxOptions("/srv/other"), name)
    again = SandboxOptions.restored(json.loads(json.dumps(odd(name).as_dict())))
    assert {each: value(again, each) for each in FIELDS} == {
        each: value(odd(name), each) for each in FIELDS
    }


@pytest.mark.parametrize("name", FIELDS)
def test_an_option_is_in_the_facts_of_a_kept_session_and_comes_back(
    name: str, tmp_path: Path
) -> None:
    directory = tmp_path / "bj-0123456789ab"
    directory.mkdir()
    saved = SandboxOptions("/srv/work").as_dict()
    rundir.write_session(directory, {"id": directory.name, "options": saved})
    rundir.remember(directory, odd(name))
    facts = rundir.read_session(directory)
    assert facts is not None
    assert value(SandboxOptions.restored(facts["options"]), name) == value(
        odd(name), name
    )
    assert (name in kept._shown(facts)) is (not FIELDS[name].metadata.get("secret"))


@pytest.mark.parametrize("name", sorted(PUBLIC - {"root"}))
def test_a_session_has_each_option(name: str, tmp_path: Path) -> None:
    of = Session(
        **{
            "workspace": "/srv/work",
            name: ODD[name],
            "host": Host(run=tmp_path / "run", state=tmp_path),
        }
    )
    assert value(of.options, name) == value(odd(name), name)


@pytest.mark.parametrize("name", sorted(FIELDS.keys() - NOT_POOLED))
def test_a_pool_hands_out_a_sandbox_only_where_each_option_that_shapes_it_is_equal(
    name: str,
) -> None:
    same = odd(name).kind() == SandboxOptions("/srv/work").kind()
    assert same is bool(FIELDS[name].metadata.get("of_session"))


@pytest.mark.parametrize("name", sorted(PUBLIC - NOT_POOLED))
def test_a_pool_takes_each_option(name: str, tmp_path: Path) -> None:
    pool = Pool(
        "/srv/work",
        **{name: ODD[name], "host": Host(run=tmp_path / "run", state=tmp_path)},
    )
    assert value(pool.options, name) == value(odd(name), name)


@pytest.mark.parametrize(
    "name", [name for name, one in FIELDS.items() if one.metadata["help"]]
)
def test_an_option_with_help_is_an_option_of_the_command_line(name: str) -> None:
    parser = ArgumentParser()
    add_sandbox_options(parser)
    plain = options_of(parser.parse_args([]))
    (action,) = [action for action in parser._actions if action.dest == name]
    words = {
        "mounts": ["/srv/data:/data"],
        "cache": ["pip"],
        "metadata": ["job=17"],
        "policy": ["ci"],
    }
    takes_a_value = action.nargs != 0
    args = [
        action.option_strings[0],
        *(words.get(name, [ODD[name]]) if takes_a_value else []),
    ]
    assert getattr(plain, name) != getattr(options_of(parser.parse_args(args)), name)


def test_what_may_be_given_is_what_the_record_holds() -> None:
    assert AllOptions.__annotations__.keys() == FIELDS.keys() - {"workspace"}
    assert OwnOptions.__annotations__.keys() == PUBLIC - {"workspace"}
    assert PublicOptions.__annotations__.keys() == PUBLIC - NOT_POOLED


def test_values_of_headers_are_not_written_down() -> None:
    network = Allow(
        "api.example.com",
        headers={"api.example.com": {"Authorization": "Bearer s3cret"}},
        ask_hosts=True,
    )
    saved = json.dumps(SandboxOptions(network=network).as_dict())
    assert "s3cret" not in saved
    again = SandboxOptions.restored(json.loads(saved)).network
    assert isinstance(again, Allow)
    assert (again.hosts, again.ask_hosts) == (("api.example.com",), True)


def test_fields_of_another_version_are_ignored() -> None:
    assert SandboxOptions.restored(
        {"image": "python", "from_the_future": 1}
    ) == SandboxOptions(image="python")


@pytest.mark.parametrize(
    "wrong", [{"on_close": "apply"}, {"root": True, "debug": True}]
)
def test_options_that_contradict_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        SandboxOptions(**wrong)


def test_internal_options_are_not_for_callers() -> None:
    with pytest.raises(UsageError, match="keepable"):
        Session(keepable=True)  # type: ignore[call-arg]


async def test_an_attached_session_has_all_options_of_the_one_that_was_kept(
    workspace: Path,
) -> None:
    own: dict[str, Any] = {
        "env": {"A": "1"},
        "metadata": {"job": "17"},
        "limits": Limits(memory="200m"),
    }
    async with Session(
        workspace, keep=True, lease=60.0, policy="ci", allow_home=True, **own
    ) as box:
        id = box.id
    again = await Session.attach(id)
    try:
        assert again.options.as_dict() == box.options.as_dict()
        assert (await again.run('echo "$A"')).stdout == "1\n"
        assert Session.of(again.options).options == again.options
    finally:
        await again.stop()
