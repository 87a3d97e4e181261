"""Lets tests import the benchmarks as these import each other: by their names."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
