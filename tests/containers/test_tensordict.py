"""Tensordicts in memory: entries, rows, derived tensordicts, comparison, locks."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

import tdview
from tdview import KeyMissingError, LockedError, NonTensorData, NonTensorStack, TensorDict


@pytest.fixture
def td():
    return TensorDict(
        obs=torch.arange(12.0).view(3, 4),
        next={"reward": torch.ones(3, 1), "note": "n"},
        label="hi",
        tags=["a", "b", "c"],
        batch_size=[3],
    )


def test_construction_by_dict_and_keyword_is_the_same():
    one = TensorDict({"a": torch.ones(2), ("n", "b"): torch.zeros(2)}, batch_size=[2])
    two = TensorDict(a=torch.ones(2), n=TensorDict(b=torch.zeros(2), batch_size=[2]), batch_size=[2])
    assert (one == two).all()
    assert list(one.keys(True)) == ["a", ("n", "b"), "n"]


def test_values_become_tensors_or_non_tensor_data():
    values = {"array": np.arange(2), "numbers": [1, 2], "text": "x", "none": None, "s": {1}, "d": {"k": 1}}
    td = TensorDict(values, i=1, f=2.5, b=True, pair=(1, 2), parts=[torch.ones(2)] * 2, words=["a", 1], c=1j)
    kinds = {key: type(value).__name__ for key, value in td.items()}
    assert kinds == {
        **dict.fromkeys(("i", "f", "b", "array", "numbers", "pair", "parts"), "Tensor"),
        **dict.fromkeys(("text", "none", "s", "c"), "NonTensorData"),
        "words": "NonTensorStack",
        "d": "TensorDict",
    }
    assert td["text"] == "x"
    assert td["none"] is None
    assert td["d", "k"].item() == 1


@pytest.mark.parametrize("value", [torch.ones(2), torch.ones(4, 3), 1, TensorDict(batch_size=[2]), np.ones(2)])
def test_value_of_another_batch_size_is_refused(value):
    td = TensorDict(batch_size=[3])
    with pytest.raises(RuntimeError, match="batch size"):
        td["a"] = value
    assert list(td.keys()) == []


@pytest.mark.parametrize("key", [1, (), ("a", 1), None, ("a", ())])
def test_key_that_is_no_nested_key_is_refused(key):
    with pytest.raises(KeyError):
        TensorDict().set(key, 1)


def test_names_are_given_to_nested_levels_and_checked():
    td = TensorDict(a={"b": torch.zeros(2, 3)}, batch_size=[2], names=["time"])
    assert td["a"].names == ["time"]
    with pytest.raises(ValueError, match="names"):
        td.names = ["x", "y"]
    with pytest.raises(ValueError, match="names"):
        TensorDict(batch_size=[1, 1], names=["x", "x"])


def test_reading_unwraps_values_and_get_does_not(td):
    assert td["label"] == "hi"
    assert td["tags"] == ["a", "b", "c"]
    assert isinstance(td.get("label"), NonTensorData)
    assert isinstance(td.get("tags"), NonTensorStack)
    assert td.get_non_tensor("label") == "hi"
    assert td.get("missing") is None
    assert td.get(("next", "missing"), 5) == 5
    with pytest.raises(KeyMissingError):
        td["missing"]
    with pytest.raises(KeyError):
        td["next", "missing"]
    with pytest.raises(KeyMissingError):
        td["obs", "below"]


def test_keys_nested_leaves_sorted_and_contained(td):
    assert list(td.keys()) == ["obs", "next", "label", "tags"]
    assert list(td.keys(True, True)) == ["obs", ("next", "reward")]
    assert list(td.keys(True, sort=True)) == ["label", "next", ("next", "note"), ("next", "reward"), "obs", "tags"]
    assert ("next", "reward") in td.keys(True)
    assert ("next", "reward") not in td.keys()  # noqa: SIM118  the view without nested keys
    assert "next" in td
    assert ("next", "reward") in td
    assert td.keys() == {"obs", "next", "label", "tags"}
    assert len(td.keys(True)) == 6
    assert [key for key, _ in td.items(True, True)] == ["obs", ("next", "reward")]
    assert len(list(td.values(True, True))) == 2
    assert list(td.keys(is_leaf=lambda kind: kind is NonTensorData, leaves_only=True)) == ["label"]


@pytest.mark.parametrize(
    ("index", "size"),
    [(0, []), (-1, []), (slice(1), [1]), (..., [3]), (None, [1, 3]), ([0, 2], [2]), (torch.tensor([1, 1]), [2]),
     (torch.tensor([True, False, True]), [2]), (np.array([0, 1]), [2]), (range(2), [2]), ((slice(None),), [3]),
     (torch.tensor(1), []), (torch.tensor([[0, 1]]), [1, 2])],
)  # fmt: skip
def test_rows_are_indexed_as_by_torch(td, index, size):
    part = td[index]
    assert list(part.batch_size) == size
    assert torch.equal(part["obs"], td["obs"][list(index) if isinstance(index, range) else index])
    assert part["next"].batch_size == part.batch_size
    assert part["label"] == "hi"


def test_rows_of_values_follow_the_index(td):
    assert td[1]["tags"] == "b"
    assert td[[2, 0]]["tags"] == ["c", "a"]
    with pytest.raises(IndexError):
        td[3]
    with pytest.raises(IndexError):
        td[0, 0]


def test_rows_are_views_and_can_be_assigned(td):
    td[0]["obs"].zero_()
    assert td["obs"][0].sum() == 0
    td[1] = TensorDict(obs=torch.full((4,), 7.0), next={"reward": torch.zeros(1), "note": "n"}, label="hi", tags="z")
    assert td["obs"][1].tolist() == [7.0] * 4
    assert td["tags"] == ["a", "z", "c"]
    td[2] = {"obs": 0.0, "next": {"reward": 5.0, "note": "m"}, "label": "new", "tags": "c"}
    assert td["label"] == ["hi", "hi", "new"]
    assert td["next", "note"] == ["n", "n", "m"]
    assert td["next", "reward"].view(-1).tolist() == [1.0, 0.0, 5.0]
    with pytest.raises(KeyMissingError):
        td[0] = {"obs": 0.0}
    numbers = TensorDict(a=torch.ones(3), batch_size=[3])
    numbers[1] = 5
    assert numbers["a"].tolist() == [1, 5, 1]


def test_set_update_pop_delete_and_rename(td):
    td["new", "deep"] = torch.ones(3)
    assert td["new", "deep"].sum() == 3
    td.update({"next": {"reward": torch.zeros(3, 1)}})
    assert td["next", "reward"].sum() == 0
    assert td["next", "note"] == "n"
    assert td.pop("label") == "hi"
    assert td.pop("label", None) is None
    with pytest.raises(KeyMissingError):
        td.pop("label")
    del td["next", "note"]
    assert ("next", "note") not in td
    td.rename_key_("obs", "observation")
    assert "obs" not in td
    assert td.setdefault("q", torch.ones(3)).sum() == 3
    assert td.set_non_tensor("w", 3)["w"] == 3
    with pytest.raises(KeyError):
        td.set(("observation", "x"), torch.ones(3))
    with pytest.raises(LockedError):
        td.clone().lock_().clear()
    assert td.clear().is_empty()


def test_in_place_writes_keep_the_tensors(td):
    obs = td["obs"]
    td.set_("obs", torch.zeros(3, 4))
    assert td["obs"] is obs
    assert obs.sum() == 0
    td.update_({"obs": torch.ones(3, 4), "next": {"reward": torch.zeros(3, 1)}, "label": "other"})
    assert obs.sum() == 12
    assert td["label"] == "other"
    with pytest.raises(KeyMissingError):
        td.update_({"obs": torch.zeros(3, 4), "missing": torch.zeros(3)})
    assert obs.sum() == 12
    td.zero_()
    assert obs.sum() == 0
    td.fill_("obs", 2.0)
    assert obs.sum() == 24


def test_lock_forbids_structure_and_allows_values(td):
    td.lock_()
    assert td["next"].is_locked
    for change in (
        lambda: td.set("a", torch.ones(3)),
        lambda: td.set("obs", torch.ones(3, 4)),
        lambda: td.del_("obs"),
        lambda: td["next"].set("a", torch.ones(3)),
        lambda: td.set(("deep", "a"), torch.ones(3)),
        lambda: td["next"].unlock_(),
    ):
        with pytest.raises(LockedError):
            change()
    td.set_("obs", torch.zeros(3, 4))
    td[0] = td[1]
    td["label"] = "changed"
    assert td["label"] == "changed"
    td.unlock_()
    td["next"].set("a", torch.ones(3))


def test_rows_of_single_entries(td):
    td.lock_()
    td.set_at_("obs", 0.0, 0).set_at_(("next", "reward"), 5.0, slice(1, 3)).set_at_("tags", "z", 1)
    assert td["obs"][0].sum() == 0
    assert td.get_at(("next", "reward"), 2).item() == 5
    assert td.get_at("tags", 1) == "z"
    td.update_at_({"obs": torch.ones(4), "next": {"reward": torch.zeros(1)}}, 2)
    assert td["obs"][2].tolist() == [1.0] * 4
    assert td["next", "reward"][2] == 0
    with pytest.raises(KeyMissingError):
        td.update_at_({"obs": torch.zeros(4), "missing": 1}, 0)
    assert td["tags"] == ["a", "z", "c"]


def test_lock_can_be_lifted_for_a_block(td):
    td.lock_()
    with td.unlock_() as open_td:
        open_td["new"] = torch.ones(3)
    assert td.is_locked
    with td.unlock_().lock_():
        assert td.is_locked
    assert not td.is_locked


def test_derived_tensordicts(td):
    assert list(td.select("obs", ("next", "reward")).keys(True)) == ["obs", ("next", "reward"), "next"]
    assert list(td.exclude("obs", ("next", "note"), "label", "missing").keys(True)) == [
        ("next", "reward"), "next", "tags",
    ]  # fmt: skip
    assert td.select("obs")["obs"] is td["obs"]
    with pytest.raises(KeyMissingError):
        td.select("missing")
    assert list(td.select("missing", strict=False).keys()) == []
    copied = td.clone()
    copied["obs"].zero_()
    assert td["obs"].sum() > 0
    assert td.clone(recurse=False)["obs"] is td["obs"]
    assert td.to(torch.float64)["obs"].dtype == torch.float64
    assert td.to("meta")["next", "reward"].device.type == "meta"
    assert td.apply(lambda leaf: leaf + 1)["next", "reward"].sum() == 6
    assert list(td.flatten_keys().keys()) == ["obs", "next.reward", "next.note", "label", "tags"]
    assert (td.flatten_keys().unflatten_keys() == td).all()
    assert td.empty().is_empty()
    assert td.bytes() == 12 * 4 + 3 * 4
    plain = td.to_dict()
    assert plain["next"]["note"] == "n"
    assert plain["tags"] == ["a", "b", "c"]


def test_shape_operations(td):
    assert td.unsqueeze(0)["next", "reward"].shape == (1, 3, 1)
    assert td.unsqueeze(-1).batch_size == (3, 1)
    assert td.unsqueeze(0).squeeze(0).batch_size == (3,)
    assert td.view(3, 1)["obs"].shape == (3, 1, 4)
    assert td.reshape(-1, 3)["next", "reward"].shape == (1, 3, 1)
    assert td.expand(2, 3)["obs"].shape == (2, 3, 4)
    assert [part["tags"] for part in td.unbind(0)] == ["a", "b", "c"]
    assert [len(part) for part in td.split(2)] == [2, 1]
    assert [len(part) for part in td.split([1, 2])] == [1, 2]
    assert len(td.chunk(2)) == 2
    assert [row["tags"] for row in td] == ["a", "b", "c"]
    two = TensorDict(a=torch.arange(6).view(2, 3), batch_size=[2, 3], names=["x", "y"])
    assert two.permute(1, 0).names == ["y", "x"]
    assert two.transpose(0, 1)["a"].tolist() == two["a"].T.tolist()
    assert two.flatten()["a"].tolist() == list(range(6))
    assert two[:, 0].names == ["x"]
    assert two[..., 0].batch_size == (2,)
    assert two[None].names == [None, "x", "y"]


def test_stack_and_cat(td):
    both = torch.stack([td, td], 1)
    assert both.batch_size == (3, 2)
    assert both["tags"] == [["a", "a"], ["b", "b"], ["c", "c"]]
    assert both["label"] == [["hi", "hi"]] * 3
    joined = torch.cat([td, td])
    assert joined.batch_size == (6,)
    assert joined["tags"] == ["a", "b", "c"] * 2
    assert joined["label"] == "hi"
    assert TensorDict.stack([td, td]).batch_size == (2, 3)
    assert tdview.cat([td, td], 0)["next", "reward"].shape == (6, 1)
    with pytest.raises(KeyMissingError):
        torch.stack([td, td.exclude("obs")])
    with pytest.raises(ValueError, match="batch size"):
        torch.stack([td, td[:2]])


def test_comparison(td):
    other = td.clone()
    assert (td == other).all()
    other["obs"][0, 0] = -1
    assert not (td == other).all()
    assert (td == other).any()
    assert (td != other)["obs"].sum() == 1
    assert (td == td.to_dict()).all()
    assert (td["next"].select("reward") == 1).all()
    assert (td.select("obs") >= 0).all()
    assert (td.select("obs") == other.select("obs")).all(dim=0)["obs"].tolist() == [False, True, True, True]
    with pytest.raises(KeyMissingError):
        td == td.exclude("obs")  # noqa: B015
    with pytest.raises(RuntimeError):
        bool(td)


def test_batch_size_can_be_changed_to_what_every_entry_starts_with(td):
    wide = TensorDict(a=torch.zeros(3, 2), b={"c": torch.zeros(3, 2)}, batch_size=[3])
    wide.batch_size = [3, 2]
    assert wide["b"].batch_size == (3, 2)
    with pytest.raises(RuntimeError):
        wide.batch_size = [4]
    assert TensorDict(a=torch.zeros(3, 2), b=torch.zeros(3, 1)).auto_batch_size_().batch_size == (3,)


def test_text_shows_keys_dtypes_and_trailing_shapes(td):
    assert repr(td) == (
        "TensorDict(batch_size=[3], fields={\n    label: str,\n    next: {\n        note: str,\n"
        "        reward: float32[1]},\n    obs: float32[4],\n    tags: NonTensorStack})"
    )
    assert repr(TensorDict({"a\nb": 1})) == "TensorDict(batch_size=[], fields={'a\\nb': int64[]})"


def test_pickle_keeps_everything(td):
    again = pickle.loads(pickle.dumps(td))
    assert (again == td).all()
    assert again.batch_size == td.batch_size
