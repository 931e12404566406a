"""The matrix of the embedded fact store: exact, and the same wherever in it a row is."""

from __future__ import annotations

import numpy as np

from noosphere.server.storage.facts.vectors import Vectors

DIMENSION = 512
ROWS = 4_099
"""More than a block, and no multiple of what a processor multiplies at once."""


def test_equal_vectors_are_equally_near_in_every_row_and_under_every_filter() -> None:
    chance = np.random.default_rng(1)
    one = chance.standard_normal(DIMENSION).astype(np.float32)
    question = chance.standard_normal(DIMENSION)
    vectors = Vectors(DIMENSION)
    for row in range(ROWS):
        vectors.put(row, one)
    everything = np.ones(2 * ROWS, np.bool_)
    few = np.zeros(2 * ROWS, np.bool_)
    few[[1, 7, 4_097]] = True
    rows, near = vectors.similarities(question.tolist(), everything)
    rows_few, near_few = vectors.similarities(question.tolist(), few)
    assert rows.tolist() == list(range(ROWS))
    assert rows_few.tolist() == [1, 7, 4_097]
    cosine = float(question @ one / np.linalg.norm(question) / np.linalg.norm(one.astype(np.float64)))
    assert {*near.tolist(), *near_few.tolist()} == {round(cosine, 6)}


def test_a_row_that_is_used_again_has_its_new_vector_alone() -> None:
    vectors = Vectors(2)
    everything = np.ones(4, np.bool_)
    vectors.put(1, np.array([3, 0], np.float32))
    vectors.drop(1)
    assert vectors.similarities([1.0, 0.0], everything)[0].tolist() == []
    vectors.put(1, np.array([0, 5], np.float32))
    rows, near = vectors.similarities([1.0, 0.0], everything)
    assert (rows.tolist(), near.tolist()) == ([1], [0.0])
