"""vllm_interface: what the plugin (kvant.vllm) uses of vLLM, recorded as names: parameters, fields, abstract methods, values of enums.

    python vllm_interface.py OUT.json       records the vLLM that this interpreter imports
    stand_in(record)                        modules `vllm...` made of a record, for machines without vLLM: classes with those abstract methods
                                            and fields, and of behaviour only what their names promise"""
import abc
import dataclasses
import enum
import importlib
import inspect
import json
import sys
import types
from typing import Generic, TypeVar

CLASSES = {"vllm.v1.attention.backend": ("AttentionBackend", "AttentionImpl", "AttentionMetadata", "AttentionMetadataBuilder", "AttentionType",
                                         "AttentionCGSupport", "CommonAttentionMetadata"),
           "vllm.v1.attention.backends.registry": ("AttentionBackendEnum",),
           "vllm.v1.kv_cache_interface": ("KVQuantMode", "FullAttentionSpec", "TQFullAttentionSpec"),
           "vllm.v1.kv_cache_layout": ("KVCacheLayout",),
           "vllm.model_executor.layers.attention.attention": ("Attention",)}
FUNCTIONS = {"vllm.config": ("get_current_vllm_config",), "vllm.config.cache": ("register_kv_cache_dtype", "is_known_kv_cache_dtype"),
             "vllm.v1.attention.backends.registry": ("register_backend",)}


def parameters(f):
    return [n for n in inspect.signature(f).parameters]


def described(c, package="vllm"):
    if issubclass(c, enum.Enum):
        return {"enum": {n: m.value for n, m in c.__members__.items()}}
    out = {"abstract": sorted(getattr(c, "__abstractmethods__", ())), "methods": {}}
    if dataclasses.is_dataclass(c):
        out["fields"] = [[f.name, f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING] for f in dataclasses.fields(c)]
    for name in dir(c):
        f = inspect.getattr_static(c, name)
        f = getattr(f, "__func__", f)
        if inspect.isfunction(f) and f.__module__.startswith(package) and (not name.startswith("_") or name in ("__init__", "_init_reorder_batch_threshold")):
            out["methods"][name] = parameters(f)
    return out


def record():
    import vllm.version
    found = {"version": vllm.version.__version__, "classes": {}, "functions": {}}
    for table, out in ((CLASSES, found["classes"]), (FUNCTIONS, found["functions"])):
        for module, names in table.items():
            try:
                m = importlib.import_module(module)
            except ModuleNotFoundError as e:
                if e.name != module:
                    raise
                continue
            have = [n for n in names if hasattr(m, n)]
            out[module] = {n: described(getattr(m, n)) if out is found["classes"] else parameters(getattr(m, n)) for n in have}
    return found


# ---- a stand-in --------------------------------------------------------------------------------------------------------

def made_class(name, d):
    if "enum" in d:
        return enum.Enum(name, d["enum"])
    if "fields" in d:
        fields = [(n, object, dataclasses.field(default=None)) if has else (n, object) for n, has in d["fields"]]
        return dataclasses.make_dataclass(name, sorted(fields, key=len), kw_only=True)

    def missing(self, *a, **k):
        raise NotImplementedError
    body = {n: abc.abstractmethod(missing) for n in d["abstract"]}
    if name == "AttentionMetadataBuilder":
        def start(self, kv_cache_spec, layer_names, vllm_config, device):
            self.kv_cache_spec, self.layer_names, self.vllm_config, self.device = kv_cache_spec, layer_names, vllm_config, device
        body["__init__"] = start
        body["_init_reorder_batch_threshold"] = lambda self, n=1, *a: setattr(self, "reorder_batch_threshold", n)
    if name == "AttentionBackend":
        body["full_cls_name"] = classmethod(lambda c: (c.__module__, c.__qualname__))
    return types.new_class(name, (abc.ABC, Generic[TypeVar("T")]) if name in ("AttentionImpl", "AttentionMetadataBuilder") else (abc.ABC,),
                           exec_body=lambda ns: ns.update(body))


def module(name):
    """The stand-in of this name, made with its parents."""
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        here = ".".join(parts[:i])
        if here not in sys.modules:
            sys.modules[here] = types.ModuleType(here)
            if i > 1:
                setattr(sys.modules[".".join(parts[:i - 1])], parts[i - 1], sys.modules[here])
    return sys.modules[name]


def stand_in(found):
    """Puts the modules of a record into sys.modules."""
    for name, classes in found["classes"].items():
        for c, d in classes.items():
            made = made_class(c, d)
            made.__module__ = name
            setattr(module(name), c, made)
    now, paths, handlers = types.SimpleNamespace(cache_config=types.SimpleNamespace(cache_dtype="auto")), {}, {}
    config, registry = module("vllm.config"), module("vllm.v1.attention.backends.registry")
    config.get_current_vllm_config = lambda: now
    registry.register_backend = lambda backend, path=None, is_mamba=False: paths.__setitem__(backend, path)
    registry.paths = paths
    cache = module("vllm.config.cache")
    if "register_kv_cache_dtype" in found["functions"].get("vllm.config.cache", {}):
        cache.register_kv_cache_dtype = lambda n: lambda c: handlers.setdefault(n, c())
        cache.is_known_kv_cache_dtype = lambda n: n in handlers
    cache._KV_CACHE_DTYPE_HANDLERS = handlers
    attention = module("vllm.model_executor.layers.attention.attention")
    attention.Attention.get_kv_cache_spec = lambda self, vllm_config: "vLLM's own"


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(record(), out, indent=1, sort_keys=True)
        out.write("\n")
