"""The limiters in Python: functions from options and arrivals to an answer for each arrival, which is

    (admit | delay | refuse, units left or None, microseconds of delay or until a retry or None)

or None for one that is not made, because definitions differ there. Where a library counts in seconds, a second of its
clock is a millisecond of ours, so that its floating-point numbers are exact."""

import asyncio
import datetime
import functools
import threading
import time

now = 0.0  # what every clock of the libraries says


def set_clock(micros, unit):
    global now
    now = micros / unit


def with_virtual_clock(subject):
    @functools.wraps(subject)
    def recorded(options, arrivals):
        kept = time.time, time.monotonic, threading.Timer.start
        time.time = time.monotonic = lambda: now
        # `limits` sweeps its memory from a thread, which is not needed, and not at the same virtual time.
        threading.Timer.start = lambda timer: None
        set_clock(arrivals[0][0], 1000)
        try:
            return subject(options, arrivals)
        finally:
            time.time, time.monotonic, threading.Timer.start = kept

    return recorded


def each(arrivals, decide):
    answers = []
    for micros, key, units in arrivals:
        set_clock(micros, 1000)
        answers.append(decide(micros, key, units))
    return answers


def answer(admitted, remaining, wait_ms):
    wait = None if admitted or wait_ms is None else round(wait_ms * 1000)
    return "admit" if admitted else "refuse", remaining, wait


@with_virtual_clock
def limits(options, arrivals):
    import limits as library

    limiter = library.strategies.STRATEGIES[options["strategy"]](library.storage.MemoryStorage())
    item = library.RateLimitItemPerSecond(options["limit"], options["window_ms"])

    def fixed(micros, key, units):
        admitted = limiter.hit(item, key, cost=units)
        reset, remaining = limiter.get_window_stats(item, key)
        return answer(admitted, remaining, reset - now)

    def moving(micros, key, units):
        # hit() counts a unit that is exactly a window old, get_window_stats() does not.
        old = {entry.atime for entry in limiter.storage.events.get(item.key_for(key), [])}
        is_at_the_end = now - options["window_ms"] in old
        admitted = limiter.hit(item, key, cost=units)
        return answer(admitted, None if is_at_the_end else limiter.get_window_stats(item, key)[1], None)

    def sliding(micros, key, units):
        previous, left, current, _ = limiter.storage.get_sliding_window(item.key_for(key), item.get_expiry())
        used = previous * left / item.get_expiry() + current
        # A part of a unit counts here, and not there.
        if int(used) + units <= options["limit"] < used + units:
            return None
        admitted = limiter.hit(item, key, cost=units)
        part = used % 1 > 0
        return answer(admitted, limiter.get_window_stats(item, key)[1] - part, None)

    decide = {"fixed-window": fixed, "moving-window": moving, "sliding-window-counter": sliding}
    return each(arrivals, decide[options["strategy"]])


@with_virtual_clock
def throttled(options, arrivals):
    import throttled as library

    window = datetime.timedelta(seconds=options["window_ms"])
    quota = library.rate_limiter.per_duration(window, options["limit"], options.get("burst"))
    limiter = library.Throttled(using=options["using"], quota=quota, store=library.MemoryStore())

    def decide(micros, key, units):
        result = limiter.limit(key, cost=units)
        return answer(not result.limited, result.state.remaining, result.state.retry_after)

    return each(arrivals, decide)


@with_virtual_clock
def pyrate(options, arrivals):
    from pyrate_limiter.abstracts import algorithm
    from pyrate_limiter.abstracts.rate import Rate, RateItem
    from pyrate_limiter.buckets.in_memory_bucket import InMemoryBucket
    from pyrate_limiter.buckets.state_bucket import StateBucket
    from pyrate_limiter.clocks import AbstractClock

    class Clock(AbstractClock):
        def now(self):
            return int(now)

    kind = getattr(algorithm, options["algorithm"])
    most = options.get("burst", options["limit"])
    rate = Rate(options["limit"], options["window_ms"], burst=most)

    def bucket():
        if issubclass(kind, algorithm.StateAlgorithm):
            return StateBucket([rate], algorithm=kind(), clock=Clock())
        return InMemoryBucket([rate], algorithm=kind())

    buckets = {key: bucket() for _, key, _ in arrivals}

    def decide(micros, key, units):
        item, held = RateItem(key, int(now), units), buckets[key]
        held.leak(int(now))
        admitted = held.put(item)
        wait = None if admitted else held.waiting(item)
        return answer(admitted, most - held.count(), wait)

    return each(arrivals, decide)


def aiolimiter(options, arrivals):
    import aiolimiter as library

    class Loop(asyncio.SelectorEventLoop):
        """A loop whose time passes when it has nothing to do."""

        passed = 0.0

        def time(self):
            return self.passed

    loop = Loop()
    select = loop._selector.select

    def pass_time(timeout):
        loop.passed += timeout or 0
        return select(0)

    loop._selector.select = pass_time
    first, answers = arrivals[0][0], [None] * len(arrivals)

    async def ask(limiter, place):
        arrived = loop.time()
        await limiter.acquire()
        waited = round((loop.time() - arrived) * 1000)
        answers[place] = ("delay" if waited else "admit", None, waited or None)

    async def all():
        limiters = {key: library.AsyncLimiter(options["limit"], options["window_ms"]) for _, key, _ in arrivals}
        tasks = []
        for place, (micros, key, _) in enumerate(arrivals):
            at = (micros - first) / 1000
            if at > loop.time():
                await asyncio.sleep(at - loop.time())
            handle = limiters[key]._waker_handle
            # Who comes when somebody's wait ends may be let in before him.
            if handle is None or handle.cancelled() or handle.when() > at:
                tasks.append(asyncio.create_task(ask(limiters[key], place)))
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)

    loop.run_until_complete(all())
    loop.close()
    return answers
