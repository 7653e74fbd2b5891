"""KL divergence against bits, in transformers: what a cache format changes, for a model of your own.
python quality.py MODEL (a folder or a name of the hub) text.txt; draws quality.png where matplotlib is installed."""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

import kvant
from kvant.transformers import KvantCache, logits

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
with open(sys.argv[2], encoding="utf-8") as f:
    ids = AutoTokenizer.from_pretrained(sys.argv[1])(f.read(), return_tensors="pt").input_ids[:, :1024]
base = torch.log_softmax(logits(model, ids, DynamicCache(config=model.config)).double(), -1)
points = []
for name in ("q8_0", "tbq4_0", "tbq3_0", "turbo3_tcq"):
    made = torch.log_softmax(logits(model, ids, KvantCache(model.config, k=name)).double(), -1)
    kl = (base.exp() * (base - made)).sum(-1).mean().item()
    points.append((kvant.formats.get(name).bits(128), kl, name))
    print(f"{name:12} {points[-1][0]:5.2f} bits, mean KL {kl:.6f}")
try:
    import matplotlib.pyplot as plt
    plt.semilogy([p[0] for p in points], [p[1] for p in points], "o")
    plt.savefig("quality.png")
except ImportError:
    print("no matplotlib: nothing is drawn")
