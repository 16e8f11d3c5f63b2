"""A server with the health checks of grpcio. Each line of its input is the status of `test.Echo` from then on."""
import sys
from concurrent import futures

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(4))
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    status = health_pb2.HealthCheckResponse.ServingStatus
    servicer.set("test.Echo", status.Value("SERVING"))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    for line in sys.stdin:
        servicer.set("test.Echo", status.Value(line.strip()))
    server.stop(0)
