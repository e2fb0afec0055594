"""Prints a transform as the daemon's configuration and batchctl take it, where it has texts of timm's for policies:

python3 -m batchd.ops '[["RandomResizedCrop", 224], "rand-m9-mstd0.5-inc1", "ToTensor"]'"""

import sys

from ._transform import text

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        print(text(sys.argv[1]))
    except ValueError as e:
        sys.exit(f"batchd.ops: {e}")
