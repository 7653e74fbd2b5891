"""`kvant serve` as a child process: started, waited for, ended with its context, and with this process, however that ends."""
import collections
import subprocess
import threading
import time
import urllib.error
import urllib.request

from ._c import program


class Server:
    """A running server; `url` is where it listens.  A context manager: the end of the block ends the server."""

    def __init__(self, model: str, *options: str, host: str = "127.0.0.1", port: int = 0, wait_s: float = 120.0) -> None:
        command = [program(), "serve", "-m", model, "--host", host, "--port", str(port), "--end-with-stdin", *options]
        # Only this process holds the other end of the server's standard input: even kill -9 closes it.  (A signal for the parent's death would come
        # when the thread ends that started the server.)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        late = threading.Timer(wait_s, self.process.kill)
        late.start()
        try:
            self.url = self._listening(time.monotonic() + wait_s)
        finally:
            late.cancel()
        #: The last lines that the server wrote.
        self.log: collections.deque[str] = collections.deque(maxlen=100)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """A pipe that nobody reads would stop the server."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())

    def _listening(self, until: float) -> str:
        """The address that the server says it listens on; what it said instead is the error."""
        said: list[str] = []
        assert self.process.stderr is not None
        for line in self.process.stderr:
            said.append(line.rstrip())
            _, ready, url = line.partition("ready: ")
            if ready:
                self._healthy(url.strip(), until)
                return url.strip()
        raise RuntimeError(f"kvant serve ended with {self.process.wait()}: {' | '.join(said[-3:])}")

    def _healthy(self, url: str, until: float) -> None:
        while True:
            try:
                with urllib.request.urlopen(url + "/health", timeout=5) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, OSError):
                pass
            if time.monotonic() > until or self.process.poll() is not None:
                self.close()
                raise RuntimeError(f"kvant serve: {url} did not become healthy")
            time.sleep(0.05)

    def close(self) -> None:
        """Ends the server: running requests end first, at most for its drain time."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(model: str, *options: str, host: str = "127.0.0.1", port: int = 0) -> Server:
    """Serves a model with the program's options ("-ctk", "tbq4_0", "--api-key", "..."); port 0: a free one.

        with kvant.serve("model.gguf") as server:
            client = openai.OpenAI(base_url=server.url + "/v1", api_key="-")
    """
    return Server(model, *options, host=host, port=port)
