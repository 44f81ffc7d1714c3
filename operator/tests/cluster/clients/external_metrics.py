"""Stands in for external.metrics.k8s.io, in a pod: every metric of every namespace is what /tmp/value says."""

import json
import ssl
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

GROUP_VERSION = "external.metrics.k8s.io/v1beta1"
VALUE = Path("/tmp/value")
METRIC = {
    "name": "load",
    "singularName": "",
    "namespaced": True,
    "kind": "ExternalMetricValueList",
    "verbs": ["get"],
}


def answer(path: str) -> dict | None:
    if path == f"/apis/{GROUP_VERSION}":
        return {
            "kind": "APIResourceList",
            "apiVersion": "v1",
            "groupVersion": GROUP_VERSION,
            "resources": [METRIC],
        }
    if not path.startswith(f"/apis/{GROUP_VERSION}/namespaces/"):
        return None
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    item = {
        "metricName": path.rpartition("/")[2],
        "metricLabels": {},
        "timestamp": now,
        "value": VALUE.read_text().strip(),
    }
    return {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": [item]}


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        found = answer(self.path.partition("?")[0].rstrip("/"))
        text = json.dumps(found or {}).encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


VALUE.write_text("0")
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("/tls/tls.crt", "/tls/tls.key")
server = ThreadingHTTPServer(("", 6443), Answer)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
server.serve_forever()
