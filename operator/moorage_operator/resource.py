"""The custom resource as values: what a ``RealtimeServer`` says, checked, and the names that follow from it.

Defaults live in the CRD's schema and nowhere else: a field without one here must be there when the object is
read. The CRD refuses what is wrong; the same rules stand here once more, because an older CRD may be installed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from moorage_operator.errors import SpecError

GROUP, VERSION, PLURAL, KIND = "moorage.dev", "v1alpha1", "realtimeservers", "RealtimeServer"
API_VERSION = f"{GROUP}/{VERSION}"

RESERVED_ENV = frozenset(
    [
        "REDIS_URL",
        "STATE_URL",
        "PORT",
        "SECRET_KEY",
        "METRICS_PORT",
        "METRICS_ENABLED",
        "REDIS_CA_FILE",
        "MOORAGE_PEERS_HOST",
        "MOORAGE_DRAIN_MS",
        "MOORAGE_RPC_RECONNECT_GRACE_MS",
        "MOORAGE_RPC_CALL_TIMEOUT_MS",
        "MOORAGE_RPC_CALL_TIMEOUT_MAX_MS",
    ]
)
"""Variables that the operator sets itself, always, so that nobody else can bring them in."""

SELECTOR_LABELS = ("app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component")
"""Stand in every selector; a user may not set them on pods."""

DNS_1035 = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
ENV_NAME = r"^[-._a-zA-Z][-._a-zA-Z0-9]*$"
LABEL_VALUE = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$"

Name = Annotated[str, Field(min_length=1, max_length=253)]
Image = Annotated[str, Field(min_length=1, max_length=512)]
Replicas = Annotated[int, Field(ge=0, le=1000)]
Seconds = Annotated[int, Field(ge=0, le=3600)]
AtLeastOne = Annotated[int, Field(ge=1, le=3600)]
Port = Annotated[int, Field(ge=1, le=65535)]
Millis = Annotated[int, Field(ge=1, le=86_400_000)]
Value = Annotated[str, Field(max_length=8192)]


class Part(BaseModel):
    """A part of the spec: camelCase outside, unknown keys ignored (the API server prunes them)."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class KeyRef(Part):
    """A key of a Secret."""

    name: Name
    key: Name


class OptionalKeyRef(KeyRef):
    optional: bool = False


class ObjectRef(Part):
    name: Name
    optional: bool = False


class ValueFrom(Part):
    secret_key_ref: OptionalKeyRef | None = None
    config_map_key_ref: OptionalKeyRef | None = None
    field_ref: dict[str, Any] | None = None
    resource_field_ref: dict[str, Any] | None = None


class EnvVar(Part):
    name: Annotated[Name, Field(pattern=ENV_NAME)]
    value: Value | None = None
    value_from: ValueFrom | None = None

    @model_validator(mode="after")
    def _allowed(self) -> EnvVar:
        if self.name in RESERVED_ENV:
            raise ValueError(f"{self.name} is set by the operator itself and cannot be given in spec.env")
        if self.value is not None and self.value_from is not None:
            raise ValueError("give either value or valueFrom, not both")
        return self


class EnvFrom(Part):
    prefix: str | None = None
    secret_ref: ObjectRef | None = None
    config_map_ref: ObjectRef | None = None

    @model_validator(mode="after")
    def _one(self) -> EnvFrom:
        if (self.secret_ref is None) == (self.config_map_ref is None):
            raise ValueError("give exactly one of secretRef and configMapRef")
        return self


class Service(Part):
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"]
    port: Port
    node_port: Port | None = None
    annotations: dict[str, Value]

    @model_validator(mode="after")
    def _reachable(self) -> Service:
        if self.node_port is not None and self.type == "ClusterIP":
            raise ValueError("nodePort needs type NodePort or LoadBalancer")
        return self


class Storage(Part):
    size: Annotated[str, Field(pattern=QUANTITY, max_length=32)]
    class_name: Name | None = None
    retain: bool


class Auth(Part):
    enabled: bool
    secret_key_ref: KeyRef | None = None

    @model_validator(mode="after")
    def _used(self) -> Auth:
        if self.secret_key_ref is not None and not self.enabled:
            raise ValueError("secretKeyRef needs enabled true")
        return self


class External(Part):
    url_secret_key_ref: KeyRef
    ca_secret_key_ref: KeyRef | None = None


class Redis(Part):
    mode: Literal["Managed", "External", "Disabled"]
    image: Image
    storage: Storage
    resources: dict[str, Any]
    auth: Auth
    external: External | None = None
    state_url_secret_key_ref: KeyRef | None = None

    @model_validator(mode="after")
    def _mode(self) -> Redis:
        if self.mode == "External" and self.external is None:
            raise ValueError("external.urlSecretKeyRef is required with mode External")
        if self.mode != "External" and self.external is not None:
            raise ValueError("external needs mode External")
        if self.mode == "Disabled" and self.state_url_secret_key_ref is not None:
            raise ValueError("stateUrlSecretKeyRef cannot be given with mode Disabled")
        return self


class Worker(Part):
    replicas: Replicas
    resources: dict[str, Any]


class Rpc(Part):
    reconnect_grace_ms: Annotated[int, Field(ge=0, le=3_600_000)]
    call_timeout_ms: Millis
    call_timeout_max_ms: Millis

    @model_validator(mode="after")
    def _order(self) -> Rpc:
        if self.call_timeout_ms > self.call_timeout_max_ms:
            raise ValueError("callTimeoutMs must not exceed callTimeoutMaxMs")
        return self


class Drain(Part):
    pre_stop_seconds: Seconds
    window_ms: Annotated[int, Field(ge=0, le=3_600_000)]


class Rollout(Part):
    max_surge: Annotated[int, Field(ge=1, le=1000)]
    min_ready_seconds: Seconds


class Disruption(Part):
    mode: Literal["Auto", "Disabled"]


class StartupProbe(Part):
    period_seconds: AtLeastOne
    failure_threshold: AtLeastOne


class Probe(StartupProbe):
    timeout_seconds: AtLeastOne


class Probes(Part):
    startup: StartupProbe
    liveness: Probe
    readiness: Probe


class Scheduling(Part):
    topology_spread: bool
    node_selector: dict[str, str]
    affinity: dict[str, Any] | None = None
    tolerations: Annotated[list[dict[str, Any]], Field(max_length=32)]
    priority_class_name: Name | None = None


class Autoscaling(Part):
    min_replicas: Annotated[int, Field(ge=1, le=1000)]
    max_replicas: Annotated[int, Field(ge=1, le=1000)]
    metrics: Annotated[list[dict[str, Any]], Field(max_length=16)]

    @model_validator(mode="after")
    def _order(self) -> Autoscaling:
        if self.min_replicas > self.max_replicas:
            raise ValueError("minReplicas must not exceed maxReplicas")
        return self


class Metrics(Part):
    enabled: bool
    service_monitor: bool


class Policy(Part):
    enabled: bool


class Spec(Part):
    """``spec``; the CRD (and docs/operator/reference.md) says what each field means."""

    image: Image
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"]
    image_pull_secrets: Annotated[list[ObjectRef], Field(max_length=16)]
    replicas: Replicas
    paused: bool
    service: Service
    env: Annotated[list[EnvVar], Field(max_length=64)]
    env_from: Annotated[list[EnvFrom], Field(max_length=32)]
    secret_key_ref: KeyRef | None = None
    redis: Redis
    worker: Worker
    rpc: Rpc
    drain: Drain
    rollout: Rollout
    disruption: Disruption
    probes: Probes
    resources: dict[str, Any]
    scheduling: Scheduling
    autoscaling: Autoscaling | None = None
    metrics: Metrics
    network_policy: Policy
    pod_annotations: dict[str, Value]
    pod_labels: dict[str, Annotated[str, Field(max_length=63, pattern=LABEL_VALUE)]]

    @model_validator(mode="after")
    def _together(self) -> Spec:
        names = [env.name for env in self.env]
        if len(names) != len(set(names)):
            raise ValueError("env: a name is given twice")
        if self.redis.mode == "Disabled" and self.worker.replicas:
            raise ValueError("worker.replicas must be 0 with redis.mode Disabled")
        for label in SELECTOR_LABELS:
            if label in self.pod_labels:
                raise ValueError(f"podLabels must not set {label}")
        if any(key.startswith(f"{GROUP}/") for key in self.pod_annotations):
            raise ValueError(f"podAnnotations must not use keys under {GROUP}/")
        return self


class Resource(Part):
    """One ``RealtimeServer``: identity and spec. Values only; the status is written, never read for decisions."""

    name: Annotated[str, Field(pattern=DNS_1035, max_length=46)]
    namespace: str
    uid: str
    generation: int
    deleting: bool = False
    spec: Spec

    @property
    def clustered(self) -> bool:
        """Whether the spec asks for a Redis."""
        return self.spec.redis.mode != "Disabled"

    @property
    def wanted(self) -> int:
        """Server replicas that may run once everything is settled: at most one without Redis."""
        return self.spec.replicas if self.clustered else min(self.spec.replicas, 1)

    @property
    def endpoint(self) -> str:
        return f"{self.name}.{self.namespace}.svc:{self.spec.service.port}"


def parse(body: dict[str, Any]) -> Resource:
    """The object as the API server gives it → :class:`Resource`.

    Raises :class:`SpecError` whose text names each field and what is wrong with it.
    """
    metadata = body.get("metadata") or {}
    try:
        return Resource.model_validate(
            {
                "name": metadata.get("name"),
                "namespace": metadata.get("namespace"),
                "uid": metadata.get("uid"),
                "generation": metadata.get("generation", 0),
                "deleting": bool(metadata.get("deletionTimestamp")),
                "spec": body.get("spec") or {},
            }
        )
    except ValidationError as error:
        lines = []
        for item in error.errors(include_input=False, include_url=False):
            path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"])
            path = path.removeprefix(".")
            missing = item["type"] == "missing" and path != "spec.image"
            hint = "missing; apply the CRD of this operator's version" if missing else item["msg"]
            lines.append(f"{path}: {hint.removeprefix('Value error, ')}")
        raise SpecError("; ".join(lines)) from None
