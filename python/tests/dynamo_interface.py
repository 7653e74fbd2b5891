"""dynamo_interface: what kvant.dynamo uses of NVIDIA Dynamo, recorded as names.

    python dynamo_interface.py OUT.json     records the ai-dynamo that this interpreter imports
    stand_in(record)                        modules `dynamo...` made of a record, for machines without it"""
import importlib
import importlib.metadata
import json
import sys

from vllm_interface import described, made_class, module, parameters

CLASSES = {"dynamo.common.backend": ("EngineConfig", "LlmRegistration", "LLMEngine", "WorkerConfig"),
           "dynamo.common.backend.publisher": ("ZmqSource",)}
FUNCTIONS = {"dynamo.common.backend.run": ("run",)}
ERRORS = {"dynamo.llm.exceptions": ("EngineShutdown", "InvalidArgument", "Unknown", "WorkerUnavailable")}


def record():
    def of(table, f):
        return {m: {n: f(getattr(importlib.import_module(m), n)) for n in names} for m, names in table.items()}
    return {"version": importlib.metadata.version("ai-dynamo"), "classes": of(CLASSES, lambda c: described(c, "dynamo")),
            "functions": of(FUNCTIONS, parameters), "errors": of(ERRORS, lambda c: [b.__name__ for b in c.__mro__ if b is not object])}


def stand_in(found):
    """Puts the modules of a record into sys.modules."""
    for name, classes in found["classes"].items():
        for c, d in classes.items():
            setattr(module(name), c, made_class(c, d))
    for name, functions in found["functions"].items():
        for f in functions:
            setattr(module(name), f, lambda *a, **k: None)
    for name, errors in found["errors"].items():
        for e in errors:
            setattr(module(name), e, type(e, (Exception,), {}))


if __name__ == "__main__":
    with open(sys.argv[1], "w", encoding="utf-8") as out:
        json.dump(record(), out, indent=1, sort_keys=True)
        out.write("\n")
