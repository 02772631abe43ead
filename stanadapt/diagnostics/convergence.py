"""Rank-normalised split R-hat and effective sample sizes of many scalars at once.

The definitions are those of Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), Rank-normalization,
folding, and localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16(2). The
values are arviz's to rounding, but that a single chain has an R-hat too: its two halves are compared. arviz
itself computes one scalar after another in Python, which may take longer than the run. All of it is NumPy's
and SciPy's: kernels would take half to two thirds of the time (23 instead of 37 ms for a hundred scalars of
4,000 draws), and two seconds of a first run.

Draws are arrays (k, chains, n) of k scalars. Every chain is cut into halves; the middle one of an odd number
of draws is in neither of them.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from .shares import TAILS, count_tails

FEWEST = 4  # draws a chain that these statistics need
TAIL = 0.05  # probability of each of the two tails
_FLAT = 1e-15  # draws whose range is smaller are a constant
_ROUNDS = 8  # in which neighbours change places after a sort
_LAGS = 16  # autocovariances that are summed lag by lag; where more are needed, a Fourier transform is faster


class Convergence(NamedTuple):
    """What tells whether the chains of k scalars agree, and how much their draws are worth."""

    # (k, 4, 2 chains): in the halves of chains, the two of a chain side by side, mean and variance of the
    # normal scores of the draws' ranks, then those of the ranks of their distances from the median.
    moments: np.ndarray
    ess_bulk: np.ndarray  # (k,)
    ess_tail: np.ndarray
    tail_hits: np.ndarray  # (k, 4, chains) draws of each chain in the tails, see `shares`
    tail_clumps: np.ndarray


class EffectiveSizes(NamedTuple):
    """Effective sample sizes (k,) of k scalars."""

    ess_bulk: np.ndarray
    ess_tail: np.ndarray


@np.errstate(all="ignore")  # draws may be infinite, NaN or constant
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
    ess_tail = _tail_size(draws, halves, ordered)
    ess_bulk, mean, var = _effective_size(_normal_scores(order, ordered).reshape(halves.shape))
    middle = ordered[:, [(flat.shape[1] - 1) // 2, flat.shape[1] // 2]].mean(axis=1)
    folded = _normal_scores(*_fold(order, ordered, middle))
    moments = np.stack((mean, var, *_centre(folded.reshape(halves.shape))), axis=1)
    moments[~np.isfinite(middle), 2:] = np.nan
    unknown = np.isnan(draws).any(axis=(1, 2))
    moments[unknown], ess_bulk[unknown], ess_tail[unknown] = np.nan, np.nan, np.nan
    return Convergence(moments, ess_bulk, ess_tail, *tails)


@np.errstate(all="ignore")
def effective_sizes(draws: np.ndarray) -> EffectiveSizes:
    """The sizes of `convergence` alone, which take half of its time."""
    k, _, n = draws.shape
    if n < FEWEST:
        return EffectiveSizes(*np.full((2, k), np.nan))
    halves = _halves(draws)
    order, ordered = sort(halves.reshape(k, -1))
    values = np.empty((3, *halves.shape))  # all at once, since most of the time of few draws goes into calls
    values[0] = _normal_scores(order, ordered).reshape(halves.shape)
    for below, limits in zip(values[1:], _tail_limits(draws, ordered), strict=True):
        np.less_equal(halves, limits[:, None, None], out=below)
    sizes = _effective_size(values.reshape(-1, *halves.shape[1:]))[0].reshape(3, k)
    sizes[:, np.isnan(draws).any(axis=(1, 2))] = np.nan
    return EffectiveSizes(sizes[0], sizes[1:].min(axis=0))


def _tail_size(draws: np.ndarray, halves: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """The smaller effective sample size (k,) of both tails; `ordered` are the values of all halves."""
    lower, upper = _tail_limits(draws, ordered)
    return np.asarray(np.minimum(_indicator_size(halves, lower), _indicator_size(halves, upper)))


def _tail_limits(draws: np.ndarray, ordered: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The quantiles (k,) at which tails begin; `ordered` are the values of all halves."""
    k, _, n = draws.shape
    everything = np.sort(draws.reshape(k, -1), axis=1) if n % 2 else ordered
    return quantiles(everything, TAIL), quantiles(everything, 1.0 - TAIL)


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
def _score_table(n: int) -> np.ndarray:
    """The normal scores of the ranks 1, 1.5, 2, ..., n (2 n - 1,), with Blom's offset."""
    return np.asarray(ndtri((np.arange(2, 2 * n + 1) / 2 - 3 / 8) / (n + 1 / 4)))


def _normal_scores(order: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """The normal scores of average ranks (k, n), from what `sort` gives."""
    k, n = ordered.shape
    begins = np.ones((k, n), np.bool_)  # of draws that are equal, which share the middle of their ranks
    np.not_equal(ordered[:, 1:], ordered[:, :-1], out=begins[:, 1:])
    sizes = np.diff(np.flatnonzero(begins), append=k * n)
    twice = 2 * np.broadcast_to(np.arange(n), (k, n))[begins]
    twice += sizes
    twice -= 1  # the first rank and the last one, from 0
    scores = np.empty(k * n)
    scores[_cells(order).ravel()] = np.repeat(_score_table(n)[twice], sizes)
    return scores.reshape(k, n)


def _cells(order: np.ndarray) -> np.ndarray:
    """Places in each row of (k, n) as places in all of its memory: NumPy takes these several times faster."""
    k, n = order.shape
    cells: np.ndarray = order + n * np.arange(k)[:, None]
    return cells


def quantiles(ordered: np.ndarray, p: float) -> np.ndarray:
    """The p-quantiles (k,) of ordered draws (k, n), as NumPy has them by default."""
    place = p * (ordered.shape[1] - 1)
    below = int(place)
    share = place - below
    first, second = ordered[:, below], ordered[:, min(below + 1, ordered.shape[1] - 1)]
    with np.errstate(invalid="ignore"):  # infinite draws
        step = second - first
        # From the nearer one, so that nothing is lost where the other is much larger.
        return np.asarray(first + step * share if share < 0.5 else second - step * (1.0 - share))


@np.errstate(all="ignore")
def _effective_size(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Effective sample size (k,), means and variances of halves of chains (k, m, n), which are centred.

    The autocorrelations are summed by Geyer's initial monotone sequence, over pairs of lags.
    """
    k, m, n = halves.shape
    constant = halves.max(axis=(1, 2)) - halves.min(axis=(1, 2)) < _FLAT
    mean, var = _centre(halves)
    between = mean.var(axis=1, ddof=1)
    few = np.empty((k, min(n, _LAGS) // 2 * 2))
    for lag in range(few.shape[1]):
        few[:, lag] = np.vecdot(halves[..., : n - lag], halves[..., lag:]).sum(axis=1) / (m * n)
    sizes, unfinished = _sum_pairs(few, between, m, n)
    if unfinished.any():
        length = next_fast_len(2 * n, real=True)
        power = np.zeros((np.count_nonzero(unfinished), length // 2 + 1))
        for half in range(m):  # one after the other, since transforms of all would take much memory
            transforms = rfft(halves[unfinished, half], length, axis=1)
            power += transforms.real**2 + transforms.imag**2
        covariances = irfft(power, length, axis=1)[:, :n] / (m * n)
        sizes[unfinished], _ = _sum_pairs(covariances, between[unfinished], m, n)
    sizes[constant] = m * n
    return sizes, mean, var


def _sum_pairs(covariances: np.ndarray, between: np.ndarray, m: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Effective sample sizes (k,) by Geyer's initial monotone sequence, of m chains of n draws.

    `covariances` (k, most) holds the first autocovariances of all chains together, and `between` (k,) the
    variance of their means. Returns also for which of them (k,) more autocovariances are needed.
    """
    within = covariances[:, :1] * (n / (n - 1.0))
    total = covariances[:, :1] + between[:, None]
    n_pairs = min(covariances.shape[1] // 2, max(1, (n - 1) // 2))  # further ones have next to no draws
    rho = 1.0 - (within - covariances[:, : 2 * n_pairs]) / total
    rho[:, 0] = 1.0
    even, pairs = rho[:, ::2], rho[:, ::2] + rho[:, 1::2]
    # The sum ends at the first pair that is not positive. Of this pair only the even lag counts.
    positive = pairs > 0.0
    endless = positive.all(axis=1)
    rows, end = np.arange(len(rho)), np.where(endless, n_pairs - 1, np.argmin(positive, axis=1))
    last = np.where(pairs[rows, end] < 0.0, np.maximum(even[rows, end], 0.0), even[rows, end])
    sums = np.cumsum(np.minimum.accumulate(pairs, axis=1), axis=1)
    before = np.where(end > 0, sums[rows, end - 1], 0.0)
    smallest = 1.0 / np.log10(m * n)  # of the autocorrelation time
    sizes = m * n / np.maximum(last - 1.0 + 2.0 * before, smallest)
    return sizes, endless & (2 * n_pairs < n - 2)


def indicator_size(draws: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """Effective sample size (k,) for the share of draws (k, chains, n) up to `limits` (k,)."""
    return _indicator_size(_halves(draws), limits)


def _indicator_size(halves: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The same from halves of chains (k, m, n)."""
    below = np.less_equal(halves, limits[:, None, None], out=np.empty(halves.shape))
    return _effective_size(below)[0]


def _centre(halves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Subtract the mean of each half of (k, m, n); returns the means and variances (k, m)."""
    origin = halves[..., 0].copy()  # near the mean, so that few digits of the sum are lost
    halves -= origin[..., None]
    shift = halves.mean(axis=2)
    halves -= shift[..., None]
    var = np.vecdot(halves, halves) / (halves.shape[2] - 1)
    return origin + shift, var


def sort(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The order of each row of (k, n) and its values in that order, both (k, n).

    Numbers are sorted as integers of the same order, whose last bits are replaced by the place in the row,
    which takes a fraction of the time of NumPy's `argsort`. Neighbours that differ in those bits alone change
    places after it; where there are many of them, as in a variable that hardly varies, `argsort` does it.
    """
    n = values.shape[1]
    bits = np.uint64(max(1, (n - 1).bit_length()))
    numbers = np.ascontiguousarray(values).view(np.uint64)
    # All bits of a negative number are turned, and the sign of a positive one.
    keys = (numbers.view(np.int64) >> 63).view(np.uint64)
    keys |= np.uint64(1 << 63)
    keys ^= numbers
    keys >>= bits
    keys <<= bits
    keys |= np.arange(n, dtype=np.uint64)
    keys.sort(axis=1)
    keys &= (np.uint64(1) << bits) - np.uint64(1)
    order = keys.view(np.int64)
    ordered = np.take(values, _cells(order))
    _exchange_neighbours(order, ordered)
    for i in np.flatnonzero((ordered[:, 1:] < ordered[:, :-1]).any(axis=1)):
        order[i] = np.argsort(values[i])
        ordered[i] = values[i, order[i]]
    return order, ordered


def _fold(order: np.ndarray, ordered: np.ndarray, middle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order and values (k, n) by the distance from the middle (k,), from what `sort` gives.

    The distances fall and then rise, so a stable sort merges two runs.
    """
    distances = np.abs(ordered - middle[:, None])
    cells = _cells(distances.argsort(axis=1, kind="stable"))
    return np.take(order, cells), np.take(distances, cells)


def _exchange_neighbours(order: np.ndarray, ordered: np.ndarray) -> None:
    """Exchange neighbours in rows (k, n) that are not in order, several times if need be."""
    for _ in range(_ROUNDS):
        wrong = ordered[:, 1:] < ordered[:, :-1]
        if not wrong.any():
            return
        wrong[:, 1:] &= ~wrong[:, :-1]  # of two that overlap, the first one
        rows, places = np.nonzero(wrong)
        for held in (order, ordered):
            held[rows, places], held[rows, places + 1] = held[rows, places + 1], held[rows, places]
