"""The gRPC face: proto messages to domain values and back, errors, the listening server."""
