"""Calls of gRPC through the proxy, by grpcio at both ends: `serve`, or `call ADDRESS`.

The server prints its port. Each call prints its name once it has gone as it must.
"""
import sys
import threading
import time
from concurrent import futures

import grpc

SERVICE = "test.Echo"
LARGE = bytes(3_000_000)


def unary(request, context):
    metadata = dict(context.invocation_metadata())
    if "echo-bin" in metadata:
        context.send_initial_metadata((("echoed-bin", metadata["echo-bin"]),))
    if request == b"fail":
        context.set_trailing_metadata((("grpc-status-details-bin", b"\x00\x01details"),))
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no: ünicode")
    if request == b"slow":
        event = threading.Event()
        context.add_callback(event.set)
        event.wait(20)
        CANCELLED.set()
    if request == b"cancelled?":
        return b"yes" if CANCELLED.wait(10) else b"no"
    return request


CANCELLED = threading.Event()


def server_stream(request, context):
    for number in range(int(request)):
        yield b"%d" % number


def client_stream(requests, context):
    return b",".join(requests)


def bidi(requests, context):
    for request in requests:
        yield request


def serve():
    server = grpc.server(futures.ThreadPoolExecutor(16), options=[("grpc.max_receive_message_length", -1)])
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Limited": grpc.unary_unary_rpc_method_handler(unary),
        "ServerStream": grpc.unary_stream_rpc_method_handler(server_stream),
        "ClientStream": grpc.stream_unary_rpc_method_handler(client_stream),
        "Bidi": grpc.stream_stream_rpc_method_handler(bidi),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    # Ends with the test, which holds the other end.
    sys.stdin.read()
    server.stop(0)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error
    raise AssertionError("it must fail")


def call(address):
    channel = grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)])
    method = lambda kind, name: getattr(channel, kind)(f"/{SERVICE}/{name}")
    one = method("unary_unary", "Unary")

    assert one(b"hello", timeout=20) == b"hello"
    print("unary", flush=True)

    answer, rpc = one.with_call(b"x", metadata=(("echo-bin", b"\x00\xff\x80"),), timeout=20)
    assert dict(rpc.initial_metadata())["echoed-bin"] == b"\x00\xff\x80"
    print("metadata", flush=True)

    got = list(method("unary_stream", "ServerStream")(b"1000", timeout=20))
    assert got == [b"%d" % number for number in range(1000)]
    print("server streaming", flush=True)

    parts = [b"%d" % number for number in range(1000)]
    assert method("stream_unary", "ClientStream")(iter(parts), timeout=20) == b",".join(parts)
    print("client streaming", flush=True)

    asked = threading.Semaphore(1)

    def requests():
        for number in range(100):
            assert asked.acquire(timeout=20)
            yield b"%d" % number

    seen = []
    for answer in method("stream_stream", "Bidi")(requests(), timeout=20):
        seen.append(answer)
        asked.release()
    assert seen == [b"%d" % number for number in range(100)]
    print("bidirectional streaming", flush=True)

    assert one(LARGE, timeout=20) == LARGE
    print("large messages", flush=True)

    error = code_of(lambda: one(b"fail", timeout=20))
    assert error.code() == grpc.StatusCode.FAILED_PRECONDITION, error
    assert error.details() == "no: ünicode"
    assert dict(error.trailing_metadata())["grpc-status-details-bin"] == b"\x00\x01details"
    print("status and details", flush=True)

    started = time.monotonic()
    error = code_of(lambda: one(b"slow", timeout=0.5))
    assert error.code() == grpc.StatusCode.DEADLINE_EXCEEDED, error
    assert time.monotonic() - started < 10
    assert one(b"cancelled?", timeout=20) == b"yes"
    CANCELLED.clear()
    print("deadline", flush=True)

    pending = one.future(b"slow", timeout=20)
    time.sleep(0.3)
    pending.cancel()
    assert one(b"cancelled?", timeout=20) == b"yes"
    print("cancellation", flush=True)

    limited = method("unary_unary", "Limited")
    assert limited(b"a", timeout=20) == b"a"
    error = code_of(lambda: limited(b"a", timeout=20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED, error
    print("limit", flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1] == "serve" else call(sys.argv[2])
