"""try_torch: kvant.torch_ops in PyTorch: opcheck of each op, torch.compile without graph breaks, attention against torch's own over the decoded
rows.  Prints "try_torch: N passed, M failed"."""
import sys

import torch
import torch.nn.functional as F

from kvant import torch_ops

PASSED, FAILED = 0, 0


def ok(condition, text):
    global PASSED, FAILED
    PASSED, FAILED = PASSED + bool(condition), FAILED + (not condition)
    if not condition:
        print(f"FAIL try_torch: {text}")


def check_ops():
    """PyTorch's own check: schema, what is mutated, fake against real, autograd registration."""
    k, v, q = torch.randn(3, 2, 64), torch.randn(3, 2, 64), torch.randn(3, 4, 64)
    table = torch.tensor([1, 0], dtype=torch.int32)
    kp, vp = torch_ops.pages(2, 2, 64, "tbq4_0"), torch_ops.pages(2, 2, 64, "tbq4_0")
    g, beta, state = -torch.rand(5, 2), torch.rand(5, 2), torch.zeros(2, 32, 32)
    x = F.normalize(torch.randn(5, 2, 32), dim=-1)
    calls = ((torch_ops.cache_write, (k, v, kp, vp, table, 0, "tbq4_0", "tbq4_0")),
             (torch_ops.paged_attention, (q, kp, vp, table, 0, 64, "tbq4_0", "tbq4_0")),
             (torch_ops.gated_delta_rule, (x, x, torch.randn(5, 2, 32), g, beta, state)),
             (torch_ops.causal_conv, (torch.randn(5, 8), torch.randn(8, 4), torch.zeros(8, 3))),
             (torch_ops.encode, (torch.randn(5, 128), "q8_0")), (torch_ops.decode, (torch_ops.encode(torch.randn(5, 128), "q8_0"), 128, "q8_0")))
    for op, arguments in calls:
        found = torch.library.opcheck(op, arguments, raise_exception=False)
        ok(all(r == "SUCCESS" for r in found.values()), f"{op._name}: {found}")
    torch_ops.cache_write(k, v, kp, vp, table, 0, "tbq4_0", "tbq4_0")
    ok(kp[1].any() and vp[1].any() and not kp[0].any(), "cache_write wrote nothing, or into another page")
    for arguments, words in (((q, kp[:, :1], vp, table, 0, 64, "tbq4_0", "tbq4_0"), "contiguous uint8"), ((q, kp, vp, table, 200, 64, "tbq4_0", "tbq4_0"), "128")):
        try:
            torch_ops.paged_attention(*arguments)
        except ValueError as e:
            ok(words in str(e), f"error without {words}: {e}")
        else:
            ok(False, f"no error with {words}")


class Attention(torch.nn.Module):
    """A layer over the cache: projections before and after are torch's."""

    def __init__(self, format, heads=2, queries=4, dim=64):
        super().__init__()
        self.format, self.heads, self.queries, self.dim = format, heads, queries, dim
        self.qkv = torch.nn.Linear(96, (queries + 2 * heads) * dim)
        self.out = torch.nn.Linear(queries * dim, 96)

    def split(self, x):
        return self.qkv(x).reshape(x.shape[0], -1, self.dim).split([self.queries, self.heads, self.heads], 1)

    def forward(self, x, kp, vp, table, start):
        q, k, v = (t.contiguous() for t in self.split(x))
        torch.ops.kvant.cache_write(k, v, kp, vp, table, start, self.format, self.format)
        o = torch.ops.kvant.paged_attention(q, kp, vp, table, start, self.dim, self.format, self.format)
        return self.out(torch.nn.functional.silu(o.flatten(1)))

    def reference(self, x):
        """torch's attention over what the rows decode to."""
        q, k, v = (t.contiguous() for t in self.split(x))
        k, v = (torch_ops.decode(torch_ops.encode(t.reshape(-1, self.dim), self.format), self.dim, self.format).reshape(t.shape) for t in (k, v))
        o = F.scaled_dot_product_attention(*(t.transpose(0, 1)[None] for t in (q, k, v)), is_causal=True, enable_gqa=True)[0].transpose(0, 1)
        return o, self.out(torch.nn.functional.silu(o.flatten(1)))


def check_attention():
    torch.manual_seed(3)
    x, table = torch.randn(150, 96), torch.tensor([2, 0, 1], dtype=torch.int32)
    worst = 0.0
    for format in ("f32", "f16", "q8_0", "tbq4_0", "tbq3_0", "q4_0"):
        with torch.no_grad():
            layer = Attention(format)
            kp, vp = torch_ops.pages(3, 2, 64, format), torch_ops.pages(3, 2, 64, format)
            q, k, v = (t.contiguous() for t in layer.split(x))
            torch_ops.cache_write(k, v, kp, vp, table, 0, format, format)
            o, want = layer.reference(x)
            found = torch_ops.paged_attention(q, kp, vp, table, 0, 64, format, format)
            worst = max(worst, (found - o).abs().max().item())
            ok((found - o).abs().max() < 1e-5, f"{format}: {(found - o).abs().max()} from torch's attention")
            if format != "tbq4_0":
                continue
            whole = torch.compile(layer, fullgraph=True)         # an error where the graph breaks
            a, b = torch_ops.pages(3, 2, 64, format), torch_ops.pages(3, 2, 64, format)
            ok((whole(x, a, b, table, 0) - want).abs().max() < 1e-4 and torch.equal(a, kp) and torch.equal(b, vp), f"{format}: compiled otherwise")
            torch._dynamo.reset()
    print(f"attention against torch's over decoded rows: largest difference {worst:.2g}")


def check_breaks():
    """No graph break, and a planted one is seen."""
    layer, table = Attention("tbq4_0"), torch.tensor([0], dtype=torch.int32)
    p = [torch_ops.pages(1, 2, 64, "tbq4_0") for _ in range(2)]
    with torch.no_grad():
        found = torch._dynamo.explain(layer)(torch.randn(5, 96), *p, table, 0)
        ok(found.graph_break_count == 0 and found.graph_count == 1, f"{found.graph_break_count} graph breaks")

        def planted(x):
            y = layer(x, *p, table, 0)
            torch._dynamo.graph_break()
            return y + 1
        torch._dynamo.reset()
        ok(torch._dynamo.explain(planted)(torch.randn(5, 96)).graph_break_count == 1, "planted: a graph break was not seen")


for check in (check_ops, check_attention, check_breaks):
    check()
print(f"try_torch: {PASSED} passed, {FAILED} failed")
sys.exit(FAILED > 0)
