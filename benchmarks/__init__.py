"""One question per file; ``python -m benchmarks`` answers them, side by side with what there was before."""
