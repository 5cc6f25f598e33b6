"""Where the service is found, and what is refused before a token leaves this machine."""

import json
import os
from pathlib import Path

import pytest

from ckptguard.client.address import Address, find_service, parse_service_url
from ckptguard.client.attempt import attempt_key
from ckptguard.errors import ConfigError
from tests.scripted_service import TOKEN

URL = "http://127.0.0.1:8080"


def serve_left(folder: Path, *, url: str = URL, token_file: str | None = None, token: str = TOKEN) -> Path:
    folder.mkdir()
    file = folder / "token"
    file.write_text(f"{token}\n")
    file.chmod(0o600)
    (folder / "address.json").write_text(
        json.dumps({"url": url, "pid": 1, "token_file": token_file or str(file)})
    )
    return file


@pytest.mark.parametrize(
    "url",
    [
        "http://ckpt.example:8080",
        "http://10.0.0.1",
        "http://127.0.0.1.example.com",
        "http://localhost.example.com",
        "http://[2001:db8::1]:80",
        "ftp://127.0.0.1",
        "https://",
        "https://user:secret@ckpt.example",
        "https://ckpt.example/?x=1",
        "https://ckpt.example/#x",
        "https://ckpt.example:99999",
        "https://ckpt.example/a b",
        "https://ckpt.example/\n",
        "127.0.0.1:8080",
        "",
    ],
)
def test_an_address_that_no_token_may_go_to_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_service_url(url, is_http_allowed=False)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://127.8.9.1:1", "http://[::1]:1", "https://ckpt.example/prefix"]
)
def test_this_machine_and_tls_are_fine(url: str) -> None:
    assert parse_service_url(f"{url}/", is_http_allowed=False) == url


def test_plain_http_beyond_this_machine_needs_an_explicit_word(tmp_path: Path) -> None:
    environment = {"CKPTGUARD_URL": "http://api:8080", "CKPTGUARD_TOKEN": TOKEN}
    with pytest.raises(ConfigError, match="CKPTGUARD_ALLOW_HTTP"):
        find_service(environment, folder=tmp_path)
    assert find_service(environment | {"CKPTGUARD_ALLOW_HTTP": "1"}, folder=tmp_path).url == "http://api:8080"


def test_nothing_found_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        find_service({}, folder=tmp_path)
    assert all(word in str(caught.value) for word in ("CKPTGUARD_URL", "ckptguard serve", "address.json"))


def test_what_serve_left_in_its_folder_is_found(tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data")
    found = find_service({}, folder=tmp_path)
    assert (found.url, found.token.reveal(), found.warnings) == (URL, TOKEN, ())
    serve_left(tmp_path / "elsewhere", url="http://[::1]:9")
    found = find_service({"CKPTGUARD_DATA_DIR": str(tmp_path / "elsewhere")}, folder=tmp_path)
    assert found.url == "http://[::1]:9"


def test_the_environment_goes_before_the_folder(tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data")
    token_file = tmp_path / "own"
    token_file.write_text("ckg_own")
    token_file.chmod(0o600)
    environment = {"CKPTGUARD_URL": "https://x.example", "CKPTGUARD_TOKEN_FILE": str(token_file)}
    assert find_service(environment, folder=tmp_path).token.reveal() == "ckg_own"
    assert find_service(environment | {"CKPTGUARD_TOKEN": "ckg_b"}, folder=tmp_path).token.reveal() == "ckg_b"


def test_the_token_of_the_folder_goes_to_its_own_service_only(tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data")
    assert find_service({"CKPTGUARD_URL": f"{URL}/"}, folder=tmp_path).token.reveal() == TOKEN
    with pytest.raises(ConfigError, match="CKPTGUARD_TOKEN"):
        find_service({"CKPTGUARD_URL": "https://other.example"}, folder=tmp_path)


def test_a_folder_that_nobody_named_sends_no_token_of_the_environment_to_another_machine(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "ckptguard-data"
    (tmp_path / "mine").mkdir()
    serve_left(folder, url="https://evil.example")
    environment = {"CKPTGUARD_TOKEN": TOKEN}
    with pytest.raises(ConfigError, match=r"evil\.example"):
        find_service(environment, folder=tmp_path)
    named = find_service(environment | {"CKPTGUARD_DATA_DIR": str(folder)}, folder=tmp_path)
    assert named.url == "https://evil.example"
    serve_left(tmp_path / "mine" / "ckptguard-data")
    assert find_service(environment, folder=tmp_path / "mine").url == URL


def test_a_token_file_that_others_may_read_is_a_warning(tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data").chmod(0o644)
    (warning,) = find_service({}, folder=tmp_path).warnings
    assert "chmod 600" in warning


def test_a_folder_that_names_a_file_elsewhere_sends_nothing(tmp_path: Path) -> None:
    key = tmp_path / "id_key"
    key.write_text("PRIVATE")
    serve_left(tmp_path / "ckptguard-data", token_file=str(key))
    with pytest.raises(ConfigError, match="outside its own folder"):
        find_service({}, folder=tmp_path)


def test_a_link_out_of_the_folder_sends_nothing(tmp_path: Path) -> None:
    key = tmp_path / "id_key"
    key.write_text("PRIVATE")
    file = serve_left(tmp_path / "ckptguard-data")
    file.unlink()
    file.symlink_to(key)
    with pytest.raises(ConfigError, match="outside its own folder"):
        find_service({}, folder=tmp_path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give a file away")
def test_an_address_that_another_user_left_is_not_taken(tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data")
    os.chown(tmp_path / "ckptguard-data" / "address.json", 12345, 12345)
    with pytest.raises(ConfigError, match="another user"):
        find_service({}, folder=tmp_path)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"url": 7, "token_file": "t"}', '{"url": "x"}', "\xff"])
def test_a_broken_address_file_is_one_clear_error(text: str, tmp_path: Path) -> None:
    serve_left(tmp_path / "ckptguard-data")
    (tmp_path / "ckptguard-data" / "address.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="address"):
        find_service({}, folder=tmp_path)


@pytest.mark.parametrize("token", ["", "two words", "a\nb", "é", "x" * 5000])
def test_what_cannot_be_a_token_is_refused_without_showing_it(token: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Address.of(URL, token)
    assert not token or token not in str(caught.value)


def test_one_start_has_one_name_in_all_its_processes() -> None:
    elastic = {"TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert attempt_key(elastic) == attempt_key(elastic | {"RANK": "3"}) == "torchelastic-j-2"
    assert attempt_key({"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": "9"}) == "slurm-9-0"


def test_every_restart_has_a_name_of_its_own_whoever_restarts() -> None:
    """Slurm restarts a job, torchrun its ranks in it; a first start is named alike in script and ranks."""
    first = {"TORCHELASTIC_RUN_ID": "j", "TORCHELASTIC_RESTART_COUNT": "0"}
    again = first | {"TORCHELASTIC_RESTART_COUNT": "2"}
    for launcher, name in (({"SLURM_JOB_ID": "9"}, "slurm-9-0"), ({"CKPTGUARD_ATTEMPT": "mine"}, "mine")):
        assert attempt_key(launcher) == attempt_key(first | launcher) == name
        assert attempt_key(again | launcher) == f"{name}.2"
    assert attempt_key(again | {"SLURM_JOB_ID": "9", "SLURM_RESTART_COUNT": "1"}) == "slurm-9-1.2"
    assert len(attempt_key(again | {"CKPTGUARD_ATTEMPT": "x" * 300})) == 200
    assert attempt_key({}) != attempt_key({})
    assert len(attempt_key({"SLURM_JOB_ID": "9" * 999, "SLURM_RESTART_COUNT": "1" * 99})) <= 200
