#!/usr/bin/env python3
"""gen_hf_fields.py: the fields of Transformers' configuration classes of every architecture that `kvant convert` knows.

    python3 tools/gen_hf_fields.py           writes src/make/convert/fields/hf_classes.def
    python3 tools/gen_hf_fields.py --check   exit 1 where that file is not what this Transformers would give

It needs transformers (5.x).  The architectures are read from convert_arch.c.  A class has its fields with their defaults, and
the names that are no fields but that its code looks for all the same: what __post_init__ takes out of kwargs, and what the
model's code asks the configuration for.  src/make/convert/fields/hf_decisions.def says of each of them what convert does;
tests/check_convert_fields.c fails where one has no decision."""
import ast
import dataclasses
import inspect
import json
import re
import sys
import textwrap

import transformers
from transformers import modeling_rope_utils
from transformers.utils import quantization_config

OUT = "src/make/convert/fields/hf_classes.def"
# Names of architectures that Transformers itself does not have: those of the authors' own code.
SAME = {"Ernie4_5_ForCausalLM": "Ernie4_5ForCausalLM", "LFM2ForCausalLM": "Lfm2ForCausalLM"}
# Classes whose RoPE differs by kind of layer, with defaults of its own.
NESTED = ("Gemma4TextConfig", "Gemma4UnifiedTextConfig")
# What code asks a configuration for that is no value of config.json.
NO_VALUE = {"get_text_config", "to_dict", "to_diff_dict", "from_pretrained", "save_pretrained", "is_heterogeneous", "name_or_path",
            "num_labels", "use_return_dict", "per_layer_config", "standardize_rope_params", "validate_rope", "sub_configs",
            "base_model_tp_plan", "base_model_pp_plan", "model_type", "items", "update", "get", "keys", "pop", "setdefault", "copy",
            "get_per_layer_config", "output_attentions"}


def known_architectures():
    text = open("src/make/convert/convert_arch.c", encoding="utf-8").read()
    return [n for group in re.findall(r"\.hf = \{([^}]*)\}", text) for n in re.findall(r'"([^"]+)"', group)]


def default_of(field):
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


def plain(value):
    """What JSON can say; objects (sub-configurations) count as null."""
    try:
        return json.loads(json.dumps(value))
    except TypeError:
        return None


def fields_of(cls):
    return {f.name: plain(default_of(f)) for f in dataclasses.fields(cls) if not f.name.startswith("_")}


def other_defaults(cls):
    """Defaults that are no fields': the class's base of RoPE, kwargs.setdefault(NAME, VALUE), a literal rope_parameters."""
    found = {}
    theta = getattr(cls, "default_theta", 10000.0)
    if isinstance(theta, dict):
        found = {"rope_theta": theta["global"], "rope_local_base_freq": theta["local"]}
    elif theta != 10000.0:
        found["rope_theta"] = theta
    for node in ast.walk(tree(cls)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setdefault" and \
                isinstance(node.func.value, ast.Name) and node.func.value.id == "kwargs" and isinstance(node.args[1], ast.Constant):
            found[node.args[0].value] = node.args[1].value
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and isinstance(node.targets[0], ast.Attribute) and \
                node.targets[0].attr == "rope_parameters" and any(isinstance(k, ast.Constant) and k.value in ("factor",) for k in node.value.keys):
            said = {k.value for k in node.value.keys} | {"rope_type"}
            found["rope_parameters"] = {k: v for k, v in plain(cls().rope_parameters).items() if k in said}
    if cls.__name__ in NESTED:
        found["rope_parameters"] = plain(cls().rope_parameters)
    return found


def tree(thing):
    return ast.parse(textwrap.dedent(inspect.getsource(thing)))


def from_kwargs(cls):
    """Names that methods of the class, and of the classes before it, take out of kwargs."""
    found = set()
    for base in cls.__mro__:
        if not base.__module__.startswith("transformers") or base.__name__ in ("PreTrainedConfig", "PushToHubMixin"):
            continue
        for node in ast.walk(tree(base)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and \
                    node.func.value.id == "kwargs" and node.args and isinstance(node.args[0], ast.Constant):
                found.add(node.args[0].value)
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str) and \
                    any(isinstance(c, ast.Name) and c.id == "kwargs" for c in node.comparators):
                found.add(node.left.value)
    return found


def asked_by_code(cls):
    """config.NAME and getattr(config, "NAME") of the module that has the model."""
    module = sys.modules.get(cls.__module__.replace("configuration_", "modeling_"))
    if module is None:
        module = __import__(cls.__module__.replace("configuration_", "modeling_"), fromlist=["x"])
    found = set()

    def is_config(node):
        return isinstance(node, ast.Name) and node.id in ("config", "text_config") or \
            isinstance(node, ast.Attribute) and node.attr in ("config", "text_config")
    for node in ast.walk(ast.parse(inspect.getsource(module))):
        if isinstance(node, ast.Attribute) and is_config(node.value):
            found.add(node.attr)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr") and \
                len(node.args) > 1 and is_config(node.args[0]) and isinstance(node.args[1], ast.Constant):
            found.add(node.args[1].value)
    return {n for n in found if not n.startswith("_") and n not in NO_VALUE and not n.endswith("_config")}


def rope_names(classes):
    names = set(modeling_rope_utils.RopeParameters.__annotations__)
    for cls in classes:
        for where in (cls.__module__, cls.__module__.replace("configuration_", "modeling_")):
            text = inspect.getsource(__import__(where, fromlist=["x"]))
            names |= set(re.findall(r'rope_parameters(?:\[[^\]]*\])?(?:\.get\(|\.setdefault\(|\[)"(\w+)"', text))
    return names - {"full_attention", "sliding_attention"} | {"type"}


def arguments(cls):
    found = {}
    for name, p in inspect.signature(cls.__init__).parameters.items():
        if name not in ("self", "kwargs"):
            found[name] = plain(p.default) if p.default is not inspect.Parameter.empty else None
    return found


def c_string(value, indent="    "):
    """JSON in C strings of one line each."""
    lines, line = [], ""
    for part in re.split(r"(?<=, )(?=\")", json.dumps(value, ensure_ascii=True)):
        if line and len(line) + len(part) > 90:
            lines.append(line)
            line = ""
        line += part
    lines.append(line)
    return "\n".join(indent + '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in lines)


def entry(name, model_type, architectures, text, fields, more, renamed):
    return (f'HF_CLASS("{name}", "{model_type}", "{" ".join(architectures)}", "{text}",\n'
            f"{c_string(fields)},\n{c_string(sorted(more))},\n{c_string(renamed)})\n")


def make():
    of, order, text_of, models = {}, [], {}, []
    for arch in known_architectures():
        model = getattr(transformers, SAME.get(arch, arch))
        cls = model.config_class
        inner = getattr(cls, "sub_configs", {}).get("text_config")
        for c in (cls, inner):
            if c is not None and c.__name__ != "AutoConfig" and c not in order:
                order.append(c)
        of.setdefault(cls, []).append(arch)
        models.append(cls)
        if inner is not None and inner.__name__ != "AutoConfig":
            text_of[cls] = inner.__name__
    base = transformers.PreTrainedConfig
    common = fields_of(base)
    parts = [f"/* hf_classes.def: made by tools/gen_hf_fields.py with transformers {transformers.__version__}: do not edit.\n"
             " *\n"
             " * HF_CLASS(class, model_type, architectures, class of text_config, fields with their defaults (null: none), names\n"
             " * that are no fields but are looked for, other names of fields) */\n"]
    parts.append(entry("PreTrainedConfig", "", [], "", common, {"torch_dtype", "name_or_path", "num_labels", "output_attentions"}, {}))
    for cls in order:
        fields = {k: v for k, v in fields_of(cls).items() if k not in common or v != common[k]}
        renamed = dict(getattr(cls, "attribute_map", {}))
        asked = set() if cls in text_of or cls.__name__ == "Mistral3Config" else asked_by_code(cls)
        fields.update(other_defaults(cls))
        more = (from_kwargs(cls) | asked) - set(fields) - set(common) - set(renamed) - set(renamed.values())
        parts.append(entry(cls.__name__, cls.model_type, of.get(cls, []), text_of.get(cls, ""), fields, more, renamed))
    parts.append(entry("RopeParameters", "", [], "", dict.fromkeys(sorted(rope_names(order))), [], {}))
    for cls in (quantization_config.FineGrainedFP8Config, quantization_config.Mxfp4Config):
        parts.append(entry(cls.__name__, "", [], "", arguments(cls), ["quant_method"], {}))
    generation = transformers.GenerationConfig()
    parts.append(entry("GenerationConfig", "", [], "", {k: plain(v) for k, v in sorted(vars(generation).items()) if not k.startswith("_")},
                       [], {}))
    return "\n".join(parts)


def main():
    text = make()
    if sys.argv[1:] == ["--check"]:
        same = open(OUT, encoding="utf-8").read() == text
        print(f"{OUT}: {'as' if same else 'not what'} transformers {transformers.__version__} gives")
        return 0 if same else 1
    with open(OUT, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{OUT}: {text.count('HF_CLASS(') - 1} classes, transformers {transformers.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
