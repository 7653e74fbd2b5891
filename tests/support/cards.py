"""cards.py: what tests ask of the cards in src/formats."""
import glob
import os
import re


def page_formats():
    """Cache formats of page scope, by their cards: the CPU and CUDA alone have kernels of them."""
    found = []
    for path in sorted(glob.glob("src/formats/*/*.toml")):
        with open(path, encoding="utf-8") as f:
            if re.search(r"^page = ", f.read(), re.M):
                found.append(os.path.basename(path)[:-len(".toml")])
    return found
