"""What holds for every sequence of questions, found by Hypothesis."""
