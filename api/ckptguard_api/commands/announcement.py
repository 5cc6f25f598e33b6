"""What `serve` says when it answers requests: to a person, or to the reader of its logs."""

import os
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import structlog
import typer

from ckptguard.cli.log_lines import LogForm
from ckptguard.client.address import DATA_DIR_VARIABLE, DEFAULT_DATA_DIR
from ckptguard_api.serving.run import Address

_LOG: Final = structlog.get_logger("ckptguard.serve")
_NO_TOKEN: Final = "no token here: use one that you have, or give --new-token"  # noqa: S105 - a sentence
_NO_STORE: Final = "no store is allowed yet: start again with --store NAME=URL, or POST /v1/stores"


def announce(address: Address, stores: Mapping[str, str], form: LogForm) -> None:
    """Say on standard error where the service is.

    Args:
        address: Of the service.
        stores: That this start allows, roots by name: for an example.
        form: Of the logs there.
    """
    if form is LogForm.HUMAN:
        for line in _lines(address, stores):
            typer.echo(line, err=True)
        return
    _LOG.info("serving", data_dir=str(address.folder.path), **address.to_json())
    for is_there, warning in ((address.has_token, _NO_TOKEN), (address.has_store, _NO_STORE)):
        if not is_there:
            _LOG.warning(warning)


def _lines(address: Address, stores: Mapping[str, str]) -> Iterator[str]:
    folder = address.folder
    yield f"ckptguard serves at {address.url}"
    yield f"token: {folder.token_file}" if address.has_token else _NO_TOKEN
    yield f"logs: {folder.log_file}"
    if not address.has_store:
        yield _NO_STORE
    elif address.has_token:
        yield f"try, in another terminal: {_example(folder.path, stores)}"
    yield "stop: Ctrl-C"


def _example(data_dir: Path, stores: Mapping[str, str]) -> str:
    """Return a command that works there: clients look for a data folder where they are, or as told."""
    is_found = data_dir == Path.cwd() / DEFAULT_DATA_DIR and not os.environ.get(DATA_DIR_VARIABLE)
    told = [] if is_found else [f"{DATA_DIR_VARIABLE}={shlex.quote(str(data_dir))}"]
    root = next(iter(stores.values()), "")
    checkpoint = f"{root.removeprefix('file://').rstrip('/')}/CHECKPOINT" if root else "CHECKPOINT"
    words = ["ckptguard", "register", checkpoint, "--run", "RUN", "--step", "STEP", "--wait", "120s"]
    return " ".join([*told, shlex.join(words)])
