"""Rank-normalised split R-hat and effective sample sizes of many scalars at once, compiled.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization,
folding, and localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16(2). The
values are arviz's to rounding, but that a single chain has an R-hat too: its two halves are compared. arviz
itself computes one scalar after another in Python, which may take longer than the run.

Draws are arrays (k, chains, n) of k scalars. Every chain is cut into halves; the middle one of an odd number
of draws is in neither of them.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from ..jit import kernel
from .shares import TAILS, count_tails

FEWEST = 4  # draws a chain that these statistics need
_TAIL = 0.05  # probability of each of the two tails
_LAGS = 64  # autocovariances that are summed lag by lag; where more are needed, a Fourier transform is faster
_FLAT = 1e-15  # draws whose range is smaller are a constant
_UNFINISHED = -1.0  # in place of an effective sample size


class Convergence(NamedTuple):
    """What tells whether the chains of k scalars agree, and how much their draws are worth."""

    # (k, 4, 2 chains): in the halves of chains, the two of a chain side by side, mean and variance of the
    # normal scores of the draws' ranks, then those of the ranks of their distances from the median.
    moments: np.ndarray
    ess_bulk: np.ndarray  # (k,)
    ess_tail: np.ndarray
    tail_hits: np.ndarray  # (k, 4, chains) draws of each chain in the tails, see `shares`
    tail_clumps: np.ndarray


def convergence(draws: np.ndarray) -> Convergence:
    """Moments for R-hat and effective sample sizes of draws (k, chains, n); NaN where a draw is NaN."""
    k, chains, n = draws.shape
    if n < FEWEST:
        moments, sizes = np.full((k, 4, 2 * chains), np.nan), np.full((2, k), np.nan)
        return Convergence(moments, *sizes, *np.zeros((2, k, len(TAILS), chains)))
    halves = _halves(draws)
    flat = halves.reshape(k, -1)
    order, ordered = sort(flat)
    tails = count_tails(order, ordered, chains)
    everything = np.sort(draws.reshape(k, -1), axis=1) if n % 2 else ordered
    lower, upper = (quantiles(everything, p) for p in (_TAIL, 1.0 - _TAIL))
    ess_tail = np.minimum(_indicator_size(halves, lower), _indicator_size(halves, upper))
    table, scores = _normal_scores(flat.shape[1]), np.empty(halves.shape)
    _rank(order, ordered, table, scores.reshape(k, -1))
    ess_bulk, mean, var = _effective_size(scores)
    middle = ordered[:, [(flat.shape[1] - 1) // 2, flat.shape[1] // 2]].mean(axis=1)
    places, distances = np.empty_like(order), np.empty(flat.shape)
    _fold(order, ordered, middle, places, distances)
    _rank(places, distances, table, scores.reshape(k, -1))
    moments = np.stack((mean, var, *_centre(scores)), axis=1)
    moments[~np.isfinite(middle), 2:] = np.nan
    unknown = np.isnan(draws).any(axis=(1, 2))
    moments[unknown], ess_bulk[unknown], ess_tail[unknown] = np.nan, np.nan, np.nan
    return Convergence(moments, ess_bulk, ess_tail, *tails)


def r_hat(moments: np.ndarray, n: int, without: int | None = None) -> np.ndarray:
    """R-hat (k,) from what `convergence` gives for chains of n draws; maybe without one chain.

    Ranks are those among all chains in either case, so leaving out a chain costs next to nothing.
    """
    half = n // 2
    chains = np.arange(moments.shape[2] // 2)
    halves = np.repeat(chains != without, 2)
    with np.errstate(all="ignore"):  # a constant has no variance
        between = half * moments[:, ::2, halves].var(axis=2, ddof=1)
        ratio = between / moments[:, 1::2, halves].mean(axis=2)
        bulk, folded = np.sqrt((ratio + half - 1) / half).T
    larger: np.ndarray = np.where(folded > bulk, folded, bulk)  # which is the bulk's where the other is NaN
    return larger


def effective_size(draws: np.ndarray) -> np.ndarray:
    """Effective sample size (k,) for the mean of draws (k, chains, n)."""
    if draws.shape[2] < FEWEST:
        return np.full(len(draws), np.nan)
    return _effective_size(_halves(draws).astype(float))[0]


def mcse_mean(draws: np.ndarray) -> np.ndarray:
    """Monte Carlo standard error (k,) of the mean of draws (k, chains, n)."""
    with np.errstate(invalid="ignore"):  # infinite draws
        sd = draws.reshape(len(draws), -1).std(axis=1, ddof=1)
        return np.asarray(sd / np.sqrt(effective_size(draws)))


def _halves(draws: np.ndarray) -> np.ndarray:
    """Halves of chains (k, 2 chains, n // 2); a view, where n is even."""
    k, chains, n = draws.shape
    if n % 2:
        draws = np.concatenate((draws[..., : n // 2], draws[..., n // 2 + 1 :]), axis=2)
    return draws.reshape(k, 2 * chains, n // 2)


@functools.lru_cache(maxsize=4)  # of draws and of thinned draws
def _normal_scores(n: int) -> np.ndarray:
    """The normal scores of the ranks 1, 1.5, 2, ..., n (2 n - 1,), with Blom's offset."""
    return np.asarray(ndtri((np.arange(2, 2 * n + 1) / 2 - 3 / 8) / (n + 1 / 4)))


def quantiles(ordered: np.ndarray, p: float) -> np.ndarray:
    """The p-quantiles (k,) of ordered draws (k, n), as NumPy has them by default."""
    place = p * (ordered.shape[1] - 1)
    below = int(place)
    with np.errstate(invalid="ignore"):  # infinite draws
        return np.asarray(np.quantile(ordered[:, below : below + 2], place - below, axis=1))


def _effective_size(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effective sample size (k,), means and variances of halves of chains (k, m, n), which are centred."""
    k, m, n = halves.shape
    constant = np.empty(k, np.bool_)
    _find_constants(halves, constant)
    mean, var = _centre(halves)
    between, sizes = mean.var(axis=1, ddof=1), np.empty(k)
    _sum_pairs(halves, between, np.empty((k, min(n, _LAGS))), 0, sizes)
    long = np.flatnonzero(sizes == _UNFINISHED)
    if long.size:
        length = next_fast_len(2 * n, real=True)
        transforms = rfft(halves[long], length, axis=2)
        power = (transforms.real**2 + transforms.imag**2).mean(axis=1)
        covariances = irfft(power, length, axis=1)[:, :n] / n
        rest = np.empty(long.size)
        _sum_pairs(halves[long], between[long], covariances, n, rest)
        sizes[long] = rest
    sizes[constant] = m * n
    return sizes, mean, var


def indicator_size(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Effective sample size (k,) for the share of draws (k, chains, n) up to `limits` (k,)."""
    return _indicator_size(_halves(draws), limits)


def _indicator_size(halves: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The same from halves of chains (k, m, n)."""
    below = np.less_equal(halves, limits[:, None, None], out=np.empty(halves.shape))
    return _effective_size(below)[0]


def _centre(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Subtract the mean of each half of (k, m, n); returns the means and variances (k, m)."""
    mean, var = np.empty((2, *halves.shape[:2]))
    _subtract_means(halves, mean, var)
    return mean, var


def sort(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of each row of (k, n) and its values in that order, both (k, n).

    Numbers are sorted as integers of the same order, whose last bits are replaced by the place in the row,
    which takes half the time of NumPy's `argsort`. Neighbours that differ in those bits alone change places
    after it; where there are many of them, as in a variable that hardly varies, `argsort` does it.
    """
    keys = np.empty(values.shape, np.uint64)
    bits = max(1, (values.shape[1] - 1).bit_length())
    _write_keys(values, keys, np.uint64(bits))
    keys.sort(axis=1)
    order, ordered = np.empty(values.shape, np.int64), np.empty(values.shape)
    sorted_ = np.empty(len(values), np.bool_)
    _read_keys(keys, values, np.uint64(bits), order, ordered, sorted_)
    for i in np.flatnonzero(~sorted_):
        order[i] = np.argsort(values[i])
        ordered[i] = values[i, order[i]]
    return order, ordered


@kernel(ordered=True)
def _write_keys(values: Any, keys: Any, bits: Any) -> None:
    """Integers in the order of the numbers, their last `bits` the place in the row."""
    k, n = values.shape
    numbers, sign, one = values.view(np.uint64), np.uint64(63), np.uint64(1)
    for i in range(k):
        for j in range(n):
            number = numbers[i, j]
            # All bits of a negative number are turned, and the sign of a positive one.
            key = number ^ ((np.uint64(0) - (number >> sign)) | (one << sign))
            keys[i, j] = (key >> bits << bits) | np.uint64(j)


@kernel(ordered=True)
def _read_keys(keys: Any, values: Any, bits: Any, order: Any, ordered: Any, sorted_: Any) -> None:
    """The order and the ordered values; `sorted_` (k,) tells whether few neighbours had to change places."""
    k, n = values.shape
    last = (np.uint64(1) << bits) - np.uint64(1)
    for i in range(k):
        moves = 0
        for j in range(n):
            place = np.int64(keys[i, j] & last)
            value, to = values[i, place], j
            while to > 0 and ordered[i, to - 1] > value and moves <= n:
                order[i, to], ordered[i, to] = order[i, to - 1], ordered[i, to - 1]
                to -= 1
                moves += 1
            order[i, to], ordered[i, to] = place, value
        sorted_[i] = moves <= n


@kernel(ordered=True)
def _rank(order: Any, ordered: Any, table: Any, scores: Any) -> None:
    """Write the normal scores of average ranks to `scores` (k, n), from ordered values and their places."""
    n = ordered.shape[1]
    for i in range(len(ordered)):
        first = 0
        while first < n:
            last = first
            while last + 1 < n and ordered[i, last + 1] == ordered[i, first]:
                last += 1
            for j in range(first, last + 1):
                scores[i, order[i, j]] = table[first + last]
            first = last + 1


@kernel(ordered=True)
def _fold(order: Any, ordered: Any, middle: Any, places: Any, distances: Any) -> None:
    """Order and values (k, n) by the distance from the middle, for n even.

    The ordered values are merged, the larger half of the distances from the ends inwards and the smaller half
    from the middle outwards: the two do not wait for each other. A choice is one of values, since as a branch
    it would be mispredicted half the time.
    """
    k, n = ordered.shape
    one = np.uint64(1)  # an index that might be negative would be looked at twice
    for i in range(k):
        old, values, origin = order[i], ordered[i], middle[i]
        low, high = np.uint64(0), np.uint64(n - 1)
        left, right = np.uint64(n // 2 - 1), np.uint64(n // 2)
        for j in range(n // 2):
            below, above = origin - values[low], values[high] - origin
            further = np.uint64(below > above)
            places[i, n - 1 - j] = old[high + further * (low - high)]
            distances[i, n - 1 - j] = max(below, above)
            low += further
            high -= one - further
            below, above = origin - values[left], values[right] - origin
            further = np.uint64(below > above)
            places[i, j] = old[left + further * (right - left)]
            distances[i, j] = min(below, above)
            right += further
            left -= one - further


@kernel(ordered=True)
def _find_constants(halves: Any, constant: Any) -> None:
    """Write to `constant` (k,) whether the range of (m, n) values is under `_FLAT`."""
    k, m, n = halves.shape
    for i in range(k):
        least, most = halves[i, 0, 0], halves[i, 0, 0]
        for place in range(m * n):
            value = halves[i, place // n, place % n]
            least, most = min(least, value), max(most, value)
            if not most - least < _FLAT:
                break
        constant[i] = most - least < _FLAT


@kernel
def _subtract_means(halves: Any, means: Any, variances: Any) -> None:
    k, m, n = halves.shape
    for i in range(k):
        for j in range(m):
            row, total, squares = halves[i, j], 0.0, 0.0
            origin = row[0]  # near the mean, so that few digits of the sum are lost
            for t in range(n):
                total += row[t] - origin
            mean = origin + total / n
            for t in range(n):
                row[t] -= mean
                squares += row[t] * row[t]
            means[i, j], variances[i, j] = mean, squares / (n - 1)


@kernel
def _covariance_pair(halves: Any, lag: int) -> Any:
    """Autocovariances of centred halves (m, n) at `lag` and the next one, averaged over the halves."""
    m, n = halves.shape
    here, there = 0.0, 0.0
    for j in range(m):
        # Slices, since an index that might be negative keeps the compiler from using vector instructions.
        row, moved, further = halves[j, : n - lag - 1], halves[j, lag : n - 1], halves[j, lag + 1 :]
        for t in range(len(row)):
            here += row[t] * moved[t]
            there += row[t] * further[t]
        here += halves[j, n - lag - 1] * halves[j, n - 1]
    return here / (m * n), there / (m * n)


@kernel
def _sum_pairs(halves: Any, between: Any, covariances: Any, known: int, sizes: Any) -> None:
    """Effective sample sizes by Geyer's initial monotone sequence, of centred halves (k, m, n).

    `between` (k,) is the variance of the means. `covariances` (k, most) holds the first `known`
    autocovariances; others are computed as they are needed. Where more than `most` are needed, the size is
    `_UNFINISHED`.
    """
    k, m, n = halves.shape
    most = covariances.shape[1]
    rho = np.empty(most)
    smallest = 1.0 / np.log10(m * n)  # of the autocorrelation time
    for i in range(k):
        covariance, have = covariances[i], known
        if have == 0:
            covariance[0], covariance[1] = _covariance_pair(halves[i], have)
            have = 2
        within, total = covariance[0] * n / (n - 1.0), covariance[0] + between[i]
        even, odd = 1.0, 1.0 - (within - covariance[1]) / total
        rho[0], rho[1] = even, odd
        t = 1
        while t < n - 3 and even + odd > 0.0 and t + 2 < most:
            if t + 2 >= have:
                covariance[t + 1], covariance[t + 2] = _covariance_pair(halves[i], t + 1)
                have = t + 3
            even = 1.0 - (within - covariance[t + 1]) / total
            odd = 1.0 - (within - covariance[t + 2]) / total
            rho[t + 1], rho[t + 2] = (even, odd) if even + odd >= 0.0 else (0.0, 0.0)
            t += 2
        if t < n - 3 and even + odd > 0.0:
            sizes[i] = _UNFINISHED
            continue
        last = t - 2
        if even > 0.0:
            rho[last + 1] = even
        t = 1
        while t <= last - 2:
            if rho[t + 1] + rho[t + 2] > rho[t - 1] + rho[t]:
                rho[t + 1] = rho[t + 2] = (rho[t - 1] + rho[t]) / 2.0
            t += 2
        tau = rho[last + 1] - 1.0
        for t in range(last + 1):
            tau += 2.0 * rho[t]
        sizes[i] = np.nan if np.isnan(rho[1]) else m * n / max(tau, smallest)
