"""Do the tests notice? One-line changes of the sources, each with the narrowest tests that should go red.

    python tests/mutate.py           all of them
    python tests/mutate.py 0 10      the first ten

Each change is made in a copy of the package in a temporary folder, which the tests then import. Kernels are
compiled again for each, so all of them take half an hour. The exit status is 1 where a change survives, or
where a text is no longer in its file. A change of the code that takes a text away has to bring the list below
up to date.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 600  # for the tests of one change; longer is a hang, which is noticed


class Mutation(NamedTuple):
    """A change that does harm."""

    file: str  # in the package
    text: str  # stands in the file once
    other: str
    tests: tuple[str, ...]  # for pytest, from tests/ on


def unit(file: str, *names: str) -> tuple[str, ...]:
    return tuple(f"unit/{file}.py::{name}" for name in names)


def law(method: str, target: str = "skewed") -> tuple[str, ...]:
    """The invariance of a method with its default settings."""
    name = "test_frozen_kernel_leaves_the_law_invariant"
    return (f"statistical/test_invariance.py::{name}[{method}-{{}}-{target}]",)


def learning(*names: str) -> tuple[str, ...]:
    return unit("test_learning", *names)


def evidence(*names: str) -> tuple[str, ...]:
    return tuple(f"end_to_end/test_evidence.py::{name}" for name in names)


MUTATIONS = [
    # samples and chains that differ
    Mutation(
        "diagnostics/agreement.py",
        "combine([samples[other] for other in others])",
        "combine([samples[other] for other in others[:1]])",
        unit("test_estimates", "test_a_small_difference_is_seen_against_the_others_together"),
    ),
    Mutation(
        "diagnostics/agreement.py",
        "worst = min(group",
        "worst = max(group",
        unit("test_estimates", "test_a_small_difference_is_seen_against_the_others_together"),
    ),
    Mutation(
        "diagnostics/shares.py",
        "others = float(shares[rest].mean())",
        "others = float(shares.mean())",
        unit("test_by_chain", "test_a_chain_that_misses_a_tail_of_one_per_cent"),
    ),
    Mutation(
        "diagnostics/shares.py",
        "return max(1, int(round(p, 9) * n))",
        "return max(1, int(1.1 * p * n))",
        unit("test_by_chain", "test_a_chain_that_misses_a_tail_of_one_per_cent"),
    ),
    # modes
    Mutation(
        "numerics/strange_points.py",
        "order = np.argsort(-score, kind",
        "order = np.argsort(score, kind",
        unit("test_strange_points", "test_the_strangest_points_lie_at_the_mode_that_is_not_known"),
    ),
    Mutation(
        "numerics/strange_points.py",
        "below - d * between",
        "below + d * between",
        unit(
            "test_strange_points",
            "test_points_would_have_shown_half_of_the_modes_that_are_as_narrow_as_is_said",
        ),
    ),
    Mutation(
        "numerics/replicas.py",
        "if excess > notes.excess[j, least]:",
        "if excess < notes.excess[j, least]:",
        unit("test_strange_points", "test_the_strangest_replicas_of_warm_rungs_are_kept"),
    ),
    Mutation(
        "numerics/replicas.py",
        "            tour[m] = 0.0",
        "            tour[m] *= 1.0",
        unit("test_paths", "test_counts_of_tours_are_those_of_all_scans"),
    ),
    Mutation(
        "numerics/tempering.py",
        "return t - np.log1p(np.exp(t))",
        "return np.log(np.exp(t) / (1.0 + np.exp(t)))",
        unit("test_paths", "test_logs_of_logistic_terms"),
    ),
    Mutation(
        "diagnostics/missed.py",
        "rates = np.where(restarted, 1.0, rates)",
        "rates = np.where(restarted, rates, rates)",
        unit("test_tails", "test_replicas_from_a_reference_leave_a_tail_as_proposals_do"),
    ),
    # samplers
    Mutation("samplers/mala.py", "logp_y - logp + ratio", "logp_y - logp", law("mala")),
    Mutation(
        "samplers/rwm.py",
        "accepted = rng.random() < accept_prob",
        "accepted = rng.random() < 0.8 * accept_prob + 0.2",
        law("rwm"),
    ),
    Mutation("samplers/am.py", "t += 1.0", "t += 2.0", learning("test_am_recursion")),
    Mutation(
        "samplers/am.py",
        "mean[i] += rho * away[i]",
        "mean[i] -= rho * away[i]",
        learning("test_am_recursion"),
    ),
    Mutation(
        "samplers/arwmh.py",
        "gamma = (i + 1.0) ** -beta",
        "gamma = i**-beta",
        learning("test_arwmh_recursion"),
    ),
    Mutation(
        "samplers/arwmh.py",
        "step_size *= np.exp(0.5 * gamma",
        "step_size *= np.exp(gamma",
        learning("test_arwmh_recursion"),
    ),
    Mutation(
        "samplers/ada_mala.py", "n = min(n + 1.0,", "n = min(n + 2.0,", learning("test_ada_mala_recursion")
    ),
    Mutation(
        "samplers/ada_mala.py",
        "keep = (n - 2.0) / (n - 1.0)",
        "keep = (n - 1.0) / n",
        learning("test_ada_mala_recursion"),
    ),
    Mutation(
        "samplers/gad_rwm.py",
        "if log_ratio < 0.0:",
        "if log_ratio < 1.0:",
        learning("test_gad_rwm_recursion"),
    ),
    Mutation(
        "samplers/gad_rwm.py",
        "if accepted:\n        x, logp = y",
        "if accepted or logp_y > logp - 0.1:\n        x, logp = y",
        learning("test_gad_rwm_recursion"),
    ),
    Mutation(
        "samplers/kamh.py",
        "nu *= np.exp(0.5 * gain",
        "nu *= np.exp(1.0 * gain",
        learning("test_kamh_step_size_recursion"),
    ),
    Mutation("samplers/kamh.py", "n += 1.0", "n += 0.5", learning("test_kamh_step_size_recursion")),
    Mutation(
        "samplers/kamh.py",
        "cov[i, i] += gamma * gamma",
        "cov[i, i] += gamma",
        unit("test_refitting", "test_covariance_of_kamh_is_the_papers"),
    ),
    Mutation(
        "samplers/kmc.py",
        "gain = settings.step_rate * weight",
        "gain = 2.0 * settings.step_rate * weight",
        learning("test_kmc_step_size_recursion"),
    ),
    Mutation(
        "samplers/kmc.py",
        '"preconditioner": frame.scale * frame.chol_t.T @ frame.chol_t',
        '"preconditioner": frame.scale * frame.chol_t @ frame.chol_t.T',
        learning("test_reported_preconditioner_is_the_one_that_proposals_have[kmc_lite]"),
    ),
    Mutation(
        "samplers/fisher_mala.py",
        "1.0 - weight / memory",
        "1.0 - weight / (2.0 * memory)",
        learning("test_fisher_mala_recursion"),
    ),
    Mutation(
        "samplers/fisher_mala.py",
        "np.sqrt(1.0 / scale)",
        "np.sqrt(2.0 / scale)",
        unit("test_numerics", "test_fisher_recursion_against_the_inverse"),
    ),
    Mutation(
        "samplers/fisher_hmc.py",
        "    elif search.t > 0.0:",
        "    elif search.t < 0.0:",
        unit("test_fisher_hmc", "test_frozen_step_size_is_the_average_of_the_search_and_not_its_last"),
    ),
    Mutation(
        "numerics/splitting.py",
        "n += (largest - n) * rng.random()",
        "n += 0.5 * (largest - n)",
        unit("test_fisher_hmc", "test_squares_mix_where_steps_are_short[10-0.3]"),
    ),
    Mutation(
        "numerics/splitting.py",
        "    if d > FEW_DIMENSIONS:",
        "    if d < 0:",
        unit("test_fisher_hmc", "test_squares_mix_where_steps_are_short[1000-0.38]"),
    ),
    Mutation(
        "numerics/trajectory.py",
        "        z[i] = rng.standard_normal()",
        "        z[i] = 0.9 * rng.standard_normal()",
        law("fisher_hmc"),
    ),
    Mutation(
        "samplers/amala.py",
        "cov = settings.alpha * state.cov + (1.0 - settings.alpha)",
        "cov = settings.alpha * state.cov + (1.1 - settings.alpha)",
        learning("test_amala_epochs"),
    ),
    Mutation(
        "samplers/policy.py",
        "if guard.about[BEST_REWARD] > -np.inf and not (guard.faithful and alive):",
        "if not alive:",
        unit("test_policy", "test_frozen_policy_is_the_best_one_and_not_the_last"),
    ),
    Mutation(
        "samplers/policy.py",
        "advantage = reward - value(",
        "advantage = reward + value(",
        unit("test_policy", "test_one_sample_of_the_gradient"),
    ),
    # numerics
    Mutation(
        "numerics/langevin.py",
        "s * s / 8.0 *",
        "s * s / 9.0 *",
        unit("test_numerics", "test_proposal_ratio_against_gaussian_densities"),
    ),
    Mutation(
        "numerics/cholesky.py",
        "rest[i] = c * rest[i] - s * updated",
        "rest[i] = c * rest[i] + s * updated",
        unit("test_numerics", "test_cholesky_update_against_refactorisation"),
    ),
    Mutation(
        "numerics/covariance.py",
        "tr += dot(away, away)",
        "tr += 0.9 * dot(away, away)",
        learning("test_covariance_recursion_keeps_weighs_and_rescales"),
    ),
    Mutation(
        "numerics/leapfrog.py",
        "half if taken == n_leapfrog else step_size",
        "half if taken >= n_leapfrog - 1 else step_size",
        learning("test_leapfrog_is_reversible_keeps_volume_and_nearly_energy"),
    ),
    Mutation(
        "numerics/linear.py",
        "total += root_t[k, i] * v[i]",
        "total += root_t[i, k] * v[i]",
        unit("test_numerics", "test_products"),
    ),
    Mutation(
        "numerics/metric.py",
        "root @ vectors / values**0.25 / scale",
        "root @ vectors / values**0.5 / scale",
        unit("test_metric", "test_learnt_metric_solves_its_equation"),
    ),
    Mutation(
        "numerics/step_size.py",
        "step_size * np.sqrt(1.0 + rate *",
        "step_size * (1.0 + rate *",
        unit("test_numerics", "test_step_size_rule"),
    ),
    Mutation(
        "numerics/speed_measure.py",
        "(1.0 - DECAY) * g * g",
        "(1.0 - DECAY) * g",
        learning("test_rmsprop_as_printed"),
    ),
    # run
    Mutation(
        "run/chain.py",
        "out.failures = total - out.failures_warmup",
        "out.failures = total",
        unit("test_chain", "test_failures_of_warmup_and_of_draws_are_told_apart"),
    ),
    Mutation(
        "run/chain.py",
        "slice(-(offset + 1) % self.job.thin",
        "slice(-offset % self.job.thin",
        unit("test_results", "test_thin_keeps_every_third_of_the_same_run"),
    ),
    Mutation(
        "run/warmup.py",
        "first = pilot_length(method, settings, warmup)",
        "first = min(1, pilot_length(method, settings, warmup))",
        unit("test_pilot", "test_history_has_the_stages_of_the_pilot"),
    ),
    Mutation(
        "run/workers/segments.py",
        "draws.append(piece.draws.values, piece.draws.x, piece.draws.stats)",
        "draws.append(piece.draws.values[:-1], piece.draws.x, piece.draws.stats)",
        ("end_to_end/test_runner.py::test_draws_do_not_depend_on_processes",),
    ),
    Mutation(
        "run/workers/failures.py",
        "key=lambda failure: failure.chain",
        "key=lambda failure: -failure.chain",
        ("end_to_end/test_python_processes.py::test_every_failure_comes_back_with_its_traceback",),
    ),
    # result
    Mutation(
        "result/schema.py",
        'return {"chain": list(chains), "draw"',
        'return {"chain": list(range(len(chains))), "draw"',
        ("end_to_end/test_nuts.py::test_interrupt_keeps_chains_that_are_whole",),
    ),
    Mutation(
        "result/build.py",
        "min(lengths[i] for i in kept)",
        "max(lengths[i] for i in kept)",
        unit("test_results", "test_draws_are_cut_to_the_shortest_chain_that_has_any"),
    ),
    Mutation(
        "result/build.py",
        '"tuning_steps": job.warmup',
        '"tuning_steps": job.draws',
        unit("test_results", "test_attributes"),
    ),
    # coordinates
    Mutation(
        "transport/group.py",
        "return 2.0 * w * left * (row[DATA] - at), left * slope",
        "return w * left * (row[DATA] - at), left * slope",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/group.py",
        "log_det += table[k, LOG_UNITS]",
        "log_det -= table[k, LOG_UNITS]",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "target.py",
        "    return logp + log_det\n",
        "    return logp\n",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "numerics/metric_choice.py",
        "if divergence(trial, *judges) < GAIN * best else None",
        "if divergence(trial, *judges) < np.inf else None",
        unit("test_metric_choice", "test_a_wrong_hessian_is_refused_and_a_wrong_dense_metric_given_up"),
    ),
    Mutation(
        "numerics/metric_choice.py",
        "(1.0 / np.sqrt(low.variances) - 1.0)",
        "(1.0 / low.variances - 1.0)",
        unit("test_metric_choice", "test_dense_metric_of_few_draws_solves_its_equation"),
    ),
    Mutation(
        "numerics/metric_choice.py",
        "(square[i] - size) * m / (m - 1.0) > COUPLED",
        "square[i] * m / (m - 1.0) > COUPLED",
        unit("test_metric_choice", "test_what_begins_dense"),
    ),
    Mutation(
        "numerics/metric_choice.py",
        "if within < TIE * without:",
        "if within > TIE * without:",
        unit("test_metric_choice", "test_few_directions_are_chosen_where_there_are_few"),
    ),
    Mutation(
        "transport/fields/design.py",
        "tail = max(going, key=lambda one: one.height)",
        "tail = going[0]",
        unit("test_field_learning", "test_the_longest_tail_goes_on_first_where_gradients_are_few"),
    ),
    Mutation(
        "transport/fields/several.py",
        "sorted(locations) if len(series) == 1 else []",
        "[]",
        unit("test_effects_beside_series", "test_an_intercept_that_is_off_moves_no_place_of_heads"),
    ),
    Mutation(
        "transport/fields/heads.py",
        "if factor is None and matrix is not None:",
        "if False:",
        unit("test_heads", "test_a_location_is_no_head_where_latents_are_far_from_their_mode"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "if not len(_changing(ridges[b], b, np.array([root])))",
        "if True",
        unit("test_head_law", "test_a_head_with_a_long_tail_is_a_root_though_no_other_changes_with_it"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "rows, spreads = np.concatenate((no_transport(), *head_rows(laws))), spreads_of(laws)",
        "rows, spreads = no_transport(), {}",
        unit("test_head_law", "test_the_coordinates_of_a_walk_have_short_tails"),
    ),
    Mutation(
        "transport/fields/design.py",
        "key=lambda one: -one.off",
        "key=lambda one: one.off",
        unit("test_field_learning", "test_a_design_grows_first_where_its_law_is_off_most"),
    ),
    Mutation(
        "transport/fields/design.py",
        "if np.any(np.linalg.norm(tried - wrong.w, axis=1) < _APART):",
        "if False:",
        unit("test_field_learning", "test_a_design_grows_first_where_its_law_is_off_most"),
    ),
    Mutation(
        "transport/fields/design.py",
        "_LAST_STEP = 0.9",
        "_LAST_STEP = 1.1",
        unit("test_field_learning", "test_a_design_does_not_grow_until_all_gradients_are_spent"),
    ),
    Mutation(
        "transport/grouping/fit.py",
        "_WHOLE, _NEARLY_WHOLE = 0.06, 0.3",
        "_WHOLE, _NEARLY_WHOLE = 0.0, 0.0",
        unit("test_transport_learning", "test_a_centred_hierarchy_is_found_with_its_numbers"),
    ),
    Mutation(
        "transport/grouping/fit.py",
        "_FREE, _FREE_EACH = 4.0, 0.25",
        "_FREE, _FREE_EACH = 0.0, 0.0",
        unit("test_transport_learning", "test_a_pure_funnel_has_no_knee"),
    ),
    Mutation(
        "transport/grouping/choice.py",
        "        if not decrease_of(pull_draws(draws, others_of(kept, group)), group) > 0.0:",
        "        if False:",
        unit("test_transport_learning", "test_a_pair_goes_where_draws_have_become_normal"),
    ),
    Mutation(
        "transport/grouping/choice.py",
        "MARGIN = 0.3  #",
        "MARGIN = -99.0  #",
        unit("test_transport_learning", "test_the_newer_half_of_the_draws_must_bear_a_pair_out"),
    ),
    Mutation(
        "transport/bend.py",
        "    return value, slope, strength * (near_2 - far_2)",
        "    return value, slope, strength * near_2",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/bend.py",
        "    if not side * _score_curvature(x, s) > (CURVED if used is None else STILL_CURVED):",
        "    if not np.isfinite(_score_curvature(x, s)):",
        unit("test_transport_bend", "test_draws_that_are_skew_by_chance_are_no_long_tail"),
    ),
    Mutation(
        "transport/bend.py",
        "    of_x, of_s = _basis(points, i), _basis(scores, i)",
        "    of_x, of_s = np.empty((n, 0)), np.empty((n, 0))",
        unit("test_transport_bend", "test_a_ridge_is_not_bent"),
    ),
    Mutation(
        "transport/bend.py",
        "    one = Bend(i, float(knots[k]), float(_STRENGTHS[q]), width, side, max(last, 0.0) + _BEYOND)",
        "    one = Bend(i, float(knots[k]), float(_STRENGTHS[q]), width, side, 1e3 + last)",
        unit("test_transport_bend", "test_a_bend_reaches_beyond_the_draws_and_no_farther"),
    ),
    Mutation(
        "transport/fields/laplace.py",
        "precision.quadratic = left < _QUADRATIC * promise and left < _CLOSE",
        "precision.quadratic = left < promise",
        unit("test_field_modes", "test_a_mode_of_other_latents_has_the_precision_at_the_mode"),
    ),
    Mutation(
        "transport/fields/law_fit.py",
        "return rates[k], pays",
        "return rates[k], m > 1",
        unit("test_field_modes", "test_differences_are_left_out_where_they_do_not_help"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "curve = np.concatenate(parts)",
        "curve = parts[0]",
        unit("test_head_law", "test_widths_stay_as_they_are_beyond_the_end_of_a_short_ridge"),
    ),
    Mutation(
        "transport/composition.py",
        "u = _before_heads(table[first:], x)\n    field.pull_back",
        "u = z\n    field.pull_back",
        unit("test_transport_field", "test_score_is_the_gradient_of_the_density_in_z"),
    ),
    Mutation(
        "numerics/field_search.py",
        "nearer[part] = middle[part] + away * spread[part]",
        "nearer[part] = middle[part]",
        unit("test_field_arrival", "test_what_is_far_out_comes_to_where_draws_are"),
    ),
    Mutation(
        "transport/composition.py",
        "log_det += field.into_x(table[first:], x, x, z[:0])",
        "field.into_x(table[first:], x, x, z[:0])",
        unit("test_transport_field", "test_log_determinant_is_that_of_the_derivatives"),
    ),
    Mutation(
        "transport/composition.py",
        "field.pull_back(table[first:], u, x, score, z[:0])",
        "pass",
        unit("test_transport_field", "test_score_is_the_gradient_of_the_density_in_z"),
    ),
    Mutation(
        "transport/field.py",
        "_transposed_times(pull_y, flat, at[14], pull_x)",
        "_transposed_times(pull_y, flat, at[15], pull_x)",
        unit("test_transport_field", "test_score_is_the_gradient_of_the_density_in_z"),
    ),
    Mutation(
        "transport/fields/dense.py",
        "axis[own] = -mode.factor.solve(column[own])",
        "axis[own] = 0.0",
        unit("test_dense_fields", "test_a_scalar_that_latents_follow_is_no_head"),
    ),
    Mutation(
        "transport/fields/dense.py",
        "- diagonal > _TIES**2 * diagonal",
        "- diagonal > 0.0 * diagonal",
        unit("test_dense_fields", "test_crossed_effects_are_left_to_groups"),
    ),
    Mutation(
        "transport/fields/filling.py",
        "design.axes = axes / (_BUMP * max(float(away.max()), _SPACING))",
        "design.axes = 0.0 * axes",
        unit("test_dense_fields", "test_a_gaussian_process_is_standard_normal_in_z_wherever_its_heads_are"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "[later, columns] * widths[:, columns] / widths[:, later]",
        "[later, columns] * np.ones_like(widths[:, columns])",
        unit("test_head_law", "test_partial_correlations_of_the_others_are_kept"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "(reach > least or len(",
        "(len(ridges) == 1 or len(",
        unit("test_head_law", "test_a_head_with_a_long_tail_is_a_root_though_no_other_changes_with_it"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "and reach > longest and",
        "and reach > 0.0 and",
        unit("test_head_law", "test_the_root_is_the_head_with_the_longest_tail"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "        found.append((second, changing))\n",
        "",
        unit("test_head_law", "test_two_pairs_of_heads_have_a_law_each"),
    ),
    Mutation(
        "transport/fields/head_law.py",
        "    while (second :=",
        "    while False and (second :=",
        unit("test_head_law", "test_two_pairs_of_heads_have_a_law_each"),
    ),
    Mutation(
        "transport/ridge_terms.py",
        "    return value, scale_a * (plus_1 - minus_1), scale_b * (plus_1 + minus_1)",
        "    return value, scale_a * (plus_1 - minus_1), scale_b * (plus_1 - minus_1)",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/ridge_terms.py",
        "        score[int(row[PARENT_B])] += pull * slope_b",
        "        score[int(row[PARENT_B])] += 0.5 * pull * slope_b",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/ridge_fit.py",
        "EXACT, BRINGS, STAYS = 1e-14, 1e-10, 1e-8",
        "EXACT, BRINGS, STAYS = 1e-2, 1e-1, 1e-1",
        unit("test_transport_ridge", "test_other_ridges_are_found_and_judged"),
    ),
    Mutation(
        "transport/ridge_fit.py",
        "    return bool(before - after > margin and",
        "    return True or bool(before - after > margin and",
        unit("test_transport_ridge", "test_what_is_far_from_second_order_is_left_alone"),
    ),
    Mutation(
        "transport/ridge_fit.py",
        "    return bool(np.square(rest[outer]).mean() <= LEFT_OUTSIDE * s.var())",
        "    return bool(np.square(rest[outer]).mean() <= 1.0 * s.var())",
        unit("test_transport_ridge", "test_a_slight_ridge_is_found_if_it_holds_outside"),
    ),
    Mutation(
        "transport/ridge_fit.py",
        "MARGIN, LEAST_GAIN = 0.3, 0.12",
        "MARGIN, LEAST_GAIN = 0.3, 0.3",
        unit("test_transport_ridge", "test_a_slight_ridge_is_found_if_it_holds_outside"),
    ),
    Mutation(
        "transport/ridge_terms.py",
        "for part in range(0 if row[PARENT_B] < 0.0 else 1, 2):",
        "for part in range(2):",
        unit("test_transport_ridge", "test_parts_of_a_ridge_are_those_of_the_draws_in_which_it_is_undone"),
    ),
    Mutation(
        "transport/ridge_terms.py",
        "    return 4.0 * abs(t) - 4.0, 4.0 if t > 0.0 else -4.0",
        "    return t * t, 2.0 * t",
        unit("test_transport_ridge", "test_beyond_its_reach_a_ridge_goes_on_as_a_straight_line"),
    ),
    Mutation(
        "transport/learning.py",
        "(_learn_inner(inner, training, found.search, with_groups=with_groups), outer)",
        "(outer, _learn_inner(inner, training, found.search, with_groups=with_groups))",
        unit("test_transport_ridge", "test_an_exact_ridge_comes_after_a_group_that_moves_its_parent"),
    ),
    Mutation(
        "transport/learning.py",
        "room, room_for_ridges = left > MARGIN, left > RIDGE_MARGIN",
        "room, room_for_ridges = left > 4.0 * MARGIN, left > 10.0 * RIDGE_MARGIN",
        unit("test_room_for_laws", "test_draws_near_a_normal_law_have_no_room_for_groups_and_ridges"),
    ),
    Mutation(
        "transport/learning.py",
        "    refused.discard(NONE_EXACT)",
        "    refused.discard(0)",
        unit("test_refused_questions", "test_beside_a_field_exact_ridges_are_asked_for_each_time"),
    ),
    Mutation(
        "transport/ridge_learning.py",
        "none_exact = bool((rest > CLEARLY_LEFT * totals).all())",
        "none_exact = bool((rest > EXACT * totals).all())",
        unit("test_refused_questions", "test_draws_close_to_each_other_give_no_final_answer"),
    ),
    Mutation(
        "transport/group.py",
        "        score[int(row[LOCATION])] += drag",
        "        score[int(row[LOCATION])] += 0.5 * drag",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/grouping/groups.py",
        "    for group in reversed(groups):\n        view",
        "    for pair in pairs:\n        view",
        unit("test_transport_learning", "test_pairs_are_undone_as_the_map_undoes_them"),
    ),
    Mutation(
        "transport/grouping/groups.py",
        "            scores[:, place] += more",
        "            scores[:, place] += 0.5 * more",
        unit("test_transport_learning", "test_pairs_are_undone_as_the_map_undoes_them"),
    ),
    Mutation(
        "transport/grouping/groups.py",
        "        if not moved & parents_of(group):\n",
        "        if True:\n",
        unit("test_transport_learning", "test_two_levels_are_found_with_the_location_of_each_member"),
    ),
    Mutation(
        "samplers/base.py",
        "        rows_into_x(target.transport, trace.x, trace.logp)",
        "        pass",
        (
            "statistical/test_hierarchies.py::test_a_frozen_chain_leaves_exact_draws_of_the_funnel_as_they_are",
        ),
    ),
    # diagnostics
    Mutation(
        "diagnostics/findings.py",
        "far = distance > ACCEPTANCE_MARGIN",
        "far = distance > 2 * ACCEPTANCE_MARGIN",
        unit("test_diagnostics", "test_acceptance_far_from_its_target"),
    ),
    Mutation(
        "diagnostics/findings.py",
        "        far = path > LEAVING",
        "        far = path > 50 * LEAVING",
        unit("test_diagnostics", "test_a_chain_that_leaves_is_named"),
    ),
    Mutation(
        "diagnostics/statistics.py",
        "return int(np.diff(moved).max()) - 1",
        "return int(np.diff(moved).max())",
        unit("test_diagnostics", "test_long_waits"),
    ),
    Mutation(
        "diagnostics/statistics.py",
        "    with one_thread() if several",
        "    with contextlib.nullcontext() if several",
        unit("test_diagnostics", "test_blas_has_one_thread_in_statistics"),
    ),
    Mutation(
        "transport/group.py",
        "        score[scale] += scaled * x[part] * row[PART_BETA]",
        "        score[scale] += scaled * x[part]",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "at_location, at_scale = [inverse * away], [inverse * away * away]",
        "at_location, at_scale = [away], [inverse * away * away]",
        unit("test_transport_scores", "test_an_upper_level_needs_the_terms_of_the_lower_one"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "    return slope * np.exp(-_medians(draws.points[-MOST_DRAWS:], law)[:, 0]), nothing",
        "    return slope, nothing",
        unit("test_transport_scores", "test_the_numbers_of_a_place_come_from_scores"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "precision, weighted = -found[:, 1], found[:, 0]",
        "precision, weighted = -found[:, 1], 2.0 * found[:, 0]",
        unit("test_transport_scores", "test_thresholds_and_data_come_from_scores"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "unit * unit, weighted * unit",
        "unit * unit, weighted",
        unit("test_transport_scores", "test_thresholds_and_data_come_from_scores"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "            precision = precision - found[:, shared + 1]\n",
        "",
        unit("test_transport_scores", "test_a_law_is_found_where_the_error_and_slopes_are_unknown"),
    ),
    # unknown errors
    Mutation(
        "transport/error_scale.py",
        "    score[int(table[k, SCALE])] += slope * pull",
        "    score[int(table[k, SCALE])] += pull",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/error_scale.py",
        "    log_det += table[k, ROWS] * grown\n",
        "    log_det += (table[k, ROWS] - 1.0) * grown\n",
        ("statistical/test_errors.py::test_coefficients_and_errors_are_right_far_out",),
    ),
    Mutation(
        "transport/error_scale.py",
        "    log_det += table[k, ROWS] * grown\n",
        "    log_det += grown\n",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/error_scale.py",
        "        if v in done or wide or not trial.left_by(slopes) < LEFT * limits.get(v, 1.0):",
        "        if v in done or wide:",
        unit("test_error_scale", "test_slopes_that_are_not_plain_enough_are_refused"),
    ),
    Mutation(
        "transport/error_scale.py",
        "        rows[:, _POWERS:of_f] = draws.scores.T\n",
        "        rows[:, _POWERS:of_f] = 0.0\n",
        unit("test_error_scale", "test_a_scale_that_correlates_with_coefficients_is_found"),
    ),
    Mutation(
        "transport/learning.py",
        "    if not len(moved) and scales.size and len(exact_groups(training)):\n        return False\n",
        "",
        unit("test_transport_scores", "test_a_scale_of_errors_does_not_hide_that_a_group_is_needed"),
    ),
    Mutation(
        "transport/composition.py",
        "        u, scaled = kept, kept\n",
        "        u, scaled = kept, x\n",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/composition.py",
        "        before = _after_inner(table, latents, inner, z)\n",
        "        before = z\n",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/group.py",
        "            pull -= growth\n",
        "            pull += growth\n",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/grouping/groups.py",
        "                root *= errors[t]\n",
        "",
        unit("test_error_scale", "test_a_group_with_an_error_is_the_same_in_rows_and_where_it_is_learned"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "        factor = inverse * likelihood.precision\n",
        "        factor = inverse\n",
        unit("test_transport_scores", "test_a_law_is_found_where_the_error_and_slopes_are_unknown"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "numbers=not offset), *(_key(group, numbers=True)",
        "numbers=False), *(_key(group, numbers=True)",
        unit("test_transport_scores", "test_what_is_known_of_draws_changes_no_answer"),
    ),
    Mutation(
        "transport/grouping/scores.py",
        "np.flatnonzero(spread < _SAME)",
        "np.flatnonzero(spread > _SAME)",
        unit("test_transport_scores", "test_a_law_is_found_where_the_error_and_slopes_are_unknown"),
    ),
    Mutation(
        "samplers/windowed.py",
        "return int(state.most) if slowest > SLOW[0] else fewer",
        "return more",
        unit("test_fisher_hmc", "test_trajectories_become_long_while_draws_need_it"),
    ),
    Mutation(
        "transport/grouping/choice.py",
        "if needs_no_more(old, draws, variables):\n            return moves",
        "if old:\n            return moves",
        unit("test_refused_questions", "test_groups_that_explain_all_are_kept_as_they_are"),
    ),
    Mutation(
        "transport/grouping/exact_laws.py",
        "not groups or (np.bincount(variables)[left] >= FEWEST).any()",
        "not groups",
        unit("test_refused_questions", "test_groups_are_not_all_that_is_needed_while_a_variable_has_none"),
    ),
    Mutation(
        "transport/grouping/exact_laws.py",
        "    return bool(residual_shares_alone(draws, law.members, others).mean() - CLEAR > EXACT)",
        "    return True",
        unit("test_transport_learning", "test_a_wrong_location_is_put_right"),
    ),
    Mutation(
        "transport/grouping/exact_laws.py",
        "len(groups)]), scales, *members]",
        "len(groups)]), *members]",
        unit("test_refused_questions", "test_it_is_asked_again_where_another_scale_moves"),
    ),
    Mutation(
        "transport/grouping/exact_laws.py",
        "(error < 0 or error not in (*group.scales, group.second))",
        "True",
        unit("test_transport_learning", "test_a_wrong_location_is_put_right"),
    ),
    Mutation(
        "transport/grouping/regressions.py",
        "depends = not square > _DEPENDENT * sizes[k]",
        "depends = False",
        unit("test_score_regressions", "test_shares_and_coefficients_are_those_of_least_squares"),
    ),
    Mutation(
        "transport/grouping/places.py",
        "        strength = -with_candidates()(draws.points[:, coordinates])\n",
        "        strength = with_candidates()(draws.points[:, coordinates])\n",
        unit("test_transport_scores", "test_both_levels_are_learnt_from_scores_in_every_parametrisation"),
    ),
    # evidences
    Mutation(
        "evidence/evidence_estimate.py",
        "at_draws = density.reshape(-1) + log_det - proposal",
        "at_draws = density.reshape(-1) - proposal",
        evidence("test_the_density_in_learnt_coordinates_has_its_jacobian"),
    ),
    Mutation(
        "evidence/evidence_estimate.py",
        "values = _log_densities(posterior, points[inside]) + log_det[inside]",
        "values = _log_densities(posterior, points[inside])",
        evidence("test_the_density_in_learnt_coordinates_has_its_jacobian"),
    ),
    Mutation(
        "evidence/evidence_estimate.py",
        "return (first, second), (second, first)",
        "return (first, first), (second, second)",
        ("statistical/test_evidence_rates.py::test_the_proposal_is_fitted_to_other_draws",),
    ),
    Mutation(
        "evidence/bridge_sampling.py",
        "variance(rest) / effective))",
        "variance(rest) / at_draws.size))",
        evidence("test_errors_are_those_of_draws_that_are_autocorrelated"),
    ),
    Mutation(
        "model/log_constants.py",
        "native.log_density(x, propto=False)",
        "native.log_density(x)",
        evidence("test_an_evidence_that_is_known", "test_bridgestan_is_asked_for_the_constants"),
    ),
    Mutation(
        "model/log_constants.py",
        "_difference(whole, with_dropped) - spheres",
        "_difference(whole, with_dropped)",
        evidence("test_unit_vectors"),
    ),
    Mutation(
        "model/full_densities.py",
        'yield Edit(token.start, token.end, f"{found[1]}_lp{found[2]}")',
        "pass",
        unit("test_full_densities", "test_statements"),
    ),
    Mutation(
        "model/full_densities.py",
        'for block, bodies in (("functions", self.bodies()), ',
        "for block, bodies in (",
        unit("test_full_densities", "test_functions_that_the_program_defines"),
    ),
    # inputs, and draws as a frame
    Mutation(
        "result/formats/tidy_draws.py",
        "+ first + int(index[0, 1]) - 1",
        "+ int(index[0, 1]) - 1",
        unit("test_tidy_draws", "test_warm_up_comes_before_the_draws_of_each_chain"),
    ),
    Mutation(
        "model/labelled_data.py",
        "return codes.astype(np.int64) + 1",
        "return codes.astype(np.int64)",
        unit("test_labelled_data", "test_columns_sizes_and_levels"),
    ),
    Mutation(
        "model/known_levels.py",
        "from_codes(moved[codes],",
        "from_codes(codes,",
        unit("test_known_levels", "test_a_level_is_the_one_of_its_name"),
    ),
    Mutation(
        "diagnostics/table.py",
        "mean = flat @ w",
        "mean = flat.mean(axis=1)",
        ("end_to_end/test_approximations.py::test_a_summary_takes_draws_by_their_weights",),
    ),
    Mutation(
        "model/includes.py",
        "(folder, self.folder, *self.include_paths)",
        "(self.folder, folder, *self.include_paths)",
        unit("test_includes", "test_the_nearest_file_comes_first"),
    ),
    Mutation(
        "model/includes.py",
        'number += code.count("\\n", place, token.start())',
        'number += code.count("\\n", 0, token.start())',
        unit("test_includes", "test_errors_after_includes_name_the_line_of_the_program"),
    ),
    Mutation(
        "run/inits.py",
        "SeedSequence(seed, spawn_key=(_SPAWN_KEY, chain))",
        "SeedSequence(seed, spawn_key=(_SPAWN_KEY,))",
        unit("test_inits", "test_a_function_of_the_chain_and_a_generator"),
    ),
    Mutation(
        "model/backends/stan/native.py",
        "with no_prints(), without_notes(), checked_divisions():",
        "with without_notes(), checked_divisions():",
        ("end_to_end/test_prints.py::test_lines_come_once_with_their_chain",),
    ),
    Mutation(
        "predictive/generation.py",
        "    out[:, :p] = flat\n",
        "",
        unit("test_generate_quantities", "test_copies_are_the_draws"),
    ),
    Mutation(
        "predictive/generation.py",
        "spawn_key=(_SPAWN_KEY, chain)",
        "spawn_key=(_SPAWN_KEY,)",
        unit("test_generate_quantities", "test_a_draw_has_its_numbers_whatever_is_beside_it"),
    ),
    Mutation(
        "model/backends/stan/native.py",
        "failed[rows] = parts < len(_PARTS)",
        "failed[rows] = False",
        unit("test_generate_quantities", "test_quantities_that_fail_are_told"),
    ),
    Mutation(
        "diagnostics/goals.py",
        "seen.not_before if seen is not None and seen.rows == rows else 0.0",
        "0.0",
        ("end_to_end/test_goals.py::test_looks_that_cannot_be_good_yet_are_left_out",),
    ),
    Mutation(
        "predictive/log_prior.py",
        " - transforms.log_density(point)",
        "",
        unit("test_prior_predictive", "test_the_log_prior_of_a_fit"),
    ),
    Mutation(
        "model/likelihood.py",
        "if term.parameters and (term.observed or term.depends):",
        "if False:",
        unit("test_likelihood", "test_what_cannot_be_told_is_refused"),
    ),
    Mutation(
        "transport/effects_factor.py",
        "log_det -= _log_diagonal(factor)",
        "log_det -= 0.9 * _log_diagonal(factor)",
        ("statistical/test_effects.py::test_scales_and_the_correlation_have_their_law",),
    ),
    Mutation(
        "transport/effects_factor.py",
        "_add_product(by_f, 1.0, along[i], pull[i])",
        "_add_product(by_f, -1.0, along[i], pull[i])",
        unit("test_correlated_effects", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/effects_factor.py",
        "log_rest = _log_sech(turned)",
        "log_rest = 0.5 * _log_sech(turned)",
        unit("test_correlated_effects", "test_effects_are_standard_normal_where_data_are_normal"),
    ),
    Mutation(
        "transport/effects_factor.py",
        "by_effects[i, j] *= sign",
        "by_effects[i, j] *= 1.0",
        unit("test_correlated_effects", "test_so_has_the_map_of_several_factors"),
    ),
    Mutation(  # the exact law of two levels is left to groups
        "transport/fields/effects_fit.py",
        "if of_groups and space.quadratic and space.tied:",
        "if of_groups and space.quadratic and not space.tied:",
        unit(
            "test_correlated_effects",
            "test_intercepts_and_slopes_that_data_do_not_tie_are_two_factors",
            "test_programs_of_another_form_have_none",
        ),
    ),
    Mutation(  # some scales are bounded sharply
        "transport/fields/head_law.py",
        "1.2, 2.4, 4.0, 8.0, 16.0])",
        "1.2, 2.4, 4.0])",
        unit(
            "test_transport_bend",
            "test_a_bend_that_is_fitted_to_a_log_density_makes_a_law_nearly_normal",
        ),
    ),
    Mutation(
        "numerics/field_search.py",
        "if left < GOOD:",
        "if left < np.inf:",
        unit("test_field_arrival", "test_a_field_is_given_up_where_draws_are_better_off_without_it"),
    ),
    Mutation(
        "transport/fields/effects_fit.py",
        "(logs[0] - logs[1]) / ((ends[2] - ends[0]) * power)",
        "(logs[1] - logs[0]) / ((ends[2] - ends[0]) * power)",
        unit("test_correlated_effects", "test_nested_factors_have_a_law_each"),
    ),
    Mutation(
        "transport/fields/effects_fit.py",
        "cross=matrix.cross + _times(self.priors[0], slopes[0]),",
        "cross=matrix.cross - _times(self.priors[0], slopes[0]),",
        ("statistical/test_effects.py::test_several_factors_have_the_same_law_in_both_forms",),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "orders.append(np.argsort(by_columns))",
        "orders.append(by_columns[::-1])",
        unit("test_correlated_effects", "test_the_order_of_correlations_is_that_of_stan"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "if not np.linalg.norm(left) <= _WRONG * np.linalg.norm(change):",
        "if np.linalg.norm(left) > 1e9 * np.linalg.norm(change):",
        unit("test_correlated_effects", "test_effects_are_found_with_their_scales_and_correlations"),
    ),
    Mutation(
        "transport/effects_factor.py",
        "return (small if u > 0.0 else 1.0) / (1.0 + small)",
        "return 1.0",
        unit("test_correlated_effects", "test_so_has_the_map_where_scales_have_an_upper_bound"),
    ),
    Mutation(
        "transport/weights.py",
        "by_target = by_scale[own] * share[own] - vectors[4, own] * by_all",
        "by_target = by_scale[own] * share[own]",
        unit("test_weights", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/weights.py",
        "by_error += 0.5 * (by_scale[i] - by_width + by_pull[i] * pull[i] - from_prior)",
        "by_error += 0.5 * (by_scale[i] - by_width + by_pull[i] * pull[i])",
        unit("test_weights", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/weights.py",
        "if flat[at[1] + i] != CENTRED:",
        "if True:",
        unit("test_weights", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/weights.py",
        "for m in range(whole, i):",
        "for m in range(whole, 0):",
        unit("test_weights", "test_so_has_that_of_many_weights"),
    ),
    Mutation(
        "transport/fields/weight_space.py",
        "if not (taken & moved).any():",
        "if True:",
        unit("test_weights", "test_scales_of_one_weight_each_are_looked_at_together"),
    ),
    Mutation(
        "transport/fields/weight_space.py",
        "far = _BEYOND if",
        "far = _BEYOND[:0] if",
        unit("test_weights", "test_a_weight_with_a_small_scale_has_its_limit_and_its_data"),
    ),
    Mutation(
        "transport/fields/centred_weights.py",
        "return sum(found) if len(found) in (1, 2) else np.nan",
        "return found[-1]",
        unit("test_weights", "test_weights_of_centred_programs_are_turned_to_the_other_form"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "if is_right and np.sqrt(np.mean(np.square(of_terms))) < _WRONG:",
        "if is_right:",
        unit(
            "test_innovations", "test_a_regression_with_some_precise_coefficients_is_no_series_of_innovations"
        ),
    ),
    Mutation(
        "transport/fields/weights_search.py",
        "found[:, n_weights:] = np.array([diagonals[0], scores[0]]) - changes",
        "found[:, n_weights:] = 0.0 * changes",
        unit("test_weights", "test_weights_are_standard_normal_where_data_are_normal"),
    ),
    Mutation(
        "transport/fields/weights_search.py",
        "found.append((own, z * density.unit))",
        "found.clear()",
        unit("test_weights", "test_far_out_data_that_are_not_normal_are_those_at_the_mode"),
    ),
    Mutation(
        "transport/fields/probes.py",
        "yield own.reshape(-1, k).T",
        "yield own.reshape(k, -1)",
        unit("test_innovations", "test_a_matrix_has_a_series_in_each_column_or_row"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "own[:, :-lag] -= one[lag:] * answers[:, lag:]",
        "own[:, :-lag] += one[lag:] * answers[:, lag:]",
        unit("test_innovations", "test_a_term_may_depend_on_the_two_before"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "(place is None or _is_head_missing(precision, place))",
        "place is None",
        unit("test_innovations", "test_a_head_that_hardly_changes_the_diagonal_is_found"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "kept = long or [n for n in found if _are_in_groups(density, x, of_each[n])]",
        "kept = long or found",
        unit(
            "test_innovations", "test_a_centred_walk_with_precise_data_and_a_gap_is_no_series_of_innovations"
        ),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "return have_ties(density, x, own, len(own) // 2 + 1, NOISE)",
        "return True",
        unit("test_innovations", "test_a_short_series_alone_has_a_law_where_its_regressions_have_a_head"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "if not laws or (is_short and not any(len(np.setdiff1d(law.heads, scales)) for law in laws)):",
        "if not laws:",
        unit("test_innovations", "test_a_short_series_alone_has_a_law_where_its_regressions_have_a_head"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "return len(large) == 1 and large[0]",
        "return len(large) >= 1 and large[-1]",
        unit("test_innovations", "test_a_short_series_alone_has_a_law_where_its_regressions_have_a_head"),
    ),
    Mutation(
        "transport/fields/probes.py",
        "LEAST_ALONE = 6",
        "LEAST_ALONE = 15",
        ("statistical/test_fields.py::test_a_series_of_few_years_has_the_law_of_its_scales",),
    ),
    Mutation(
        "transport/fields/several.py",
        "return bool(sizes[sizes >= SHORTEST].sum() >= max(fewest, TIED * n))",
        "return bool(sizes.max() >= max(fewest, TIED * n))",
        unit("test_innovations", "test_series_that_data_do_not_tie_have_one_field"),
    ),
    Mutation(
        "transport/fields/several.py",
        "possible = np.setdiff1d(np.flatnonzero(tied.may_be_head), list(locations))",
        "possible = np.flatnonzero(tied.may_be_head)[:3]",
        unit("test_tied_series", "test_each_series_has_its_scale_and_that_of_the_noise"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return series_at(density, x, own) is not None",
        "return True",
        unit("test_tied_series", "test_coefficients_that_data_tie_are_no_series"),
    ),
    Mutation(
        "transport/fields/several.py",
        "heads = choose_heads(strengths, FAINT_HEAD)\n    if not len(heads):\n        return None",
        "return None",
        unit("test_tied_series", "test_faint_heads_are_those_of_a_series_without_others"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "np.sqrt(np.mean(np.square(moved - common * here)))",
        "np.sqrt(np.mean(np.square(moved - here)))",
        unit("test_correlated_effects", "test_the_scale_of_errors_turns_no_axes"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return Precision(density, coupling, heads).cost, len(heads)",
        "return 10 * Precision(density, coupling, heads).cost, len(heads)",
        unit("test_tied_series", "test_few_data_leave_one_field"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return _tied_to(coupling, own, possible[elsewhere == 0])",
        "return _tied_to(coupling, own, possible)",
        unit("test_tied_series", "test_the_mean_of_a_series_is_a_latent_of_its_field"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return len(choose_heads(self.of_heads, most=len(self.of_heads))) > MOST_OF_ONE",
        "return len(choose_heads(self.of_heads)) > MOST_OF_ONE",
        unit("test_tied_series", "test_the_mean_of_a_series_is_a_latent_of_its_field"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "has_few = tied is not None and _has_few_effects(coupling, variables, tied)",
        "has_few = False",
        unit("test_effects_beside_series", "test_few_effects_are_found"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        " and not _are_data(coupling, own.ravel(), tied)",
        "",
        unit("test_effects_beside_series", "test_missing_data_of_a_series_are_no_effects"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "        and any(one.min() == 1 for one in terms)\n",
        "",
        unit("test_effects_beside_series", "test_few_effects_are_found"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "factors_of(coupling, variables, LEAST_GROUPS, np.union1d(latents, heads))",
        "factors_of(coupling, variables, LEAST_EFFECTS, np.union1d(latents, heads))",
        unit("test_effects_beside_series", "test_few_effects_are_found"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "if len(more) > MOST_HEADS and are_all_series(coupling, variables):",
        "if False:",
        unit("test_many_heads", "test_all_scales_of_five_walks_and_noise_are_heads_of_one_field"),
    ),
    Mutation(
        "transport/fields/common_scale.py",
        "if np.all(are_multiplied | (np.abs(of_each) < _RATE_ERROR)):",
        "if are_multiplied.any():",
        unit("test_common_scale", "test_what_changes_with_a_scale_in_another_way_is_left"),
    ),
    Mutation(
        "transport/fields/common_scale.py",
        "rates -= 0.5 * rates[[0, 1], places][:, None]  # of the column's own coordinate",
        "rates *= 0.5",
        unit("test_common_scale", "test_those_without_the_scale_keep_their_units"),
    ),
    Mutation(
        "transport/fields/common_scale.py",
        "middle[own] = 0.0",
        "pass",
        unit("test_common_scale", "test_latents_are_normal_at_all_scales"),
    ),
    Mutation(
        "transport/fields/innovation_law.py",
        "    if first.size:",
        "    if False:",
        unit("test_innovations", "test_the_first_term_has_its_scale_whatever_the_bounds_of_phi"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "reach[k] = max(reach[k], min(_WIDE, _FAR * _MOVE * unit[k] / size))",
        "pass",
        unit("test_innovations", "test_the_series_is_known_far_from_a_point_at_which_data_hold_it"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "changing = [np.setdiff1d(heads, scales) for heads, _ in groups]",
        "changing = [heads for heads, _ in groups]",
        unit("test_innovations", "test_the_series_is_known_wherever_its_head_is"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "for at in (x, x + _AWAY * ~is_own):",
        "for at in (x,):",
        unit("test_innovations", "test_a_field_of_a_short_series_has_its_heads"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "of_heads |= dict.fromkeys(heads.tolist(), np.inf)",
        "pass",
        unit("test_innovations", "test_a_field_of_a_short_series_has_its_heads"),
    ),
    Mutation(
        "numerics/score_matching.py",
        "in_none = points[~np.any(parts, axis=0)]",
        "in_none = points[:0]",
        unit("test_score_matching", "test_fits_without_each_part_are_those_to_what_is_left"),
    ),
    Mutation(
        "simulators/priors.py",
        "return fast if agrees else slow",
        "return fast",
        ("end_to_end/test_simulation.py::test_densities_of_priors_are_scipys",),
    ),
    Mutation(
        "transport/fields/innovation_law.py",
        "coefficients[0] += mid[j] * scaled",
        "coefficients[0] += 0.0 * scaled",
        unit("test_common_scale", "test_the_point_in_its_units"),
    ),
    Mutation(
        "transport/fields/several.py",
        "len(pairs) == k * (k - 1)",
        "len(pairs) > 0",
        unit("test_tied_series", "test_series_are_told_from_a_grid"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return series, (counts < SHORTEST) | np.isin(counts, list(_numbers_of_series(series)))",
        "return series, counts < SHORTEST",
        unit("test_tied_series", "test_a_matrix_with_many_scales_has_a_field_for_each_series"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "is_small = np.bincount(variables)[variables] < SHORTEST",
        "is_small = np.bincount(variables)[variables] < 0",
        unit("test_tied_series", "test_the_scale_of_first_terms_is_a_head_where_there_is_no_mode_without_it"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "variables, of_one, whole=tied is None,",
        "variables, of_one,",
        unit(
            "test_fields_given_effects",
            "test_scales_of_few_latents_are_no_heads_where_series_may_have_a_law_each",
        ),
    ),
    Mutation(
        "transport/fields/beside_effects.py",
        "return again if off_again < off else found, taken + more",
        "return again, taken + more",
        unit("test_fields_given_effects", "test_what_is_better_by_the_scores_stays"),
    ),
    Mutation(
        "transport/fields/beside_effects.py",
        "whole = ScaledDensity(density_in(effects), unit, limit)",
        "whole = ScaledDensity(density_in(effects[:0]), unit, limit)",
        unit(
            "test_fields_given_effects",
            "test_the_law_of_a_walk_depends_on_the_scale_of_effects_that_follow_it",
        ),
    ),
    Mutation(
        "transport/fields/rotation_search.py",
        "if abs(levels[0] - levels[1]) < _SAME * abs(levels[0]):",
        "if levels:",
        unit("test_field_learning", "test_a_soft_sum_to_zero_is_kept_apart"),
    ),
    Mutation(
        "transport/fields/other_laws.py",
        "if found is None or not _are_along(found, rotations):",
        "if found is None:",
        unit("test_correlated_effects", "test_nothing_is_turned_for_effects_that_need_no_axes"),
    ),
    Mutation(
        "transport/fields/several_learning.py",
        "if is_first and len(again) == _TRIED:",
        "if False:",
        unit("test_several_learning", "test_many_series_have_no_fields_if_the_first_ones_have_none"),
    ),
    Mutation(
        "transport/fields/several_learning.py",
        "if more > each:",
        "if False:",
        unit("test_several_learning", "test_a_series_for_which_gradients_were_too_few_gets_what_is_left"),
    ),
    Mutation(
        "transport/fields/worth.py",
        "divergence = 0.5 * (np.sum(covariance * precision) - n - change)",
        "divergence = 0.25 * (np.sum(covariance * precision) - n - change)",
        unit("test_several_learning", "test_latents_that_tell_much_of_a_head"),
    ),
    Mutation(
        "transport/fields/several.py",
        "self._taken = 1.0 - 1.0 / series - (_REACH**-2 - 1.0 / series) * left",
        "self._taken = 1.0 - _REACH**-2 * left",
        unit(
            "test_several_fields", "test_what_many_series_tell_of_a_shared_head_is_loosened_where_it_is_much"
        ),
    ),
    Mutation(
        "transport/fields/several.py",
        "return float(left) if slope**2 < _FAR**2 * left else 0.0",
        "return float(left)",
        unit("test_several_fields", "test_it_is_not_where_the_head_is_far_from_its_mode"),
    ),
    Mutation(
        "transport/fields/common_scale.py",
        "are_multiplied = is_known & (np.abs(of_each - 1.0) < _RATE_ERROR)",
        "are_multiplied = ~is_known | (np.abs(of_each - 1.0) < _RATE_ERROR)",
        unit("test_common_scale", "test_latents_of_which_data_say_nothing_are_left"),
    ),
    Mutation(
        "transport/fields/several.py",
        "return Part(places, part, of_part, among, among, alone=False)",
        "return Part(places, part, of_part, among[:1], among[:1], alone=False)",
        unit("test_tied_series", "test_scores_are_normal_given_the_other_latents"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "regressions[0, 1] = rho[2]",
        "regressions[0, 1] = rho[0]",
        unit("test_innovations", "test_a_term_may_depend_on_the_two_before"),
    ),
    # effects beside fields
    Mutation(
        "transport/composition.py",
        "    innovations.into_u(table, u)\n    effects.pull_back(",
        "    effects.pull_back(",
        unit("test_effects_beside_series", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "rates = np.log(ahead[told] / curvature[told]) / move",
        "rates = np.log(curvature[told] / ahead[told]) / move",
        unit("test_effects_beside_series", "test_effects_are_standard_normal_wherever_all_else_is"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "len(field) and _root_mean_square",
        "not len(field) and _root_mean_square",
        unit("test_effects_beside_series", "test_the_map_has_an_inverse_a_determinant_and_derivatives"),
    ),
    Mutation(
        "transport/field_table.py",
        "        if np.isin(np.concatenate((own, heads)), own_effects).any():",
        "        if np.isin(own, own_effects).any():",
        unit("test_effects_beside_series", "test_a_map_has_each_coordinate_in_one_of_the_laws"),
    ),
    Mutation(
        "numerics/field_search.py",
        "with_effects > POOR * _divergence(",
        "POOR * with_effects < _divergence(",
        unit("test_effects_beside_series", "test_effects_are_given_up_where_the_field_does_better_alone"),
    ),
    Mutation(
        "transport/fields/innovation_search.py",
        "long = [n for n in found if _has_many_ties",
        "long = [n for n in found if not _has_many_ties",
        unit("test_effects_beside_series", "test_pairs_of_effects_are_no_series"),
    ),
    Mutation(
        "transport/effects.py",
        "_rotate(table, score, False)",
        "_rotate(table, score, True)",
        unit("test_correlated_effects", "test_so_has_the_map_with_rotations"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "max(right, key=lambda one: float(one.log_units.sum()))",
        "min(right, key=lambda one: float(one.log_units.sum()))",
        unit(
            "test_correlated_effects",
            "test_scales_of_effects_and_errors_with_upper_bounds_do_not_change_places",
        ),
    ),
    Mutation(
        "transport/fields/head_bends.py",
        "points.append((float(there[others[a]]), height - top))",
        "points.append((float(there[others[a]]), top - height))",
        unit("test_correlated_effects", "test_scales_with_a_long_tail_get_a_bend"),
    ),
    Mutation(
        "model/program.py",
        "ordered += sorted(own, key=functools.partial(_place_of, n_array=n_array)) if n_array else own",
        "ordered += own",
        unit("test_program", "test_names_of_coordinates_are_those_of_the_values_they_have"),
    ),
    # several fields
    Mutation(
        "transport/field.py",
        "return k + int(table[k, ROWS]) if table[k, MORE] > 0.0 else len(table)",
        "return len(table)",
        unit("test_transport_field", "test_two_fields_have_latents_of_their_own"),
    ),
    Mutation(
        "transport/fields/several.py",
        "    if len(of_one) <= MOST_HEADS:\n        return []\n",
        "",
        unit("test_several_fields", "test_few_heads_need_no_parts"),
    ),
    Mutation(
        "transport/fields/several.py",
        "if 0.0 < there < _LESS * held:",
        "if there < 0.0:",
        unit("test_several_fields", "test_heads_are_looked_at_where_their_own_law_holds_them_least"),
    ),
    Mutation(
        "transport/fields/several.py",
        "not depends[heads.astype(np.int64)].any(),",
        "True,",
        unit("test_several_fields", "test_the_law_of_heads_is_learned_where_they_depend_on_nothing_else"),
    ),
    Mutation(
        "transport/fields/several_learning.py",
        "log_scale[places] += np.log(own.scale)",
        "log_scale += np.log(own.scale).sum()",
        unit("test_several_fields", "test_all_latents_are_normal_in_the_coordinates_of_their_fields"),
    ),
    Mutation(
        "transport/fields/heads.py",
        "if left is None or not left < min(_FOLLOWED * at_x[k], _LEFT):",
        "if left is None or left < min(_FOLLOWED * at_x[k], _LEFT):",
        unit("test_heads", "test_a_location_is_no_head"),
    ),
    Mutation(
        "transport/field_table.py",
        "rows[0, MORE] = 1.0",
        "rows[0, MORE] = 0.0",
        unit("test_innovations", "test_series_with_regressions_of_their_own_have_a_law_each"),
    ),
    Mutation(
        "transport/grouping/exact_laws.py",
        "if columns.shape[1]",
        "if len(columns)",
        unit("test_transport_learning", "test_a_variable_whose_only_neighbour_is_larger_has_no_location"),
    ),
    Mutation(
        "transport/error_scale.py",
        "slope *= part / (floor + part)",
        "slope *= part",
        unit("test_error_scale", "test_laws_one_after_another_have_their_determinant_inverse_and_scores"),
    ),
    Mutation(
        "transport/error_scale.py",
        "        and bool(np.all((floors >= 0.0) & (floors < 1.0)))\n",
        "",
        unit("test_error_scale", "test_a_part_that_is_no_share_is_refused"),
    ),
    Mutation(
        "transport/fields/coefficient_widths.py",
        "np.expm1(2.0 * power * away)",
        "np.expm1(power * away)",
        unit("test_coefficient_widths", "test_the_mean_of_groups_has_the_variance_of_effects_in_part"),
    ),
    Mutation(
        "transport/fields/coefficient_widths.py",
        "    if not _difference(changes, here, factors) < _BETTER * without:\n        return none\n",
        "",
        unit("test_coefficient_widths", "test_coefficients_whose_correlation_changes_have_no_law"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "judge_law(density, inner, z, top, own, heads, latents",
        "judge_law(density, inner, z, top, own, heads[:0], latents",
        unit("test_correlated_effects", "test_a_correlation_that_may_be_near_one_gets_a_bend"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "coefficients = np.setdiff1d(apart, heads)",
        "coefficients = np.setdiff1d(others, heads)",
        unit("test_coefficient_widths", "test_what_may_be_turned_is_no_coefficient"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "int(k): law.power * slope_of_log(law.bounded, z[k])",
        "int(k): law.power",
        unit("test_coefficient_widths", "test_the_mean_of_groups_has_the_variance_of_effects_in_part"),
    ),
    Mutation(
        "transport/learning.py",
        "kept = np.concatenate((fields.moved_by(field), coordinates_of(widths)))",
        "kept = fields.moved_by(field)",
        unit("test_coefficient_widths", "test_later_windows_keep_it_and_move_it_no_more"),
    ),
    Mutation(
        "transport/composition.py",
        "used = np.concatenate((coordinates_of(table[~beside]), table[beside, OWN]))",
        "used = coordinates_of(table[~beside])",
        unit("test_coefficient_widths", "test_no_other_law_moves_latents_or_bent_heads"),
    ),
    Mutation(
        "numerics/field_search.py",
        "without = np.asarray(others[~have_scale_of_effects(others)])",
        "without = others",
        unit("test_coefficient_widths", "test_it_goes_where_effects_are_given_up"),
    ),
    Mutation(
        "comparisons/measures.py",
        'return int(adaptation["evaluations_warmup"].sum() + of_searches)',
        'return int(adaptation["evaluations_warmup"].sum())',
        ("end_to_end/test_comparisons.py::test_searches_for_coordinates_are_paid_from_the_budget",),
    ),
    Mutation(
        "transport/fields/laplace.py",
        "if factor is not None and (precision.dense or not precision.quadratic):",
        "if factor is not None and precision.dense:",
        unit("test_field_modes", "test_a_mode_near_another_takes_one_precision"),
    ),
    Mutation(
        "target.py",
        "if code == 0 and np.isfinite(value) and np.isfinite(score).all()",
        "if code == 0 and np.isfinite(value)",
        unit("test_python_target", "test_a_gradient_that_is_not_there_has_no_density_and_is_not_counted"),
    ),
    Mutation(
        "transport/fields/design.py",
        "for mode in self._modes[known:]]",
        "for mode in self._modes[:1]]",
        unit("test_field_learning", "test_deviations_are_those_of_all_modes_of_a_design_that_has_grown"),
    ),
    Mutation(
        "transport/fields/precision.py",
        "products[:, self.latents] - self._in_probes",
        "products[:, self.latents]",
        unit("test_field_learning", "test_precision_and_factor_are_those_of_the_dense_hessian"),
    ),
    Mutation(
        "transport/fields/least_squares.py",
        "np.multiply(columns[k], columns[k:], out",
        "np.multiply(columns[0], columns[k:], out",
        unit("test_field_learning", "test_normal_equations_give_what_least_squares_do"),
    ),
    Mutation(
        "transport/fields/least_squares.py",
        "    for _ in range(2):",
        "    for _ in range(1):",
        unit("test_field_learning", "test_normal_equations_give_what_least_squares_do"),
    ),
    Mutation(
        "transport/fields/several.py",
        "            hubs[own] = False",
        "            pass",
        unit("test_structures", "test_terms_of_a_series_are_no_heads_of_what_they_are_factors_of"),
    ),
    Mutation(
        "transport/fields/several.py",
        "if sum(times[k] > 1 for k in heads) > MOST_HEADS:",
        "if False:",
        unit("test_structures", "test_parts_that_share_all_heads_are_no_series"),
    ),
    Mutation(
        "numerics/field_search.py",
        "if before and shrunk < _SHRUNK:",
        "if False:",
        unit("test_field_arrival", "test_a_chain_gives_up_a_field_in_which_its_steps_have_shrunk"),
    ),
    Mutation(
        "samplers/windowed.py",
        "step_before=state.step_size,",
        "step_before=0.0,",
        unit("test_field_arrival", "test_a_chain_remembers_its_steps_when_it_moves_to_a_field"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "if not tied and (len(found.heads) < HEADS_OF_UNTIED or not len(strong)):",
        "if not tied:",
        unit(
            "test_structures", "test_latents_that_nothing_ties_have_a_field_if_they_have_three_strong_heads"
        ),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "HEADS_OF_UNTIED = 15, 3",
        "HEADS_OF_UNTIED = 15, 1",
        unit("test_structures", "test_groups_with_two_scales_have_no_field"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "if len(strong) > len(found.heads):",
        "if False:",
        unit("test_structures", "test_a_field_that_would_lack_a_strong_head_is_not_taken"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "    scale[own] = found.scale[own]\n",
        "",
        unit("test_structures", "test_a_walk_beside_latents_that_are_not_normal_has_a_field_alone"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "COST_OF_FIVE = 20",
        "COST_OF_FIVE = 0",
        unit("test_structures", "test_a_series_has_a_weak_fifth_head_if_its_precision_is_cheap"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "    if own and known is None and not rotated:\n",
        "    if False:\n",
        unit(
            "test_structures", "test_columns_of_a_matrix_are_effects_of_one_factor_with_scales_of_their_own"
        ),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "for own in one if len(own) not in scales]",
        "for own in one]",
        unit(
            "test_structures", "test_columns_of_a_matrix_are_effects_of_one_factor_with_scales_of_their_own"
        ),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "    if own and known is None and not rotated:\n",
        "    if not rotated:\n",
        unit("test_structures", "test_an_interaction_with_one_scale_is_one_factor"),
    ),
    Mutation(
        "transport/fields/several_learning.py",
        "(times == 0) & is_far",
        "times == 0",
        unit(
            "test_several_learning",
            "test_what_is_outside_of_all_parts_begins_with_its_unit_if_that_is_far_from_1",
        ),
    ),
    Mutation(
        "transport/fields/several.py",
        "own = own._replace(wide=hubs[places] | (own.wide & is_few))",
        "pass",
        unit("test_structures", "test_latents_that_are_all_tied_are_no_heads_of_their_part"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "in ((True, False), (False, False), (True, True)):",
        "in ((True, False), (False, False)):",
        unit("test_correlated_effects", "test_scales_may_be_multiplied_with_a_number"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "in ((True, False), (False, False), (True, True)):",
        "in ((True, False), (True, True), (False, False)):",
        unit("test_correlated_effects", "test_intercepts_and_slopes_that_data_do_not_tie_are_two_factors"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "held = are_stiff(here)",
        "pass",
        unit("test_correlated_effects", "test_effects_with_a_soft_sum_are_turned"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "for k, bounded, ends in of_errors if not apart else []:",
        "for k, bounded, ends in []:",
        unit("test_correlated_effects", "test_the_scale_of_errors_changes_a_share_of_what_data_tell"),
    ),
    Mutation(
        "transport/fields/effects_fit.py",
        "powers, shares = -rates[:, 0], share_at(log_scale, factor.shares)[None]",
        "powers, shares = -rates[:, 0], factor.shares[None]",
        unit("test_correlated_effects", "test_the_scale_of_errors_changes_a_share_of_what_data_tell"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "return found if better is None else better",
        "return better",
        unit("test_correlated_effects", "test_a_share_that_misleads_far_from_the_mode_is_left_out"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "if found is None or alone is factors:",
        "if alone is factors:",
        unit(
            "test_structures", "test_latents_that_nothing_ties_have_a_field_if_they_have_three_strong_heads"
        ),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "changes += apart",
        "pass",
        unit("test_correlated_effects", "test_means_and_scales_of_four_effects_are_not_four_groups"),
    ),
    Mutation(
        "transport/effects_factor.py",
        "total += flat[first + i] * by_rates[i]",
        "total += flat[first] * by_rates[i]",
        unit("test_correlated_effects", "test_so_has_the_map_where_different_data_tell_effects"),
    ),
    Mutation(
        "transport/effects_table.py",
        "if law.precision[:, are_told_apart(law.rates)].any():",
        "if False:",
        unit("test_correlated_effects", "test_rows_from_a_file_that_hold_no_law_are_refused"),
    ),
    Mutation(
        "transport/fields/effects_search.py",
        "if known is None and len(effects) < len(own):",
        "if False:",
        unit("test_correlated_effects", "test_means_and_scales_of_four_effects_are_not_four_groups"),
    ),
    Mutation(
        "transport/fields/effects_fit.py",
        "found[:, ~stiff] = _blocks_at_all(density, own[~stiff], points)",
        "pass",
        unit("test_correlated_effects", "test_effects_with_a_soft_sum_are_turned"),
    ),
    Mutation(
        "transport/fields/rotation_search.py",
        "if not all(one.max() < _ALL_SAME for one in far):",
        "if True:",
        unit("test_correlated_effects", "test_effects_with_a_soft_sum_are_turned"),
    ),
    Mutation(
        "transport/fields/rotation_search.py",
        "is_turned = _have_scale(density, x, own, variables)",
        "pass",
        unit(
            "test_correlated_effects", "test_effects_that_are_all_tied_are_looked_for_where_a_scale_is_seen"
        ),
    ),
    Mutation(
        "numerics/field_search.py",
        "taken <= CHEAP * draws * gradients",
        "draws",
        unit(
            "test_field_learning",
            "test_a_chain_that_takes_many_gradients_looks_again_after_cheap_searches_in_vain",
        ),
    ),
    Mutation(
        "transport/fields/several.py",
        "choose_heads(without_locations(part, x[places], own, of_part))",
        "choose_heads(of_part)",
        unit("test_structures", "test_means_of_series_are_latents_of_one_field_with_their_scale_as_a_head"),
    ),
    Mutation(
        "transport/fields/several.py",
        "may_be_scale[narrow[on == len(own)]] = True",
        "pass",
        unit("test_structures", "test_means_of_series_are_latents_of_one_field_with_their_scale_as_a_head"),
    ),
    Mutation(
        "transport/fields/several.py",
        "of_tied[narrow[on == len(own)]] |= coupling.pattern[own][:, own].nnz > len(own)",
        "pass",
        unit("test_structures", "test_effects_that_are_tied_have_no_scale_of_few_in_a_field_for_all"),
    ),
    Mutation(
        "transport/fields/several.py",
        "if len(np.intersect1d(first, second)) > MOST_HEADS:",
        "if False:",
        unit("test_structures", "test_series_with_the_same_heads_are_not_divided"),
    ),
    Mutation(
        "transport/fields/several.py",
        "apart = _divide_apart(pattern)",
        "apart: list[np.ndarray] = []",
        unit("test_structures", "test_series_that_nothing_ties_are_told_from_columns_of_one"),
    ),
    Mutation(
        "transport/fields/heads.py",
        "while len(found) < known:",
        "while False:",
        unit("test_structures", "test_means_of_series_are_latents_of_one_field_with_their_scale_as_a_head"),
    ),
    Mutation(
        "transport/fields/precision.py",
        "_colours_of_most(between)[permuted]",
        "colours_of(between)[permuted]",
        unit("test_field_learning", "test_columns_with_many_entries_have_a_probe_alone"),
    ),
    Mutation(
        "transport/fields/precision.py",
        "data[self._transpose[self._from_alone]] = data[self._from_alone]",
        "pass",
        unit("test_field_learning", "test_columns_with_many_entries_have_a_probe_alone"),
    ),
    Mutation(
        "transport/fields/several.py",
        "matrix.diagonal()[own]) > _FAR_WITH_OTHERS",
        "matrix.diagonal()[own]) > 0.0",
        unit("test_effects_beside_series", "test_few_effects_are_found"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "if tied and 0 < len(few) <= MOST_HEADS - len(found.heads):",
        "if False:",
        unit("test_structures", "test_means_of_series_are_latents_of_one_field_with_their_scale_as_a_head"),
    ),
    Mutation(
        "numerics/kinks.py",
        "        if not variances[-1]:\n            return False, gradients\n",
        "",
        unit("test_kinks", "test_a_smooth_density_costs_one_line"),
    ),
    Mutation(
        "numerics/kinks.py",
        "if changes[-1] > _LEFT * changes[-1 - _LAST] else 0.0",
        "",
        unit("test_kinks", "test_where_there_is_none_that_matters_none_is_seen"),
    ),
    Mutation(
        "numerics/kinks.py",
        "rest = np.abs(changes - smooth)",
        "rest = np.abs(changes)",
        unit("test_kinks", "test_a_smooth_density_costs_one_line"),
    ),
    Mutation(
        "numerics/kinks.py",
        "(_ERROR * step_size / far) ** 2",
        "_ERROR**2",
        unit("test_kinks", "test_kinks_that_make_no_steps_short_are_not_the_reason"),
    ),
    Mutation(
        "samplers/windowed.py",
        "np.ceil(settings.trajectory / state.step_size))) if state.kinks else MANY",
        "MANY)) if state.kinks else MANY",
        unit("test_kinks", "test_with_kinks_trajectories_are_as_long_as_those_of_a_gaussian"),
    ),
    Mutation(
        "samplers/windowed.py",
        "state = state._replace(kinks=state.kinks or lesson.kinks)",
        "",
        unit("test_kinks", "test_a_run_takes_long_steps"),
    ),
    Mutation(
        "samplers/fisher_hmc.py",
        "settings.kinks_accept if state.kinks else",
        "",
        unit("test_kinks", "test_a_run_takes_long_steps"),
    ),
    Mutation(
        "diagnostics/findings.py",
        'settings_of(attrs).get("kinks_accept", target)',
        "target",
        unit("test_kinks", "test_a_rate_under_the_one_for_kinks_is_told"),
    ),
    Mutation(
        "transport/direction.py",
        "np.log(power) + (after - k) * (power - 1.0) * log_length",
        "(after - k) * (power - 1.0) * log_length",
        unit("test_transport", "test_density_and_score_against_their_definition"),
    ),
    Mutation(
        "transport/direction.py",
        "(after - k) * (power - 1.0) / length",
        "(power - 1.0) / length",
        unit("test_transport_laws", "test_scores_are_the_gradient_of_the_density_there"),
    ),
    Mutation(
        "transport/direction.py",
        "return bool((np.abs(along + lengths) <= _EXACT * lengths).all())",
        "return bool((np.abs(along + lengths) <= _EXACT * lengths).any())",
        unit("test_directions", "test_one_score_that_is_off_refuses_a_vector"),
    ),
    Mutation(
        "transport/direction.py",
        "return bool(1.0 - resultant < 0.5 * limit * (x.shape[1] - 1))",
        "return True",
        unit("test_directions", "test_normal_coordinates_that_no_data_are_about_are_no_direction"),
    ),
    Mutation(
        "transport/learning.py",
        "    if direction.learn_directions(points, scores, variables):\n        return False\n",
        "",
        unit("test_directions", "test_a_vector_alone_ends_no_warm_up_before_it_has_its_law"),
    ),
    Mutation(
        "transport/direction.py",
        "_CLOSE, _CLOSE_TO_STAY = 0.08, 0.2",
        "_CLOSE, _CLOSE_TO_STAY = 0.08, 0.08",
        unit("test_directions", "test_directions_must_be_close_together"),
    ),
    Mutation(
        "transport/fields/field_learning.py",
        "return None if precision.dense else otherwise()",
        "return None",
        unit("test_directions", "test_a_walk_beside_a_direction_has_a_field_alone"),
    ),
    Mutation(
        "run/workers/board.py",
        "        if before[-1, 0]:\n            self.stop()",
        "        if before[-1, 0]:\n            pass",
        ("end_to_end/test_migration.py::test_a_stop_while_the_board_moves_is_not_lost",),
    ),
    Mutation(
        "run/workers/process_pool.py",
        "return os.getpid(), folder, dict(os.environ)",
        "return os.getpid(), folder, {}",
        ("end_to_end/test_migration.py::test_processes_are_kept_for_runs_that_would_start_the_same",),
    ),
    Mutation(
        "run/chain.py",
        "            self._keep(warm_up)\n            self._set_down()\n            yield",
        "            self._set_down()\n            yield",
        unit("test_chain", "test_a_chain_that_waits_for_another_one_to_learn_gives_way"),
    ),
    Mutation(
        "run/workers/segments.py",
        "return answer._replace(printed=tuple(lines))",
        "return answer",
        ("end_to_end/test_prints.py::test_lines_before_a_failure_in_a_process_are_in_the_log",),
    ),
    Mutation(
        "run/workers/processes.py",
        "posterior.model.is_alone = True",
        "posterior.model.is_alone = False",
        ("end_to_end/test_migration.py::test_a_process_opens_the_model_once_for_all_chains",),
    ),
]


def copy_package(folder: Path) -> None:
    """What tests need, with times of change as they are, by which numba knows a source."""
    for part in ("stanadapt", "tests", "models", "examples"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy2(ROOT / "pyproject.toml", folder)


def is_noticed(mutation: Mutation, folder: Path) -> bool | str:
    """Whether the tests go red for the change in the copy in `folder`; a text where it cannot be said."""
    file = folder / "stanadapt" / mutation.file
    source, times = file.read_text(encoding="utf-8"), file.stat()
    if source.count(mutation.text) != 1:
        return f"{mutation.file} has {source.count(mutation.text)} times {mutation.text!r}, not once"
    file.write_text(source.replace(mutation.text, mutation.other), encoding="utf-8")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-p", "no:cacheprovider"]
            + [f"tests/{test}" for test in mutation.tests],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(folder), "XDG_CACHE_HOME": str(folder / "cache")},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(source, encoding="utf-8")
        os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    if done.returncode <= 1:  # below zero: a crash
        return done.returncode != 0
    return f"pytest ended with {done.returncode}: {done.stdout[-500:]}"


def main(first: int, last: int) -> int:
    chosen = MUTATIONS[first:last]
    survived, lost = 0, 0
    with tempfile.TemporaryDirectory() as name:
        copy_package(Path(name))
        for i, mutation in enumerate(chosen, first):
            said = is_noticed(mutation, Path(name))
            survived += said is False
            lost += isinstance(said, str)
            word = said if isinstance(said, str) else "noticed" if said else "SURVIVED"
            print(f"{i:3} {word:9} {mutation.file}: {mutation.text!r} -> {mutation.other!r}", flush=True)
    print(f"{len(chosen) - survived - lost} of {len(chosen)} noticed, {survived} survived, {lost} not tried")
    return int(survived + lost > 0)


if __name__ == "__main__":
    bounds = [int(word) for word in sys.argv[1:3]]
    sys.exit(main(*(bounds or [0, len(MUTATIONS)])))
