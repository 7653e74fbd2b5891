"""plan.py: one ctest of everything that a run of the CI tests, longest first, so that no core waits for another step to end.

    plan.py OUT GROUP...        writes OUT/CTestTestfile.cmake, for `ctest --test-dir OUT`; groups:
        plain           every test of build/release
        masked=RUNG     those that depend on the CPU, on a lower rung of it (tests/cpu_tests.txt)
        san             those of build/san but the slow ones (tests/slow_tests.txt)
                        of both, the kernels' own tests by suite cpu of suites.py: all, or two and an eighth of the others
        cpu=RUNG        just those, for the ledger; cpu= without a lower rung
        fuzz=SECONDS    every target of build/san
        neon=PART,...   parts of tools/check_neon.sh
        install, lint   tools/check_install.sh, ./dev lint

A test has its name; those of other groups than plain have the group's before it: san.check_ops.  tests/seconds.txt says how long each
takes."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from suites import CPU_AGAIN, part, whole   # noqa: E402

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
KEPT = ("RUN_SERIAL", "WORKING_DIRECTORY")
SANITIZERS = ["ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:allocator_may_return_null=1", "UBSAN_OPTIONS=print_stacktrace=1", "KVANT_TEST_SLOW=2"]


def seconds():
    with open(os.path.join(ROOT, "tests", "seconds.txt"), encoding="utf-8") as f:
        return {name: int(n) for name, n in (line.split()[:2] for line in f if line.strip() and not line.startswith("#"))}


def tests_of(build, *chosen):
    """(name, command, properties) of a build's tests."""
    text = subprocess.run(["ctest", "--test-dir", os.path.join(ROOT, "build", build), "--show-only=json-v1", *chosen], capture_output=True,
                          text=True, check=True).stdout
    for test in json.loads(text)["tests"]:
        yield test["name"], test["command"], {p["name"]: p["value"] for p in test.get("properties", [])}


def of_builds(group, build, environment, *chosen):
    for name, command, properties in tests_of(build, *chosen):
        kept = {key: properties[key] for key in KEPT if key in properties}
        kept["ENVIRONMENT"] = [*properties.get("ENVIRONMENT", []), *environment]
        yield f"{group}.{name}" if group else name, command, kept


def again(tests, suite_is_whole):
    """Without the kernels' own tests that are left out."""
    tests = list(tests)
    some = set(CPU_AGAIN if suite_is_whole else part(CPU_AGAIN, 2))
    return [t for t in tests if t[0].split(".")[-1] in some or t[0].split(".")[-1] not in CPU_AGAIN]


def fuzz_targets():
    return sorted(name[5:-2] for name in os.listdir(os.path.join(ROOT, "tests", "fuzz")) if name.startswith("fuzz_") and name.endswith(".c"))


def group_tests(group, value=""):
    if group == "plain":
        yield from of_builds("", "release", [])
    elif group == "masked":
        yield from again(of_builds("masked", "release", [f"KVANT_CPU={value}"], "-L", "cpu"), whole("cpu"))
    elif group == "san":
        yield from again(of_builds("san", "san", SANITIZERS, "-LE", "slow"), whole("cpu"))
    elif group == "cpu":
        for other in ("san", *([f"masked={value}"] if value else [])):
            yield from (t for t in group_tests(*other.split("=")) if t[0].split(".")[-1] in CPU_AGAIN)
    elif group == "fuzz":
        yield from ((f"fuzz.{name}", ["./dev", "fuzz_one", name, value], {}) for name in fuzz_targets())
    elif group == "neon":
        yield from ((f"neon.{part}", ["tools/check_neon.sh", part], {}) for part in value.split(","))
    elif group == "install":
        yield "check_install", ["tools/check_install.sh"], {}
    elif group == "lint":
        yield "lint", ["sh", "-c", "./dev lint && echo 'lint: 1 passed, 0 failed'"], {}
    else:
        sys.exit(f"plan.py: group {group!r} found, wanted plain, masked=RUNG, san, fuzz=SECONDS, neon=PARTS, install, lint")


def quoted(text):
    return f"[==[{text}]==]"


def lines_of(name, command, properties, costs):
    base = name.split(".", 1)[-1]
    cost = costs.get(name) or costs.get(base, 1) * (3 if name.startswith("san.") else 1)
    properties = {"WORKING_DIRECTORY": ROOT, **properties, "COST": cost, "TIMEOUT": 1800}
    if isinstance(properties.get("ENVIRONMENT"), list):
        properties["ENVIRONMENT"] = ";".join(properties["ENVIRONMENT"])
    return (f"add_test({name} {' '.join(quoted(word) for word in command)})\n"
            f"set_tests_properties({name} PROPERTIES {' '.join(f'{k} {quoted(v)}' for k, v in properties.items())})\n")


def main(out, groups):
    costs, tests = seconds(), []
    for group in groups:
        tests += group_tests(*group.split("=", 1) if "=" in group else (group, ""))
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "CTestTestfile.cmake"), "w", encoding="utf-8") as f:
        f.writelines(lines_of(*test, costs) for test in tests)
    print(f"{len(tests)} tests of {len(groups)} groups")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
