"""What the server costs: the same requests through the Python API and over HTTP, taking turns on one loaded model.

The clients are a process of their own on the same machine, so their CPU time is taken from the server's; it is reported
beside the speeds. A figure is that of the fastest round, since other programs may share the machine.

Usage: python benchmarks/http_throughput.py [MODEL] [NUM_CLIENTS] [MAX_TOKENS] [ROUNDS]
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time

import httpx
import uvicorn

from foredraft.core import SamplingParams, Speculation
from foredraft.engine.llm import LLM
from foredraft.server import run
from foredraft.server.config import ServerConfig
from foredraft.server.engine_thread import EngineThread


def prompt(client: int) -> str:
    return f"Client {client} writes a short story about a lighthouse. "


async def ask_all(url: str, num_clients: int, max_tokens: int) -> None:
    async def ask(client: int) -> None:
        body = {"prompt": prompt(client), "max_tokens": max_tokens, "seed": client, "ignore_eos": True, "stream": True}
        async with http.stream("POST", "/v1/completions", json=body) as response:
            assert response.status_code == 200
            async for _ in response.aiter_bytes():
                pass

    async with httpx.AsyncClient(base_url=url, timeout=None, limits=httpx.Limits(max_connections=None)) as http:
        start, before = time.perf_counter(), time.process_time()
        await asyncio.gather(*(ask(client) for client in range(num_clients)))
        print(json.dumps({"wall_s": time.perf_counter() - start, "cpu_s": time.process_time() - before}))


def over_http(llm: LLM, arguments: list[str]) -> tuple[float, float]:
    """Seconds that all requests took, and the clients' CPU seconds."""
    config = ServerConfig(port=0, speculation=Speculation("off"))
    server = uvicorn.Server(run.settings(EngineThread(llm), config))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    command = [sys.executable, __file__, "--client", url, *arguments]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ).stdout)
    server.should_exit = True
    thread.join()
    return result["wall_s"], result["cpu_s"]


def through_python(llm: LLM, num_clients: int, max_tokens: int) -> float:
    params = [
        SamplingParams(temperature=1.0, max_tokens=max_tokens, seed=client, ignore_eos=True)
        for client in range(num_clients)
    ]
    start = time.perf_counter()
    llm.generate([prompt(client) for client in range(num_clients)], params, Speculation("off"))
    return time.perf_counter() - start


def main(model: str = "qwen2.5-coder-1.5b", clients: str = "16", tokens: str = "48", rounds: str = "3") -> None:
    num_clients, max_tokens = int(clients), int(tokens)
    llm = LLM(model, context_length=1024, max_sequences=num_clients, prefix_cache=False)
    through_python(llm, num_clients, 4)  # warm-up
    python, http, client_cpu = [], [], []
    for _ in range(int(rounds)):
        python.append(through_python(llm, num_clients, max_tokens))
        wall_s, cpu_s = over_http(llm, [clients, tokens])
        http.append(wall_s)
        client_cpu.append(cpu_s)
        print(f"Python API {python[-1]:.2f} s, HTTP {wall_s:.2f} s, of it {cpu_s:.2f} s of CPU for the clients")
    speeds = [num_clients * max_tokens / min(times) for times in (python, http)]
    share = speeds[1] / speeds[0]
    print(
        f"{model}, {num_clients} clients, tokens/s: {speeds[0]:.1f} in Python, {speeds[1]:.1f} over HTTP ({share:.1%})"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--client"]:
        asyncio.run(ask_all(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
    else:
        main(*sys.argv[1:])
