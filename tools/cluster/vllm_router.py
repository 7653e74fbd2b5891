"""vllm_router: workers of `kvant serve` behind vllm-router, by policy; one that is killed, and all restarted in turn."""
import os
import re
import signal
import subprocess
import tempfile
import time

from load import CONVERSATIONS, MODEL, NAME, OPTIONS, TURNS, WORKERS, Conversation, answered, end, free_ports, talk, wait_for


class Worker:
    def __init__(self, build, log, folder=None):
        self.http, self.events, self.again = free_ports(3)
        self.url = f"http://127.0.0.1:{self.http}"
        self.command = [os.path.join(build, "bin", "kvant"), "serve", "-m", MODEL, *OPTIONS, "--port", str(self.http),
                        "--kv-events", f"tcp://127.0.0.1:{self.events}", "--kv-events-replay", f"tcp://127.0.0.1:{self.again}",
                        "--metrics-compat", "vllm", *(["--kv-store", folder] if folder else [])]
        self.log, self.process = log, None
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stderr=self.log, stdout=self.log)
        wait_for(self.url + "/ready", self.process, "a worker")

    def stop(self, sig):
        self.process.send_signal(sig)
        self.process.wait(60)

    def metric(self, name):
        return float(re.search(rf"^kvant:{name}\{{[^}}]*\}} (\S+)$", answered(self.url + "/metrics", 10), re.M).group(1))


class Router:
    def __init__(self, python, policy, workers, log):
        port, metrics = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        events = [x for w in workers for x in ("--kv-event-source", f"{w.url}=tcp://127.0.0.1:{w.events}",
                                               "--kv-event-replay-source", f"{w.url}=tcp://127.0.0.1:{w.again}")]
        kv = [*events, "--kv-event-block-size", "64", "--kv-event-model", NAME] if policy == "kv_aware" else []
        command = [python, "-m", "vllm_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics),
                   "--policy", policy, "--worker-urls", *[w.url for w in workers], "--worker-startup-check-interval", "1",
                   "--health-check-interval-secs", "1", "--health-failure-threshold", "1", "--health-success-threshold", "1",
                   "--retry-max-retries", "5", "--retry-initial-backoff-ms", "100", *kv]
        self.process = subprocess.Popen(command, stderr=log, stdout=log)
        wait_for(self.url + "/health", self.process, "vllm-router")
        time.sleep(2)       # its subscriptions


def run(build, python, policy, folder, log, meanwhile=lambda workers, turn: None, then=None):
    workers = [Worker(build, log, folder) for _ in range(WORKERS)]
    router = Router(python, policy, workers, log)
    try:
        conversations = [Conversation(i) for i in range(CONVERSATIONS)]
        rows = [talk(router.url, conversations, TURNS, lambda turn: meanwhile(workers, turn))]
        if then:
            rows.append(then(workers, router, conversations))
        return [{"policy": policy, "folder": bool(folder), **r} for r in rows]
    finally:
        end(router.process)
        for w in workers:
            if w.process.poll() is None:
                w.stop(signal.SIGKILL)


def kill_one(workers, turn):
    if turn == TURNS // 3:
        workers[1].stop(signal.SIGKILL)


def restart_all(workers, router, conversations):
    """A worker is drained and started again in each turn, then one more turn: no worker has in memory what it had."""
    workers[1].start()
    time.sleep(3)

    def restart(turn):
        if turn < WORKERS:
            workers[turn].stop(signal.SIGTERM)
            workers[turn].start()
            time.sleep(2)
    found = talk(router.url, conversations, WORKERS + 1, restart)
    return {**found, "blocks_from_folder": int(sum(w.metric("kv_store_hits_total") for w in workers))}


def rows(build, python, log):
    """round_robin, kv_aware; with a shared folder a worker killed, then a rolling restart."""
    out = []
    for policy in ("round_robin", "kv_aware"):
        out += [{"what": policy, **r} for r in run(build, python, policy, None, log)]
    with tempfile.TemporaryDirectory() as folder:
        killed, restarted = run(build, python, "kv_aware", folder, log, kill_one, restart_all)
    return out + [{"what": "a worker killed", **killed}, {"what": "rolling restart", **restarted}]
