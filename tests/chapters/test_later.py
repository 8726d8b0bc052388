"""The pages on later models: what they say holds, and their numbers may be changed."""

import re

import numpy as np
import pytest
from book import Changes, run, run_unchanged

CHANGES: dict[str, Changes] = {
    "rope": {"a fast base": {"BASE = 10_000": "BASE = 10"}, "nowhere": {"FAR = 1_000": "FAR = 0"}},
    "mla": {"thin": {"LATENT = 64": "LATENT = 3"}, "one token": {"The dog chased the": ""}},
    "moe": {"one": {"EXPERTS, ACTIVE = 8, 2": "EXPERTS, ACTIVE = 5, 1"}},
}


@pytest.mark.parametrize(
    ("page", "change"), [(page, change) for page in CHANGES for change in CHANGES[page]]
)
def test_chapter_runs_with_other_numbers(page: str, change: str) -> None:
    run(page, CHANGES[page][change], draws=True)


def test_rotations_are_products_of_complex_numbers() -> None:
    page = run_unchanged("rope")
    Q, K, i = page["head"].Q, page["head"].K, np.arange(16)
    turns = np.exp(1j * np.outer(np.arange(8), 10_000 ** (-i / 16)))
    for rows, rotated in ((Q, page["Q"]), (K, page["K"])):
        product = (rows[:, ::2] + 1j * rows[:, 1::2]) * turns
        assert rotated[:, ::2] == pytest.approx(product.real, abs=1e-5)
        assert rotated[:, 1::2] == pytest.approx(product.imag, abs=1e-5)
    assert page["shifted"] == pytest.approx(page["scores"], abs=1e-6)
    products = page["products"]
    for distance in range(8):
        assert np.ptp(np.diagonal(products, distance)) < 1e-5
    assert [f"{products[0, n]:.2f}" for n in (0, 4)] == ["15.10", "12.31"]
    assert (np.diff(products[0]) > 0).any()  # not always less further away


def test_latents_are_enough() -> None:
    page = run_unchanged("mla")
    attention = page["attention"]
    assert (page["n_kept"], page["n_full"]) == (64, 256)
    assert page["context"] == pytest.approx(page["expanded"].context, abs=1e-4)
    thin = page["C"] @ page["W_up"]  # the nearest of rank 64 to X [W_K W_V], by its own SVD
    full = np.hstack([page["W_K"], page["W_V"]])
    U, sizes, Vt = np.linalg.svd(full)
    assert thin == pytest.approx(page["X"] @ (U[:, :64] * sizes[:64]) @ Vt[:64], abs=1e-4)
    changes = np.array([*page["changes"].values()])
    assert changes[0] == pytest.approx([0, 0], abs=1e-4)  # as wide as X
    assert (np.diff(changes, axis=0) > 0).all()
    assert np.allclose(run("mla", {"LATENT = 64": "LATENT = 128"})["weights"], attention.weights)


def test_an_mlp_is_a_sum_of_experts() -> None:
    page = run_unchanged("moe")
    assert page["outputs"].sum(axis=0) + page["mlp"].b_2 == pytest.approx(
        page["mlp"].output, abs=1e-4
    )
    assert (page["is_active"].sum(axis=1) == 2).all()
    assert ((page["gates"] > 0) <= page["is_active"]).all()
    assert page["gates"].sum(axis=1) == pytest.approx(1)
    longest = np.sort(page["lengths"], axis=1)[:, -2:]
    assert (
        page["lengths"][page["is_active"]].reshape(-1, 2).sum(axis=1) == longest.sum(axis=1)
    ).all()
    errors = np.array([*page["errors"].values()])[:, 1]
    assert (np.diff(errors) < 0).all()
    assert errors[-1] < 1e-5
    assert re.search(r"tokens for each expert: \[1, 1, 3", page.printed)
