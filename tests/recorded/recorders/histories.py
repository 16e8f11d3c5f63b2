"""Arrivals, generated from a seed: (microseconds since the epoch, key, units)."""

import random

START = 1_795_236_060_000_000


def history(seed, window, limit, grid, keys=2, units=1, steps=160):
    """Arrivals at whole multiples of `grid`, bursts of equal instants among them, and such as come right at, before and after
    what matters to a quota of `limit` units a `window`: its emission interval, its edges, its length after an earlier arrival."""
    chance = random.Random(seed)
    now, arrivals = START + -START % grid, []
    for _ in range(steps):
        key = chance.randrange(keys)
        now = max(now, next_instant(chance, now, window, limit, grid, arrivals, key))
        arrivals.append((now, "abc"[key], chance.randint(1, units)))
    return arrivals


def next_instant(chance, now, window, limit, grid, arrivals, key):
    interval = max(window // limit, grid)
    edge = now + window - now % window
    nearly = chance.choice([-grid, 0, 0, grid])
    earlier = [time + window for time, name, _ in arrivals if name == "abc"[key] and time + window >= now]
    instants = [
        (400, now),
        (300, now + chance.randint(0, interval)),
        (120, now + interval + nearly),
        (50, edge + nearly),
        (10, now + window + nearly),
        (80, (chance.choice(earlier) if earlier else now) + nearly),
        (30, now + chance.randint(0, window // 2)),
        (10, now + chance.randint(2 * window, 5 * window)),
    ]
    weights, times = zip(*instants)
    instant = chance.choices(times, weights)[0]
    return instant - instant % grid
