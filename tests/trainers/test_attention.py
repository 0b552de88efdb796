import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mlagents.trainers.networks.attention import (
    N_HEADS,
    EntityAttention,
    EntityEncoder,
    SelfAttention,
    is_entity,
    without_padding,
)
from samples import assert_normal

SIZE = 8


def attention(size: int = SIZE) -> SelfAttention:
    """Make an attention of random weights and biases, large enough to have its favorites."""
    torch.manual_seed(0)
    module = SelfAttention(size)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=2 / math.sqrt(size))
    return module


def layer_norm(x: NDArray[np.float64]) -> NDArray[np.float64]:
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def test_two_entities_by_hand() -> None:
    # Queries and keys of zero: everyone looks at everyone alike. Values and output are identities.
    # Both embeddings have mean 0 and deviation 1 already; their mean is (1, 0, 0, -1).
    # Added: (2, -1, 1, -2) and (2, 1, -1, -2), of deviation sqrt(10 / 4) = 1.581139.
    # Normalized and averaged: (2, 0, 0, -2) / 1.581139.
    module = SelfAttention(4)
    with torch.no_grad():
        module.queries_keys_values.weight.zero_()
        module.queries_keys_values.weight[8:] = torch.eye(4)
        module.output.weight.copy_(torch.eye(4))
    embedded = torch.tensor([[[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]]])
    found = module(embedded, torch.tensor([[True, True]]))
    torch.testing.assert_close(
        found, torch.tensor([[1.264911, 0.0, 0.0, -1.264911]]), rtol=0, atol=1e-4
    )
    # Alone, the first sees itself only: doubled and normalized, it is itself.
    alone = module(embedded, torch.tensor([[True, False]]))
    torch.testing.assert_close(alone, embedded[:, 0], rtol=0, atol=1e-4)
    nobody = module(embedded, torch.tensor([[False, False]]))
    torch.testing.assert_close(nobody, torch.zeros(1, 4), rtol=0, atol=0)


def test_attention_equals_numpy_entity_by_entity() -> None:
    module = attention()
    rng = np.random.default_rng(0)
    embedded = rng.normal(size=(5, SIZE)).astype(np.float32)
    found = module(torch.from_numpy(embedded)[None], torch.ones(1, 5, dtype=torch.bool))

    weights = {name: p.detach().double().numpy() for name, p in module.named_parameters()}
    x = layer_norm(embedded.astype(np.float64))
    joint = x @ weights["queries_keys_values.weight"].T + weights["queries_keys_values.bias"]
    queries, keys, values = np.split(joint, 3, axis=1)
    attended = np.zeros((5, SIZE))
    width = SIZE // N_HEADS
    for i in range(5):
        for head in range(N_HEADS):
            part = slice(head * width, (head + 1) * width)
            scores = np.array([queries[i, part] @ keys[j, part] for j in range(5)])
            chances = np.exp(scores / math.sqrt(SIZE))  # the whole size, not that of a head
            attended[i, part] = chances / chances.sum() @ values[:, part]
    x = layer_norm(x + attended @ weights["output.weight"].T + weights["output.bias"])
    np.testing.assert_allclose(found[0].detach(), x.mean(0), atol=1e-5)


@st.composite
def listed(draw: st.DrawFn) -> tuple[torch.Tensor, list[int], int]:
    """Entities, an order of them, and how many places their list has."""
    n_entities = draw(st.integers(1, 6))
    seed = draw(st.integers(0, 1000))
    features = torch.randn(n_entities, 3, generator=torch.Generator().manual_seed(seed))
    order = draw(st.permutations(range(n_entities)))
    return features, order, draw(st.integers(n_entities, 9))


def module_of_lists() -> EntityAttention:
    torch.manual_seed(1)
    module = EntityAttention([3], 2)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return module


LISTS = module_of_lists()


@settings(deadline=None)
@given(listed())
def test_neither_order_nor_places_left_empty_make_a_difference(
    drawn: tuple[torch.Tensor, list[int], int],
) -> None:
    features, order, n_places = drawn
    x_self = torch.tensor([[0.3, -0.7]])
    wanted = LISTS([features[None]], x_self)
    padded = torch.zeros(1, n_places, 3)
    padded[0, n_places - len(order) :] = features[order]  # even before the others
    torch.testing.assert_close(LISTS([padded], x_self), wanted, rtol=0, atol=1e-5)


def test_an_empty_list_gives_zeros_and_no_nan_in_its_gradient() -> None:
    x_self = torch.tensor([[0.3, -0.7]], requires_grad=True)
    found = LISTS([torch.zeros(1, 4, 3)], x_self)
    assert not found.any()
    found.sum().backward()
    assert x_self.grad is not None
    assert not x_self.grad.any()


def test_only_zeros_are_padding_however_small_the_rest() -> None:
    listed = torch.tensor([[[0.0, 0.0], [0.01, 0.0], [0.0, -1e-6], [3.0, 4.0]]])
    assert is_entity(listed).tolist() == [[False, True, True, True]]


def test_places_that_no_list_of_the_batch_fills_are_left_out() -> None:
    lists = torch.zeros(2, 5, 1)
    assert without_padding(lists).shape == (2, 1, 1)
    lists[0, 0] = lists[1, 2] = 1.0
    torch.testing.assert_close(without_padding(lists), lists[:, :3])


def test_an_entity_goes_through_one_layer_with_what_the_agent_knows() -> None:
    torch.manual_seed(0)
    encoder = EntityEncoder(3, 2, 4)
    torch.nn.init.normal_(encoder.dense.bias)
    features, x_self = torch.randn(5, 6, 3), torch.randn(5, 2)
    together = torch.cat([features, x_self[:, None].expand(5, 6, 2)], dim=2)
    torch.testing.assert_close(
        encoder(features, x_self), torch.nn.functional.silu(encoder.dense(together))
    )


def test_lists_share_one_attention() -> None:
    torch.manual_seed(0)
    module = EntityAttention([3, 2], 0)
    first, second = torch.randn(1, 4, 3), torch.randn(1, 2, 2)
    found = module([first, second], None)
    embedded = [
        encoder(batch, None)
        for encoder, batch in zip(module.encoders, (first, second), strict=True)
    ]
    wanted = module.attention(torch.cat(embedded, dim=1), torch.ones(1, 6, dtype=torch.bool))
    torch.testing.assert_close(found, wanted)
    apart = [module.attention(e, torch.ones(1, e.shape[1], dtype=torch.bool)) for e in embedded]
    assert not torch.allclose(found, (4 * apart[0] + 2 * apart[1]) / 6)


def test_all_layers_start_with_the_deviation_of_published_models() -> None:
    torch.manual_seed(0)
    module = EntityAttention([50], 70)
    assert module.encode_self is not None
    layers = [
        *[module.encode_self[0], module.encoders[0].dense],
        *[module.attention.queries_keys_values, module.attention.output],
    ]
    for layer in layers:
        assert_normal(layer.weight.detach().numpy() / math.sqrt(0.125 / 128))
        assert not layer.bias.any()
