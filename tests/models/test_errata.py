"""The errata page: every right form is right, and every printed one is not."""

import pytest

from errata import LECTURES

ALL = [erratum for chapters in LECTURES.values() for errata in chapters.values() for erratum in errata]
SHOWN = [erratum for erratum in ALL if erratum.shown is not None]


@pytest.mark.parametrize("erratum", SHOWN, ids=lambda erratum: erratum.label)
def test_the_right_form_is_right_and_the_printed_one_is_not(erratum) -> None:
    shown = erratum.shown()
    assert abs(shown.right - shown.truth) <= shown.tolerance
    assert not abs(shown.printed - shown.truth) <= 10 * shown.tolerance


def test_labels_are_given_once() -> None:
    labels = [erratum.label for erratum in ALL]
    assert len(labels) == len(set(labels))
