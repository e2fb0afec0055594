"""`python -m batchd doctor` and the like: batchctl, wherever the package has it."""

from ._programs import batchctl

if __name__ == "__main__":
    batchctl()
