"""How far apart two names are: letters changed, missing, added or swapped (Damerau 1964, restricted form)."""

from __future__ import annotations


def edit_distance(left: str, right: str, limit: int) -> int:
    """The optimal string alignment distance of two texts; `limit + 1` as soon as it exceeds `limit`.

    One step is one letter inserted, deleted or replaced, or two neighbours swapped.
    """
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before_last: list[int] = []
    last = list(range(len(right) + 1))
    for row, letter in enumerate(left, start=1):
        current = [row]
        for column, other in enumerate(right, start=1):
            cost = min(
                last[column] + 1,
                current[column - 1] + 1,
                last[column - 1] + (letter != other),
            )
            if row > 1 and column > 1 and letter == right[column - 2] and left[row - 2] == other:
                cost = min(cost, before_last[column - 2] + 1)
            current.append(cost)
        if min(current) > limit and min(last) > limit:
            return limit + 1
        before_last, last = last, current
    return min(last[-1], limit + 1)
