"""The methods. This file imports nothing, so that a shell can complete their names at once."""

METHODS = {
    "fisher_hmc": "HMC in short trajectories; its metric makes draws and scores agree (after Titsias, 2023)",
    "fisher_mala": "MALA preconditioned by the inverse Fisher matrix, learnt from scores (Titsias, 2023)",
    "gad_mala_fast": "MALA whose preconditioner climbs the speed measure (Titsias and Dellaportas, 2019)",
    "gad_mala_exact": "the same along the exact gradient, with Hessians in one direction",
    "ada_mala": "MALA preconditioned by the running covariance (Haario et al., 2001; Titsias, 2023)",
    "amala": "MALA whose step size and covariance are renewed between epochs (Wang et al., 2024)",
    "mmala": "manifold MALA with the SoftAbs metric of the Hessian (Girolami and Calderhead, 2011)",
    "mala": "Metropolis-adjusted Langevin, isotropic",
    "hmc": "Hamiltonian Monte Carlo, identity mass, fixed number of leapfrog steps",
    "gad_rwm": "random walk whose covariance climbs the speed measure (Titsias and Dellaportas, 2019)",
    "arwmh": "random walk with running covariance and global scaling (Andrieu and Thoms, 2008)",
    "am": "random walk with running covariance, by a Cholesky recursion (Andrieu and Thoms, 2008)",
    "rwm": "random-walk Metropolis, isotropic",
    "rlmh": "proposals around a policy, a network trained by its rewards (Wang et al., 2024)",
    "rlmh_mala": "MALA whose step size is such a policy of the position (Wang et al., 2025)",
    "kmc_finite": "HMC along random features fitted to the chain's history (Strathmann et al., 2015)",
    "kmc_lite": "HMC along a kernel model of a subsample of the history (Strathmann et al., 2015)",
    "kamh": "random walk whose covariance is the target's near the chain (Sejdinovic et al., 2014)",
    "tempered": "parallel tempering along a path that is learnt, for many modes (Syed et al., 2022)",
    "nuts": "Stan's own no-U-turn sampler, as the yardstick (Hoffman and Gelman, 2014; Betancourt, 2017)",
}
