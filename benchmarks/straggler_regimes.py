"""How often is a change seen in a series that has none, how often is one found, and how exactly?

    python benchmarks/straggler_regimes.py            # test seeds, about 2 minutes on one core
    python benchmarks/straggler_regimes.py --quick    # a tenth of the runs
    python benchmarks/straggler_regimes.py --development   # the seeds that thresholds were chosen on

Step times are simulated: Student's t with 3 degrees of freedom, autocorrelation 0.5. Real logs have other noise; the
numbers say what the rule does on noise of this kind, no more. Thresholds are constants of the package and were frozen
before the test seeds were used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from straggler.step_series import flat, shape, slower

DEVELOPMENT_SEED = 0
TEST_SEED = 20_000_000

# Each scatter has its own series, so that rows of the table are independent.
SEEDS_APART = 100_000

FLAT_LENGTHS = (12, 20, 30, 50, 100, 200, 500, 1000, 2000, 5000)
SIGMAS = (0.02, 0.05)
FLAT_RUNS = 2000
FLAT_RUNS_LONG = 1000

# (values, first slow value, one past the last)
CHANGES = ((50, 25, None), (200, 100, None), (1000, 600, None), (5000, 3000, None), (5000, 2000, 2200))
SIZES = (0.05, 0.10, 0.30)
CHANGE_RUNS = 200

# 95 % of a normal distribution.
Z = 1.96


def wilson(hits: int, runs: int) -> tuple[float, float]:
    """95 % interval of a share (E. B. Wilson, 1927)."""
    share = hits / runs
    middle = (share + Z**2 / (2 * runs)) / (1 + Z**2 / runs)
    half = Z / (1 + Z**2 / runs) * (share * (1 - share) / runs + Z**2 / (4 * runs**2)) ** 0.5
    return max(0.0, middle - half), min(1.0, middle + half)


def flat_rows(first_seed: int, scale: float) -> Iterator[str]:
    """Flat series: how many show a slow spell, a drift, a schedule or a rhythm."""
    yield "| values | sigma | runs | slow spell or drift | 95 % | schedule | rhythm |"
    yield "|---|---|---|---|---|---|---|"
    for num in FLAT_LENGTHS:
        for nth, sigma in enumerate(SIGMAS):
            first = first_seed + nth * SEEDS_APART
            runs = max(20, int((FLAT_RUNS if num <= 200 else FLAT_RUNS_LONG) * scale))
            shapes = [shape(flat(first + at, num, sigma=sigma)) for at in range(runs)]
            hits = sum(
                bool(each.spells) or any(level.drift >= 1.03 for level in each.levels) for each in shapes
            )
            low, high = wilson(hits, runs)
            schedules, rhythms = (
                sum(bool(each.schedule) for each in shapes),
                sum(bool(each.rhythm) for each in shapes),
            )
            yield f"| {num} | {sigma:.0%} | {runs} | {hits} | {low:.2%} to {high:.2%} | {schedules} | {rhythms} |"


def change_rows(first_seed: int, scale: float) -> Iterator[str]:
    """Series that become slower: how many are found near the place, and how far off the onset is.

    Near: within 20 values, or a twentieth of the series.
    """
    yield "| values | slow from | to | sigma | slower by | runs | found | 95 % | within 10 values | onset off, 95th percentile |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for num, start, end in CHANGES:
        for sigma in SIGMAS:
            for by in SIZES:
                runs = max(20, int(CHANGE_RUNS * scale))
                off = []
                for at in range(runs):
                    spells = shape(slower(flat(first_seed + at, num, sigma=sigma), by, start, end)).spells
                    near = [abs(each.start - start) for each in spells]
                    if near and min(near) <= max(20, num // 20):
                        off.append(min(near))
                low, high = wilson(len(off), runs)
                within = f"{np.mean(np.array(off) <= 10):.0%}" if off else "-"
                exact = f"{np.quantile(off, 0.95):.0f}" if off else "-"
                yield (
                    f"| {num} | {start} | {end or 'end'} | {sigma:.0%} | {by:.0%} | {runs} | {len(off)} | "
                    f"{low:.0%} to {high:.0%} | {within} | {exact} |"
                )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--development", action="store_true", help="seeds that thresholds were chosen on")
    options = parser.parse_args()
    seed = DEVELOPMENT_SEED if options.development else TEST_SEED
    scale = 0.1 if options.quick else 1.0
    for rows in (flat_rows(seed, scale), change_rows(seed, scale)):
        for row in rows:
            print(row, flush=True)
        print()


if __name__ == "__main__":
    main()
