"""What the strategies draw obeys the laws that the product holds checkpoints to."""

from math import prod

from hypothesis import given, settings

from ckptguard.checks.coverage import check_coverage
from ckptguard.model.finding import Finding, Severity
from ckptguard.model.layout import Layout, Tensor
from ckptguard.testing import strategies


@given(tensor=strategies.tensors())
def test_slices_of_a_drawn_tensor_have_its_volume(tensor: Tensor) -> None:
    assert sum(prod(part.sizes) for part in tensor.slices) == prod(tensor.shape)


@settings(max_examples=60)
@given(layout=strategies.layouts())
def test_a_drawn_layout_is_whole(layout: Layout) -> None:
    assert check_coverage((layout,)) == ()


@given(finding=strategies.findings(severity=Severity.ERROR))
def test_a_drawn_error_has_a_basis(finding: Finding) -> None:
    assert finding.basis is not None
