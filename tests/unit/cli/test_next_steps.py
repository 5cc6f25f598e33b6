"""What to do next, and the command in it."""

import pytest

from ckptguard.cli.next_steps import next_command_of, next_step_of
from ckptguard.model.finding import FindingCode

TARGET = "/data/my run/step-7"
HOSTILE = "a: ckptguard release 'x'; rm -rf {folder}"


@pytest.mark.parametrize("code", FindingCode)
@pytest.mark.parametrize("file", [None, "__0_0.distcp", HOSTILE])
def test_a_sentence_ends_with_its_command_and_no_name_is_taken_for_one(
    code: FindingCode, file: str | None
) -> None:
    sentence = next_step_of(code, target=TARGET, file=file, observed=HOSTILE)
    command = next_command_of(code, target=TARGET, file=file, observed=HOSTILE)
    assert sentence is not None
    plain = next_command_of(code, target=TARGET)
    assert (command is None) == (plain is None), "whether there is one depends on the code alone"
    if command is not None and plain is not None:
        assert sentence.endswith(f": {command}")
        assert command.split()[:2] == plain.split()[:2]


def test_the_command_is_one_to_copy() -> None:
    assert next_command_of("crc_mismatch", target=TARGET) == "ckptguard check '/data/my run' --step all"
    assert next_command_of("unreferenced_file", target=TARGET, file=HOSTILE) is None
    assert next_command_of("of a later version", target=TARGET) is None
