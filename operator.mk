# Kubernetes: a real cluster on this machine (chaos/testcluster), images on it, the tests that need it.
BOX            := $(PYTHON) chaos/testcluster/box.py
BOX_STATE      ?= /var/lib/testcluster
BOX_PREBUILT   ?= $(wildcard ../shared/testcluster)
BOX_KUBECONFIG := $(BOX_STATE)/kubeconfig
export BOX_STATE
ifneq ($(BOX_PREBUILT),)
export BOX_PREBUILT
endif
BOX_IMAGE       = $(BOX) image . $(1):dev -f $(2)/Dockerfile --ignorefile $(2)/Dockerfile.dockerignore --layers --build-arg PYTHON_IMAGE=localhost/python:box

.PHONY: cluster cluster-down cluster-kubeconfig images images-chaos chaos-kubernetes test-chaos-cluster test-cluster bench-operator docs-operator

cluster: ## start a real Kubernetes of two nodes on this machine (root, Debian); prints the kubeconfig
	@command -v buildah >/dev/null || $(BOX) install
	@$(BOX) up

cluster-down: ## end it; leaves nothing behind
	$(BOX) down

cluster-kubeconfig:
	@echo $(BOX_KUBECONFIG)

images: ## build the images of server, operator, the tests' stand-in and HAProxy, and load them on the cluster
	$(call BOX_IMAGE,moorage-server,server)
	$(call BOX_IMAGE,moorage-operator,operator)
	$(BOX) image operator/tests/cluster/standin moorage-standin:dev -f operator/tests/cluster/standin/Dockerfile --build-arg PYTHON_IMAGE=localhost/python:box
	$(BOX) image operator/tests/cluster/affinity moorage-haproxy:dev -f operator/tests/cluster/affinity/Dockerfile --layers --build-arg BASE_IMAGE=localhost/python:box
	$(BOX) load-base

images-chaos: ## build the images of the harness and its node helper, and load them on the cluster
	$(call BOX_IMAGE,moorage-chaos-node,chaos/node)
	$(call BOX_IMAGE,moorage-chaos,chaos)

chaos-kubernetes: venv ## the matrix on pods of that cluster (or of the one that KUBECONFIG names); deploys what changed
	KUBECONFIG=$${KUBECONFIG:-$(BOX_KUBECONFIG)} $(BIN)/python run_all.py --driver kubernetes --deploy $(ARGS)

test-chaos-cluster: venv ## deploys the harness on that cluster and tests it there: a row, killed in mid fault, recover
	KUBECONFIG=$${KUBECONFIG:-$(BOX_KUBECONFIG)} $(BIN)/python -m pytest chaos/tests/cluster $(ARGS)

test-cluster: venv ## the tests on that cluster (or on the one that KUBECONFIG names)
	KUBECONFIG=$${KUBECONFIG:-$(BOX_KUBECONFIG)} $(BIN)/python -m pytest operator/tests/cluster operator/tests/kubectl/test_cluster.py $(ARGS)

docs-operator: venv ## write docs/operator/reference.md anew from the CRD
	$(BIN)/python operator/reference.py

bench-operator: venv ## 200 objects on the test cluster: time to Ready, requests at rest, memory (part of make bench when there is a cluster)
	export KUBECONFIG=$${KUBECONFIG:-$(BOX_KUBECONFIG)} && kubectl apply -f manifests/00-crd.yaml && \
	kubectl wait --for=condition=Established --timeout=20s crd/realtimeservers.moorage.dev && \
	PYTHONPATH=operator $(BIN)/python operator/bench.py $(ARGS)
