"""device_checks.py: runs of a build's kvant on a device, whose checks count as a test's."""
import os
import subprocess
import sys

from support.serve import Checks


class DeviceChecks(Checks):
    def __init__(self, device, build, **env):
        super().__init__("_".join([f"check_{device}", *sys.argv[2:]]))
        self.build, self.env = build, env

    def run(self, *args, **env):
        r = subprocess.run([os.path.join(self.build, "bin", "kvant"), *args], env={**os.environ, **self.env, **env}, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, errors="replace", check=False)
        return r.returncode, r.stdout + r.stderr
