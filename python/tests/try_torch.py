"""try_torch: kvant.torch_ops in PyTorch: opcheck of each op, torch.compile without graph breaks, attention against torch's own over the decoded
rows, many sequences against one at a time.  `try_torch.py cuda` runs everything on the GPU, in its streams, and compares it with the CPU too.
Prints "try_torch: N passed, M failed"."""
import os
import sys
import weakref

import torch
import torch.nn.functional as F
from counted import ended, ok, refused
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from kvant import _tensors, torch_ops

DEVICE = sys.argv[-1] if sys.argv[-1] in ("cpu", "cuda") else "cpu"
CLASS = 1e-5 if DEVICE == "cpu" else 1e-4       # of f32 attention over decoded rows of values of 1; a GPU's exp and sums are others
torch.set_default_device(DEVICE)


def check_ops():
    """PyTorch's own check: schema, what is mutated, fake against real, autograd registration."""
    k, v, q = torch.randn(3, 2, 64), torch.randn(3, 2, 64), torch.randn(3, 4, 64)
    table = torch.tensor([1, 0], dtype=torch.int32)
    kp, vp = torch_ops.pages(2, 2, 64, "tbq4_0", DEVICE), torch_ops.pages(2, 2, 64, "tbq4_0", DEVICE)
    g, beta, state = -torch.rand(5, 2), torch.rand(5, 2), torch.zeros(2, 32, 32)
    x = F.normalize(torch.randn(5, 2, 32), dim=-1)
    calls = ((torch_ops.cache_write, (k, v, kp, vp, table, 0, "tbq4_0", "tbq4_0")),
             (torch_ops.paged_attention, (q, kp, vp, table, 0, 64, "tbq4_0", "tbq4_0")),
             (torch_ops.gated_delta_rule, (x, x, torch.randn(5, 2, 32), g, beta, state)),
             (torch_ops.causal_conv, (torch.randn(5, 8), torch.randn(8, 4), torch.zeros(8, 3))),
             (torch_ops.encode, (torch.randn(5, 128), "q8_0")), (torch_ops.decode, (torch_ops.encode(torch.randn(5, 128), "q8_0"), 128, "q8_0")))
    many = [torch.tensor(i, dtype=torch.int32) for i in ([0, 3], [0], [1], [[1, 0]])]
    calls += ((torch_ops.cache_write_batch, (k, v, kp, vp, *many, 0, "tbq4_0", "tbq4_0")),
              (torch_ops.paged_attention_batch, (q, kp, vp, *many, 0, 2, 64, "tbq4_0", "tbq4_0")))
    for op, arguments in calls:
        found = torch.library.opcheck(op, arguments, raise_exception=False)
        ok(all(r == "SUCCESS" for r in found.values()), f"{op._name}: {found}")
    torch_ops.cache_write(k, v, kp, vp, table, 0, "tbq4_0", "tbq4_0")
    ok(kp[1].any() and vp[1].any() and not kp[0].any(), "cache_write wrote nothing, or into another page")
    for arguments, words in (((q, kp[:, :1], vp, table, 0, 64, "tbq4_0", "tbq4_0"), "each page contiguous"), ((q, kp, vp, table, 200, 64, "tbq4_0", "tbq4_0"), "128")):
        refused(ValueError, [words], torch_ops.paged_attention, *arguments)


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
            kp, vp = torch_ops.pages(3, 2, 64, format, DEVICE), torch_ops.pages(3, 2, 64, format, DEVICE)
            q, k, v = (t.contiguous() for t in layer.split(x))
            torch_ops.cache_write(k, v, kp, vp, table, 0, format, format)
            o, want = layer.reference(x)
            found = torch_ops.paged_attention(q, kp, vp, table, 0, 64, format, format)
            worst = max(worst, (found - o).abs().max().item())
            ok((found - o).abs().max() < CLASS, f"{format}: {(found - o).abs().max()} from torch's attention")
            if format != "tbq4_0":
                continue
            whole = torch.compile(layer, fullgraph=True)         # an error where the graph breaks
            a, b = torch_ops.pages(3, 2, 64, format, DEVICE), torch_ops.pages(3, 2, 64, format, DEVICE)
            ok((whole(x, a, b, table, 0) - want).abs().max() < 1e-4 and torch.equal(a, kp) and torch.equal(b, vp), f"{format}: compiled otherwise")
            torch._dynamo.reset()
    print(f"attention against torch's over decoded rows: largest difference {worst:.2g}")


def check_breaks():
    """No graph break, and a planted one is seen."""
    layer, table = Attention("tbq4_0"), torch.tensor([0], dtype=torch.int32)
    p = [torch_ops.pages(1, 2, 64, "tbq4_0", DEVICE) for _ in range(2)]
    with torch.no_grad():
        found = torch._dynamo.explain(layer)(torch.randn(5, 96), *p, table, 0)
        ok(found.graph_break_count == 0 and found.graph_count == 1, f"{found.graph_break_count} graph breaks")

        def planted(x):
            y = layer(x, *p, table, 0)
            torch._dynamo.graph_break()
            return y + 1
        torch._dynamo.reset()
        ok(torch._dynamo.explain(planted)(torch.randn(5, 96)).graph_break_count == 1, "planted: a graph break was not seen")


def block(n, heads, dims, formats):
    """One block of memory for n pages of both sides, K's heads before V's, as engines with one tensor to a layer have it; its two sides."""
    rows = [torch_ops.format_of(f).row_bytes(d) for f, d in zip(formats, dims)]
    memory = torch.zeros((n, heads * 64 * sum(rows)), dtype=torch.uint8)
    cut = heads * 64 * rows[0]
    return memory[:, :cut].unflatten(1, (heads, 64, rows[0])), memory[:, cut:].unflatten(1, (heads, 64, rows[1]))


def check_batch():
    """A prompt, decode rows and a continued prompt in one call, over pages cut out of one block, are what they are alone."""
    torch.manual_seed(5)
    heads, queries, dims, formats = 2, 6, (64, 128), ("tbq4_0", "q8_0")
    lengths, starts, tables = [1, 1, 70, 9], [64, 3, 0, 120], [[5, 1, 0], [2, 0, 0], [7, 4, 0], [3, 8, 6]]
    k, v = block(9, heads, dims, formats)
    for start, table in zip(starts, tables):
        if start:
            torch_ops.cache_write(torch.randn(start, heads, dims[0]), torch.randn(start, heads, dims[1]), k, v, torch.tensor(table, dtype=torch.int32), 0,
                                  *formats)
    n, q0 = sum(lengths), [sum(lengths[:i]) for i in range(5)]
    new, q = (torch.randn(n, heads, dims[0]), torch.randn(n, heads, dims[1])), torch.randn(n, queries, dims[0])
    alone = k.clone(), v.clone()
    many = [torch.tensor(x, dtype=torch.int32) for x in (q0, starts, [0, 0, 1, 1], tables)]
    torch_ops.cache_write_batch(*new, k, v, *many, 2, *formats)
    found = torch_ops.paged_attention_batch(q, k, v, *many, 2, 200, dims[1], *formats)
    for i, (length, start) in enumerate(zip(lengths, starts)):
        own, table = slice(q0[i], q0[i + 1]), many[3][i]
        torch_ops.cache_write(new[0][own], new[1][own], *alone, table, start, *formats)
        o = torch_ops.paged_attention(q[own], *alone, table, start, dims[1], *formats)
        ok((found[own] - o).abs().max() < CLASS, f"sequence {i} of a batch: {(found[own] - o).abs().max()} from itself alone")
    ok(torch.equal(k, alone[0]) and torch.equal(v, alone[1]), "a batch wrote other rows")
    rough = torch_ops.paged_attention_batch(q, k, v, *many, 2, 200, dims[1], *formats, None, 0, 0.0, False)
    ok(0 < (rough - found).abs().max() < 0.05, f"int8 queries: {(rough - found).abs().max()} from exact ones")
    try:
        torch_ops.cache_write_batch(*new, k, v, many[0].long(), *many[1:], 2, *formats)
        ok(False, "q0 of int64 taken")
    except ValueError as e:
        ok("int32 [5]" in str(e), f"{e}")


def check_one_refused():
    """A table's numbers are for K's pages and V's."""
    pages = [torch_ops.pages(n, 1, 64, "f16", "cpu") for n in (2, 1)]
    x, table = torch.zeros(1, 1, 64, device="cpu"), torch.tensor([0, 1], dtype=torch.int32, device="cpu")
    for k, v in (pages, pages[::-1]):
        refused(ValueError, ["0 to 1 found, 0 to 0 wanted"], torch_ops.cache_write, x, x, k, v, table, 64, "f16", "f16")
        refused(ValueError, ["0 to 1 found, 0 to 0 wanted"], torch_ops.paged_attention, x, k, v, table, 64, 64, "f16", "f16")
    refused(ValueError, ["0 to 4294967296 found"], torch_ops.cache_write, x, x, pages[0], pages[0], table.long() << 32, 0, "f16", "f16")


def check_batch_refused():
    """Every number of a batch on the CPU: q0, positions, pages in use, ones, max_pos; pages that no token uses are not read."""
    k, v = (torch_ops.pages(n, 1, 64, "f16", "cpu") for n in (3, 2))
    x = torch.zeros(4, 1, 64, device="cpu")
    good = {"q0": [0, 1, 4], "pos0": [63, 126], "prompt": [0, 1], "table": [[0, -1, 0], [1, 0, 1]], "ones": 1, "max_pos": 128, "v": v}

    def calls(**changed):
        g = {**good, **changed}
        many = [torch.tensor(g[name], dtype=torch.int32, device="cpu") for name in ("q0", "pos0", "prompt", "table")]
        return ((torch_ops.cache_write_batch, x, x, k, g["v"], *many, g["ones"], "f16", "f16"),
                (torch_ops.paged_attention_batch, x, k, g["v"], *many, g["ones"], g["max_pos"], 64, "f16", "f16"))
    for op, *arguments in calls():
        op(*arguments)
    for op, *arguments in calls(q0=[0, 0, 4], ones=0, pos0=[-9, 0]):       # a sequence without rows, as padding is
        op(*arguments)
    cases = (("q0", [0, 1, 5]), ("q0", [0, 1, 3]), ("q0", [1, 2, 4]), ("q0", [0, 2, 4]), ("ones", 9), ("ones", -1), ("ones", 2),
             ("pos0", [10**8, 0]), ("pos0", [2**31 - 1, 0]), ("pos0", [-1, 0]), ("pos0", [0, 190]), ("table", [[10**6, 0, 0], [1, 0, 1]]),
             ("table", [[-1, 0, 0], [1, 0, 1]]), ("table", [[0, 0, 0], [1, 0, 2]]), ("v", torch_ops.pages(1, 1, 64, "f16", "cpu")))
    words = {"q0": "q0 [", "ones": "ones ", "pos0": "pos0 [", "table": "block table: page", "v": "page 1 found, 0 to 0 wanted"}
    for name, value in cases:
        for call in calls(**{name: value}):
            refused(ValueError, ["ones 1 with" if value == [0, 2, 4] else words[name]], *call)
    for call in calls(q0=[0, 5, 4], ones=0):
        refused(ValueError, ["numbers that do not fall"], *call)
    refused(ValueError, ["max_pos 127 found, the highest position 128"], *calls(max_pos=127)[1])
    calls(table=[[0, -1, 0], [-1, 0, 1]])[0][0](*calls(table=[[0, -1, 0], [-1, 0, 1]])[0][1:])      # rows are written behind page 0
    refused(ValueError, ["page -1 found"], *calls(table=[[0, -1, 0], [-1, 0, 1]])[1])


class Log(TorchDispatchMode):
    """What is dispatched, and where to."""

    def __init__(self):
        super().__init__()
        self.copies, self.others = 0, 0

    def __torch_dispatch__(self, f, types, args=(), kwargs=None):
        self.copies += "copy" in str(f)
        self.others += "copy" not in str(f)
        return f(*args, **(kwargs or {}))


def check_no_copies():
    """The integers of a call come to a GPU without a copy from the host, which would wait for the stream."""
    with FakeTensorMode(), Log() as log:
        _tensors.few_ints([0, 3, 64, 1, 0, 0], torch.device("cuda:0"))
        ok(not log.copies and log.others, f"{log.copies} copies from the host, {log.others} other calls")
        torch.tensor([3], device="cpu").to("cuda:0")
        ok(log.copies == 1, "planted: a copy was not seen")
    ok(_tensors.few_ints([0, 3, 64, 1, 0, 0], torch.device(DEVICE)).tolist() == [0, 3, 64, 1, 0, 0], "other integers")


def check_no_waits():
    """torch's own error where something waits for the GPU."""
    x, table = torch.randn(1, 2, 64), torch.tensor([0], dtype=torch.int32)
    many = [torch.tensor(i, dtype=torch.int32) for i in ([0, 1], [0], [0], [[0]])]
    p = [torch_ops.pages(1, 2, 64, "tbq4_0", DEVICE) for _ in range(2)]
    rule = x, x, x, -torch.rand(1, 2), torch.rand(1, 2), torch.zeros(2, 64, 64)

    def all_ops():
        torch_ops.cache_write(x, x, *p, table, 0, "tbq4_0", "tbq4_0")
        torch_ops.paged_attention(x, *p, table, 0, 64, "tbq4_0", "tbq4_0")
        torch_ops.cache_write_batch(x, x, *p, *many, 1, "tbq4_0", "tbq4_0")
        torch_ops.paged_attention_batch(x, *p, *many, 1, 0, 64, "tbq4_0", "tbq4_0")
        torch_ops.gated_delta_rule(*rule)
        torch_ops.decode(torch_ops.encode(x[0], "q8_0"), 64, "q8_0")
    all_ops()           # memory and modules are there
    torch.cuda.set_sync_debug_mode("error")
    try:
        all_ops()
        ok(True, "")
    except RuntimeError as e:
        ok(False, f"an op waits for the GPU: {e}")
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check_cuda():
    """Everything is in the caller's stream; rows are those that the CPU makes, or lie at a tie; the rule and the convolution are the CPU's."""
    side = torch.cuda.Stream()
    x = torch.randn(1024, 1024)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(200):            # some milliseconds of work that the rows depend on
            x = torch.tanh(x @ x) * 0.5 + torch.randn(1024, 1024) * 0.5
        rows = torch_ops.encode(x, "tbq4_0")
        back = torch_ops.decode(rows, 1024, "tbq4_0")
    side.synchronize()
    ok(((back - x).norm() / x.norm()).item() < 0.2, f"rows of a stream's tensor were made before it was: {((back - x).norm() / x.norm()).item()}")
    for format in torch_ops.row_formats():
        x = torch.randn(256, 256)
        here, there = torch_ops.encode(x, format), torch_ops.encode(x.cpu(), format)
        differ = (here.cpu() != there).any(1).float().mean().item()
        ok(differ <= 0.05, f"{format}: {differ:.1%} of the rows differ from the CPU's")
        a, b = torch_ops.decode(here, 256, format).cpu(), torch_ops.decode(here.cpu(), 256, format)
        ok((a - b).abs().max() < 1e-4, f"{format}: decoded {(a - b).abs().max()} from the CPU's")
    q, k = (F.normalize(torch.randn(70, 2, 128), dim=-1) for _ in range(2))
    rule = (q, k, torch.randn(70, 4, 128), -torch.rand(70, 4), torch.rand(70, 4), torch.randn(4, 128, 128) * 0.1)
    conv = torch.randn(70, 64), torch.randn(64, 4), torch.randn(64, 3), torch.randn(64)
    for op, arguments in ((torch_ops.gated_delta_rule, rule), (torch_ops.causal_conv, conv)):
        for n in (70, 1):
            given = [a[:n] if a.shape[0] == 70 else a for a in arguments]
            for a, b in zip(op(*given), op(*(g.cpu() for g in given))):
                ok((a.cpu() - b).abs().max() < 2e-3, f"{op._name} of {n} tokens: {(a.cpu() - b).abs().max()} from the CPU's")
    try:
        torch_ops.cache_write(torch.zeros(1, 1, 64), torch.zeros(1, 1, 64), *(torch_ops.pages(1, 1, 64, "f16") for _ in range(2)),
                              torch.zeros(1, dtype=torch.int32), 0, "f16", "f16")
        ok(False, "pages of the CPU taken beside rows of the GPU")
    except ValueError as e:
        ok("one device wanted" in str(e), f"{e}")


def check_release():
    """What is kept for a device goes, with its threads and memory, and the next call opens it anew."""
    x = torch.randn(70, 128)
    rows = torch_ops.encode(x, "tbq4_0")
    torch_ops.release(DEVICE)
    before = len(os.listdir("/proc/self/task"))
    for i in range(20):
        ok(torch.equal(torch_ops.encode(x, "tbq4_0"), rows), f"round {i}: other rows")
        kept = weakref.ref(_tensors.device_of(x))
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        ok(torch_ops.release(DEVICE) == 1 and kept() is None and torch_ops.release(DEVICE) == 0, f"round {i}: the device is still there")
    ok(len(os.listdir("/proc/self/task")) <= before + 1, f"{len(os.listdir('/proc/self/task'))} threads, {before} before")
    refused(ValueError, ["meta", "cpu or cuda"], torch_ops.release, "meta")


for check in (check_ops, check_attention, check_batch, check_one_refused, check_batch_refused, check_no_copies, check_breaks, check_release) + ((check_cuda, check_no_waits) if DEVICE == "cuda" else ()):
    check()
sys.exit(ended("try_torch"))
