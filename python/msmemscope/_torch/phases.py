"""Phases of training, by the numbers that the recorder knows them by."""

FORWARD = 0
BACKWARD = 1
OPTIMIZER = 2
OTHER = 3
