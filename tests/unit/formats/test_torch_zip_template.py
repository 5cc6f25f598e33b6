"""Templates prove only what the generic path would prove."""

import io

import pytest
import torch

from ckptguard.formats.protocol import ItemReport
from ckptguard.formats.torch_zip import ZipVerifier
from ckptguard.formats.torch_zip_template import TemplateCache
from ckptguard.model.layout import Item, ItemKind, Slice

pytestmark = pytest.mark.torch


def saved(value: object) -> memoryview:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return memoryview(buffer.getvalue())


def verify(view: memoryview) -> ItemReport:
    verifier = ZipVerifier(len(view))
    for _ in verifier.feed(view):
        pass
    return verifier.finish()


def item_of(view: memoryview, tensor: torch.Tensor) -> Item:
    whole = Slice((0,) * tensor.dim(), tuple(tensor.shape))
    return Item("w", ItemKind.TENSOR, 0, len(view), str(tensor.dtype).removeprefix("torch."), whole)


def learned(tensor: torch.Tensor, cache: TemplateCache) -> tuple[memoryview, Item]:
    view = saved(tensor)
    item = item_of(view, tensor)
    cache.learn(view, item, verify(view))
    return view, item


def test_other_values_of_the_same_kind_are_proven() -> None:
    cache = TemplateCache()
    learned(torch.arange(8.0), cache)
    other = torch.arange(8.0) * 3 - 1
    view = saved(other)
    proven = cache.verify(view, item_of(view, other))
    assert proven is not None
    payload, stored = proven
    assert payload == other.numpy().tobytes()
    assert stored == verify(view).tensor


def test_nothing_is_proven_before_something_was_learned() -> None:
    view = saved(torch.ones(2))
    assert TemplateCache().verify(view, item_of(view, torch.ones(2))) is None


def test_another_kind_is_not_proven() -> None:
    cache = TemplateCache()
    view, item = learned(torch.arange(8.0), cache)
    for other in (
        item._replace(dtype="int32"),
        item._replace(slice=Slice((0,), (4,))),
        item._replace(length_bytes=item.length_bytes + 1),
    ):
        assert cache.verify(view, other) is None
    assert cache.verify(view[:-1], item) is None


def test_another_stride_of_the_same_size_is_not_taken_for_the_learned_one() -> None:
    cache = TemplateCache()
    learned(torch.arange(16.0).view(4, 4), cache)
    transposed = torch.arange(16.0).view(4, 4).t()
    view = saved(transposed)
    item = item_of(view, transposed)
    assert cache.verify(view, item) is None
    cache.learn(view, item, verify(view))
    proven = cache.verify(view, item)
    assert proven is not None
    assert proven[1].stride == (1, 4)


def test_content_that_begins_like_a_descriptor_takes_the_generic_path() -> None:
    alike = torch.frombuffer(bytearray(b"PK\x07\x08" + bytes(28)), dtype=torch.uint8)
    cache = TemplateCache()
    learned(torch.zeros(32, dtype=torch.uint8), cache)
    view = saved(alike)
    item = item_of(view, alike)
    assert cache.verify(view, item) is None
    assert cache.learn(view, item, verify(view)) == alike.numpy().tobytes()
    assert verify(view).problems == ()


@pytest.mark.parametrize("tensor", [torch.empty(0), torch.empty(0, 3)])
def test_an_empty_tensor_teaches_nothing(tensor: torch.Tensor) -> None:
    cache = TemplateCache()
    view = saved(tensor)
    item = item_of(view, tensor)
    assert len(cache.learn(view, item, verify(view))) == 0
    assert cache.verify(view, item) is None


def test_the_payload_of_a_large_item_is_returned_and_not_learned() -> None:
    tensor = torch.arange(1 << 19)
    view = saved(tensor)
    item, cache = item_of(view, tensor), TemplateCache()
    assert cache.learn(view, item, verify(view)) == tensor.numpy().tobytes()
    assert cache.verify(view, item) is None


def test_an_unsound_report_teaches_nothing() -> None:
    damaged = bytearray(saved(torch.ones(4)))
    damaged[8] ^= 1
    view = memoryview(damaged)
    with pytest.raises(ValueError, match="sound"):
        TemplateCache().learn(view, item_of(view, torch.ones(4)), verify(view))


def test_the_cache_is_bounded() -> None:
    cache = TemplateCache(max_templates=3)
    for size in range(1, 12):
        view, item = learned(torch.ones(size), cache)
        assert cache.verify(view, item) is not None
        assert len(cache._templates) <= 3
