"""A token on the command line does not stay there."""

import pytest

from ckptguard_workers.command import words_without_token


@pytest.mark.parametrize("given", [["--token", "ckg_x"], ["--token=ckg_x"]])
def test_no_word_of_the_new_command_line_holds_the_token(given: list[str]) -> None:
    words = words_without_token(["-m", "ckptguard_workers", "--url", "http://h", *given, "--store", "a=/b"])
    assert words == ["-m", "ckptguard_workers", "--url", "http://h", "--store", "a=/b"]


def test_a_token_file_stays() -> None:
    words = ["worker", "--token-file", "/run/token"]
    assert words_without_token(words) == words
