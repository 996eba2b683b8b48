"""Draft sources, their parameters, and the drafter that an engine calls."""
