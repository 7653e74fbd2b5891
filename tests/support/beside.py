"""beside.py: a part of a build compiled again from other sources, and a program linked of it and of what the build has.  The build itself
stays as it is."""
import concurrent.futures
import os
import re
import shlex
import subprocess


def run(command, **more):
    r = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    return r.returncode, r.stdout + r.stderr


class Beside:
    """to: a folder whose src and out (generated files) are read before the build's."""

    def __init__(self, build, to, checks):
        self.build, self.to, self.out, self.checks, self.objects = build, to, os.path.join(to, "out"), checks, {}

    def ninja(self, *args):
        return run(["ninja", "-C", self.build, *args])[1].splitlines()

    def commands(self, target):
        """(command, its output as the build names it) of all that makes the target."""
        for c in self.ninja("-t", "commands", target):
            output = (re.search(r" -o (\S+)", c) or [None, ""])[1]
            yield c.removeprefix("ccache ").replace("/usr/bin/ccache ", ""), os.path.relpath(os.path.join(self.build, output), self.build)

    def here(self, command, output, to, level="-O1"):
        """The build's command, which reads this copy first, writes elsewhere and optimises little: it need not be fast."""
        command = re.sub(r"^cd [^&]*&& ", "", command).split(" && ")[0]
        command = re.sub(r"-MD.*?(?= -I| -o )|-MF \S+", "", command).replace(" -MT " + output, "")
        first = "".join(f" -I{p}" for p in (f"{self.to}/src", self.out, f"{self.out}/include", f"{self.out}/vulkan"))
        command = command.replace(" -I", f"{first} -I", 1)
        return re.sub(r" -O\d?(?= )", " -O0" if "glslc" in command else f" {level}", re.sub(r" -o \S+", f" -o {to}", command))

    def compile(self, commands):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for rc, text in pool.map(lambda c: run(shlex.split(c), cwd=self.build), commands):
                if not self.checks.ok(rc == 0, text[-800:]):
                    break

    def link(self, target, to):
        """self.objects: by the build's name, or another where it is new."""
        made, command = dict(self.objects), [c for c, _ in self.commands(target)][-1].split("&&")[1].strip()
        for output in [o for o in made if f" {o} " in command]:
            command = command.replace(f" {output} ", f" {made.pop(output)} ")
        self.compile([re.sub(r" -o \S+", f" {' '.join(made.values())} -Wl,--allow-multiple-definition -o {to}", command)])
        return to
