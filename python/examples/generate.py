"""Text from a model with a compressed cache, log-probabilities, and an embedding: python generate.py model.gguf "Once upon a time" """
import sys

import kvant

engine = kvant.Engine(sys.argv[1], n_ctx=1024, k="tbq4_0", v="tbq4_0")
print(engine.describe())
made = engine.generate(sys.argv[2], max_tokens=24)
print(made.text)
print("log-probability of the text:", round(sum(made.logprobs), 2))
two = kvant.Engine(engine.model, n_ctx=1024, max_seqs=2, k="tbq4_0")
with two.sequence() as a:
    a.append(engine.model.tokenize(sys.argv[2]))
    with a.fork() as b:                         # goes on where a is; full pages are shared
        print("two sequences:", len(a), len(b), a.nbytes, "bytes each")
vector = engine.embed(sys.argv[2])
print("embedding:", vector.shape, vector[:3])
