"""Does drafting pay: projections, sweeps, tuning, verdicts."""
