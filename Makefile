# SPDX-License-Identifier: Apache-2.0
#
# nvtopo: `make demo` runs the main job, `make test` passes the tests. Needs Go,
# gcc and make; everything else is built from modules.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

BIN := bin
# go-nvml's header marks calls as deprecated that it still wraps.
export CGO_CFLAGS := -Wno-deprecated-declarations
export CGO_ENABLED := 1

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# component-base parses gitVersion, so it starts with the Kubernetes version the scheduler is built from.
KUBE_VERSION := v1.35.6
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)+nvtopo.$(VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35 \
	-X k8s.io/component-base/version.gitCommit=$(COMMIT)
# go build that says how far it is.
BUILD := scripts/build.sh
# $(call program,NAME,FOLDER) builds a program of ours into bin/.
program = @$(BUILD) $(1) -ldflags '$(LDFLAGS)' -o $(BIN)/$(1) ./cmd/$(2)

# Packages whose tests need neither etcd nor an API server; internal/devcluster and
# its demo link kube-apiserver and are tested with the integration tests.
UNIT_PACKAGES = $(shell go list ./pkg/... ./internal/... ./manifests/... ./docs/... ./test/mutants/... ./cmd/nvtopo ./cmd/exporter ./cmd/node-agent ./cmd/scheduler ./cmd/pool-controller | grep -v /internal/devcluster)

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: $(BIN)/kwok ## Build all programs into bin/
	$(call program,nvtopo-scheduler,scheduler)
	$(call program,nvtopo-devcluster,devcluster)
	$(call program,nvtopo-exporter,exporter)
	$(call program,nvtopo-node-agent,node-agent)
	$(call program,nvtopo-pool-controller,pool-controller)
	$(call program,nvtopo,nvtopo)
	ln -sf nvtopo $(BIN)/kubectl-nvtopo
	ln -sf nvtopo $(BIN)/kubectl_complete-nvtopo

$(BIN)/kwok: tools/kwok/go.mod tools/kwok/go.sum
	$(BUILD) kwok -C tools/kwok -o ../../$(BIN)/kwok sigs.k8s.io/kwok/cmd/kwok

KUEUE_TAGS := exclude_scheduler_library

# Kueue as tools/kueue/go.mod says, and the config folder of its module: CRDs, roles, webhooks.
$(BIN)/kueue: tools/kueue/go.mod tools/kueue/go.sum
	$(BUILD) kueue -C tools/kueue -tags $(KUEUE_TAGS) -ldflags '-s -w' -o ../../$@ sigs.k8s.io/kueue/cmd/kueue
	rm -rf $@-config
	cp -r "$$(go -C tools/kueue list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config" $@-config
	chmod -R u+w $@-config

# Prometheus' own test of rules. The tag leaves out its discovery of targets in clouds: 40 s of CPU
# time in place of several minutes.
$(BIN)/promtool: tools/promtool/go.mod tools/promtool/go.sum
	$(BUILD) promtool -C tools/promtool -tags remove_all_sd -ldflags '-s -w' -o ../../$@ github.com/prometheus/prometheus/cmd/promtool

# Helm says of Kubernetes what it was built with; the tests of the chart render for the version below.
HELM_LDFLAGS := -s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35 \
	-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=35
$(BIN)/helm: tools/helm/go.mod tools/helm/go.sum
	$(BUILD) helm -C tools/helm -ldflags '$(HELM_LDFLAGS)' -o ../../$@ helm.sh/helm/v3/cmd/helm

# Before the long builds: what is to come.
.PHONY: first-time
first-time:
	@[ -e $(BIN)/nvtopo-devcluster ] || echo "first time: builds kwok, nvtopo-scheduler and nvtopo-devcluster (with kube-apiserver) from source;" \
		"some eight minutes on two cores, and the download of their modules" >&2

.PHONY: cluster-programs
cluster-programs: first-time $(BIN)/kwok ## Build what the demo and the integration tests run
	$(call program,nvtopo-scheduler,scheduler)
	$(call program,nvtopo-devcluster,devcluster)

# A libnvidia-ml.so.1 for machines without a GPU, against NVIDIA's own header.
FAKE_DRIVER := $(BIN)/fakedriver/libnvidia-ml.so.1
FAKE_DRIVER_SOURCES := $(wildcard pkg/nvtopo/nvml/fakedriver/lib/*)

.PHONY: fakedriver
fakedriver: $(FAKE_DRIVER) ## Build the fake libnvidia-ml.so.1 that tests load
$(FAKE_DRIVER): $(FAKE_DRIVER_SOURCES) go.mod
	mkdir -p $(@D)
	gcc -std=gnu11 -shared -fPIC -O1 -s -pthread -Wall -Wextra -Werror -Wno-deprecated-declarations -fvisibility=hidden \
		-Wl,-soname,$(@F) -I"$$(go list -f '{{.Dir}}' github.com/NVIDIA/go-nvml/pkg/nvml)" -o $@ $(filter %.c,$(FAKE_DRIVER_SOURCES))

# What a real node consists of. kubelet shares the product's build cache;
# containerd leaves out the snapshotters that need C libraries.
CONTAINERD := github.com/containerd/containerd/v2/cmd

$(BIN)/kubelet: tools/kubelet/go.mod tools/kubelet/go.sum
	$(BUILD) kubelet -C tools/kubelet -ldflags '-X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)' -o ../../$(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet

$(BIN)/containerd $(BIN)/containerd-shim-runc-v2 $(BIN)/ctr: $(BIN)/%: tools/containerd/go.mod tools/containerd/go.sum
	CGO_ENABLED=0 $(BUILD) $* -C tools/containerd -tags no_btrfs,no_devmapper,no_zfs -o ../../$@ $(CONTAINERD)/$*

# The network of pods on a real node.
CNI := github.com/containernetworking/plugins/plugins
$(BIN)/cni/ptp: CNI_PLUGIN := main/ptp
$(BIN)/cni/host-local: CNI_PLUGIN := ipam/host-local
$(BIN)/cni/ptp $(BIN)/cni/host-local: tools/containerd/go.mod tools/containerd/go.sum
	CGO_ENABLED=0 $(BUILD) $(@F) -C tools/containerd -ldflags '-s -w' -o ../../$@ $(CNI)/$(CNI_PLUGIN)

# NVIDIA's device plugin as it is released; it loads the fake driver above.
$(BIN)/nvidia-device-plugin: tools/nvidia-device-plugin/go.mod tools/nvidia-device-plugin/go.sum
	$(BUILD) nvidia-device-plugin -C tools/nvidia-device-plugin -o ../../$@ github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin

# Before the long builds: what cannot be built.
.PHONY: node-check
node-check:
	@[ "$$(uname)" = Linux ] && [ "$$(id -u)" = 0 ] || \
		{ echo "a real node needs Linux and root; SKIP_NODE=1 make test leaves it out" >&2; exit 1; }

.PHONY: node-tools
node-tools: $(BIN)/kubelet $(BIN)/containerd $(BIN)/containerd-shim-runc-v2 $(BIN)/ctr $(BIN)/nvidia-device-plugin $(BIN)/cni/ptp $(BIN)/cni/host-local $(BIN)/helm

# What the last parts of make test run, compiled beside those before them, which must not
# notice.
.PHONY: tools-idle
tools-idle:
	nice -n 19 $(MAKE) --no-print-directory $(BIN)/kueue $(BIN)/promtool $(BIN)/helm $(NODE_TOOLS)

.PHONY: node-programs
node-programs: node-tools $(FAKE_DRIVER) ## Build what the real node runs (root: installs runc)
	scripts/install-runc.sh
	CGO_ENABLED=0 go build -ldflags '-s -w' -o $(BIN)/nvtopo-probe ./internal/devcluster/realnode/probe
	$(call program,nvtopo-scheduler,scheduler)
	$(call program,nvtopo-node-agent,node-agent)
	$(call program,nvtopo-exporter,exporter)

.PHONY: demo-node
demo-node: node-check node-programs ## Run pods on a real node and compare what was chosen, recorded and seen (root)
	$(call program,nvtopo-devcluster,devcluster)
	$(BIN)/nvtopo-devcluster demo-node

.PHONY: demo
demo: cluster-programs ## Place pods on simulated nodes with a real API server
	$(BIN)/nvtopo-devcluster demo

.PHONY: demo-gang
demo-gang: cluster-programs ## Place gangs by racks and spines on simulated nodes, and draw who has which GPU
	$(BIN)/nvtopo-devcluster demo-gang

.PHONY: demo-pools
demo-pools: cluster-programs $(BIN)/kueue ## Share a pool among three tenants with the real Kueue, and draw who holds what and who pays
	$(call program,nvtopo-pool-controller,pool-controller)
	$(BIN)/nvtopo-devcluster demo-pools

# make test has vet for all modules, and does not vet each test again.
GOTEST ?= go test

.PHONY: unit
unit: $(FAKE_DRIVER) ## Unit, property and seed-corpus fuzz tests: no etcd, no root
	$(GOTEST) $(UNIT_PACKAGES)

include mk/mutants.mk

# The tests take programs as make has built them. Three tests run side by side, on two cores
# too: they wait for most of their time.
.PHONY: test-integration
test-integration: cluster-programs $(FAKE_DRIVER) ## Tests on a real API server and etcd
	$(call program,nvtopo-exporter,exporter)
	$(call program,nvtopo-node-agent,node-agent)
	NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -timeout 25m -parallel 3 ./internal/devcluster/... ./cmd/devcluster ./test/integration/...

# Scenarios wait for most of their time, so more of them run side by side than there are cores.
.PHONY: test-pools
test-pools: cluster-programs $(BIN)/kueue ## Tests of pools on a real API server and the real Kueue
	$(call program,nvtopo-pool-controller,pool-controller)
	NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -v -count=1 -timeout 30m -parallel 6 ./test/pools
	cd bench && NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -count=1 ./pools

.PHONY: test-alerts
test-alerts: $(BIN)/promtool ## promtool's tests of alerts and recording rules, and tests of dashboards
	NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -count=1 ./test/alerts
	cd tools/dashboards && $(GOTEST) -count=1 ./...

.PHONY: dashboards
dashboards: ## Write the Grafana dashboards of manifests/dashboards
	go run -C tools/dashboards . $(CURDIR)/manifests/dashboards

# Where the dashboards are drawn. Go passes over a folder with such a name: an npm package has Go
# files. Prometheus and Chromium have to be there (Debian: prometheus, chromium).
PICTURES := out/_pictures
PROMETHEUS ?= prometheus
RECORD ?= 10m
.PHONY: dashboard-pictures
dashboard-pictures: ## Draw the dashboards of docs/pictures anew with Grafana's own panels, from a churn that a Prometheus records (needs npm; RECORD, PROMETHEUS, CHROMIUM)
	mkdir -p $(PICTURES) && cp tools/dashboards/pictures/* $(PICTURES)/
	cd $(PICTURES) && npm ci --ignore-scripts --no-audit --no-fund
	NVTOPO_RECORD_PROMETHEUS='$(PROMETHEUS)' NVTOPO_RECORD_DURATION=$(RECORD) \
		NVTOPO_RECORD_SHOW='node $(PICTURES)/draw.mjs manifests/dashboards docs/pictures/dashboards' \
		go test -v -count=1 -timeout 0 -run '^TestRecording$$' ./test/soak

# The architectures of images, and their names: REGISTRY/nvtopo-scheduler:TAG.
ARCHS ?= amd64 arm64
REGISTRY ?=
TAG ?= dev
.PHONY: images
images: ui ## Build container images as OCI layouts with bills of materials into out/images (ARCHS, REGISTRY, TAG; SKIP_UI=1: without the web view's pages)
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' ARCHS='$(ARCHS)' REGISTRY='$(REGISTRY)' TAG='$(TAG)' scripts/images.sh out/images

.PHONY: test-images
test-images: ## Tests of make images
	cd tools/images && $(GOTEST) -count=1 ./...

# The front end of the web view, which ui/embed.go embeds. It is not part of build: without it
# nvtopo ui serves a page that says how to build it.
UI_SKIPPED := out/ui-skipped
UI_TOOLS := out/ui-tools.log

.PHONY: ui
ui: ## Build the web view's front end into ui/dist (root: installs nodejs and npm; SKIP_UI=1: not)
ifeq ($(SKIP_UI),1)
	@echo "SKIP_UI=1: the front end of the web view was not built"
else
	scripts/ui-tools.sh
	cd ui && npm run --silent build
endif

# The browser tests run on a made-up cluster, then on a real API server. What cannot be downloaded
# must not fail make test: out/ui-skipped has the reason then.
.PHONY: test-ui
test-ui: cluster-programs ## Check, build and test the web view's front end in Chromium (root: installs nodejs, npm, chromium; SKIP_UI=1: not)
	@mkdir -p $(dir $(UI_SKIPPED)); rm -f $(UI_SKIPPED)
ifeq ($(SKIP_UI),1)
	@echo "SKIP_UI=1: the front end of the web view was neither built nor tested" | tee $(UI_SKIPPED)
else
	@scripts/ui-tools.sh chromium 2>&1 | tee $(UI_TOOLS); code=$$?; \
	if [ $$code -eq 3 ]; then { echo "the front end of the web view was not tested: its packages cannot be downloaded ($(UI_TOOLS))"; tail -n 2 $(UI_TOOLS); } >$(UI_SKIPPED); \
		head -n 1 $(UI_SKIPPED); \
	elif [ $$code -ne 0 ]; then exit $$code; \
	else cd ui && npm run --silent check && npm test --silent && npm run --silent build && npm run --silent e2e && cd .. && \
		NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -count=1 -timeout 10m -v ./test/ui; fi
endif

# The pictures are of the cluster of test/ui, which has something for each page. pngquant has to be
# there (Debian: pngquant): pictures stay in the history, and are half the size with it.
.PHONY: ui-pictures
ui-pictures: ui cluster-programs ## Draw the pictures of docs/ui.md anew, by the browser tests on a real API server (root: installs nodejs, npm, chromium; needs pngquant)
	pngquant --version
	scripts/ui-tools.sh chromium
	rm -rf out/ui-cluster
	NVTOPO_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 10m -v ./test/ui
	cp out/ui-cluster/*-light.png out/ui-cluster/*-dark.png docs/pictures/ui/
	pngquant --force --ext .png --strip 256 docs/pictures/ui/*.png

.PHONY: chart
chart: ## Write the templates of charts/nvtopo from manifests
	go run -C tools/chart . $(CURDIR)/manifests $(CURDIR)/charts/nvtopo

.PHONY: test-chart
test-chart: $(BIN)/helm ## Lint the Helm chart, and compare what it renders with manifests
	cd tools/chart && $(GOTEST) -count=1 ./...
	NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -count=1 ./test/chart

# Churn and faults from a seed; DURATION is how long the churn is, calm and start not counted.
SEED ?= 1
DURATION ?= 4m
.PHONY: soak
soak: ## Churn and faults on a real control plane with the checker throughout (SEED, DURATION; an hour: DURATION=1h)
	NVTOPO_SOAK_SEED=$(SEED) NVTOPO_SOAK_DURATION=$(DURATION) NVTOPO_SOAK_EVIDENCE=$(CURDIR)/out/soak go test -v -count=1 -timeout 0 -run '^TestSoak$$' ./test/soak

.PHONY: test-soak
test-soak: ## Two minutes of make soak, some three with its calms, and the tests of its plan
	NVTOPO_SOAK_SEED=$(SEED) NVTOPO_SOAK_DURATION=2m $(GOTEST) -v -count=1 -timeout 20m ./test/soak

.PHONY: test-bench
test-bench: cluster-programs ## A short run of every benchmark but that of pools, which needs Kueue (test-pools); no times are judged
	$(call program,nvtopo,nvtopo)
	cd bench && NVTOPO_BIN=$(CURDIR)/$(BIN) $(GOTEST) -timeout 15m $$(go list ./... | grep -v /bench/pools$$)

.PHONY: test-kubelet
test-kubelet: ## Tests on kubelet's own device manager, in process
	cd test/kubelet && $(GOTEST) ./...

# Half an hour of the soak from each of some seeds, gangs placed by the scheduler and by its planner
# alone, two gangs that exceed the cluster a hundred times, random jobs of which some must not be
# preempted and the killing of every program of a pool, then thousands of pods on the real node.
LONG_SEEDS ?= 1 2 3
.PHONY: test-long
test-long: cluster-programs $(BIN)/kueue ## What is too long for make test, before an issue is called done (LONG_SEEDS; SKIP_NODE=1: without a real node)
	for seed in $(LONG_SEEDS); do $(MAKE) soak SEED=$$seed DURATION=30m || exit 1; done
	NVTOPO_BIN=$(CURDIR)/$(BIN) NVTOPO_GANG_PLANS=400 go test -v -count=1 -timeout 30m -run '^TestTheSchedulerPlacesAsThePlannerDoes$$' ./test/integration
	NVTOPO_BIN=$(CURDIR)/$(BIN) NVTOPO_WHATIF_STATES=20 go test -v -count=1 -timeout 60m -run '^TestWhatIfIsWhatHappens$$' ./test/integration
	NVTOPO_BIN=$(CURDIR)/$(BIN) NVTOPO_GANG_ROUNDS=100 go test -v -count=1 -timeout 60m -run '^TestTwoGangsThatExceedTheCluster$$' ./test/integration
	$(call program,nvtopo-pool-controller,pool-controller)
	NVTOPO_BIN=$(CURDIR)/$(BIN) NVTOPO_POOL_MIXES=50 NVTOPO_POOL_KILLS=5 NVTOPO_BILLING_KILLS=20 go test -v -count=1 -timeout 60m -run '^(TestNobodyIsEvictedWhoMustNotBe|TestKilledProgramsChangeNothing|TestBillsSurviveKills)$$' ./test/pools
	$(MAKE) site
	$(if $(filter 1,$(SKIP_NODE)),,for seed in $(LONG_SEEDS); do NVTOPO_E2E_PODS=1000 NVTOPO_E2E_SEED=$$seed $(MAKE) e2e || exit 1; done)
	$(SKIPPED)

# SKIP_NODE=1 leaves out what needs Linux and root.
ifeq ($(SKIP_NODE),1)
NODE_TOOLS :=
SKIPPED := @echo "SKIP_NODE=1: the tests on a real node (make e2e, most of make test-kubelet) were left out"
else
NODE_TOOLS := node-tools
endif

# The images that the real node runs are of the programs in bin/, which are there: they need a C
# library, and are not packed. Those of make images are compiled for themselves.
.PHONY: node-images
node-images: node-programs
	$(call program,nvtopo-pool-controller,pool-controller)
	$(call program,nvtopo,nvtopo)
	mkdir -p $(BIN)/images/programs/linux-$$(go env GOHOSTARCH)
	for p in nvtopo-scheduler nvtopo-exporter nvtopo-node-agent nvtopo-pool-controller nvtopo; do \
		ln -sf $(CURDIR)/$(BIN)/$$p $(BIN)/images/programs/linux-$$(go env GOHOSTARCH)/ || exit; done
	go run -C tools/images . --plain --programs $(CURDIR)/$(BIN)/images/programs --out $(CURDIR)/$(BIN)/images

.PHONY: e2e
e2e: node-check node-images ## Tests on a real node: kubelet, containerd, runc (root; NVTOPO_E2E_PODS, NVTOPO_E2E_SEED)
	$(GOTEST) -v -count=1 -timeout 30m -parallel 2 ./test/e2e

# The release before this one. Its programs are built from the history.
OLD ?= 3738c2d
.PHONY: skew
skew: cluster-programs ## Programs of two releases beside each other, upgrades and roll-backs (OLD=REV; root for the node's part; needs the history)
	KUBE_VERSION=$(KUBE_VERSION) scripts/build-release.sh $(OLD) out/skew/$(OLD)
	$(call program,nvtopo-exporter,exporter)
	$(call program,nvtopo-node-agent,node-agent)
	NVTOPO_SKEW_OLD=$(CURDIR)/out/skew/$(OLD) go test -v -count=1 -timeout 30m ./test/skew

.PHONY: generated
generated: ## Check that no generated file is stale
	scripts/generated.sh

.PHONY: vet
vet: ## go vet on every module; it compiles all tests, those of make skew and make e2e too
	go vet ./...
	go -C bench vet ./...
	go -C test/kubelet vet ./...
	go -C tools/dashboards vet ./...
	go -C tools/chart vet ./...
	go -C tools/images vet ./...

# go list downloads what is compiled and no more, as many modules at a time as it may use
# cores.
.PHONY: modules
modules: ## Download the modules of make test
	@for m in . bench test/kubelet tools/dashboards tools/chart tools/images; do GOMAXPROCS=16 go -C $$m list -deps -test ./... >/dev/null || exit; done
	@for m in tools tools/kwok tools/helm $(if $(NODE_TOOLS),tools/kubelet tools/containerd tools/nvidia-device-plugin); do \
		GOMAXPROCS=16 go -C $$m list -deps tool >/dev/null || exit; done
	@GOMAXPROCS=16 go -C tools/kueue list -tags $(KUEUE_TAGS) -deps tool >/dev/null
	@GOMAXPROCS=16 go -C tools/promtool list -tags remove_all_sd -deps tool >/dev/null
	@go -C tools/prometheus-operator mod download

# vet comes early: it compiles, for all cores at once, what the tests after it link. Modules
# are downloaded while the generator is compiled, Kueue and what a real node runs are compiled
# while the integration tests wait. What waits for a good part of its time goes on beside other
# tests: the short benchmarks, the soak, and the real node's pods beside the scenarios of pools.
# e2e and test-pools both link programs into bin/ first, and one would overwrite what the other
# runs, so node-images links them before.
PARTS = 'modules&' generated modules vet 'test-bench&' unit test-bench 'tools-idle&' test-integration tools-idle \
	'test-soak&' test-kubelet test-alerts test-chart test-images test-ui test-soak \
	$(if $(NODE_TOOLS),node-images 'e2e&') test-pools $(if $(NODE_TOOLS),e2e)
.PHONY: test
test: $(if $(NODE_TOOLS),node-check) ## Everything that CI runs, and a table of how long each part took (SKIP_NODE=1: without a real node; SKIP_UI=1: without a browser)
	@MAKE='$(MAKE)' GOTEST='go test -vet=off' scripts/parts.sh $(PARTS)
	$(SKIPPED)
	@if [ -e $(UI_SKIPPED) ]; then cat $(UI_SKIPPED); fi

.PHONY: race
race: ## Tests of concurrent code under the race detector
	go test -race ./pkg/nodestate/... ./pkg/gangstate ./pkg/plugins/... ./pkg/allocation ./pkg/graphclient ./pkg/nodelease \
		./pkg/nvtopo ./pkg/nvtopo/nvml/... ./pkg/exporter ./pkg/nodeagent/... ./pkg/deviceplugin/... ./pkg/controller ./pkg/daemon ./pkg/debug \
		./pkg/pools/... ./pkg/webui/... ./pkg/whatif/...

.PHONY: bench
bench: bench-pick bench-cycle bench-quality bench-gangs bench-scheduler bench-pools bench-webui ## All benchmarks; tables on the terminal, JSON and plots under out/ (BENCHFLAGS: see docs/benchmarks.md)

.PHONY: bench-pick
bench-pick: ## Time per pick and regret, beside other pickers
	go -C bench run ./pick $(BENCHFLAGS)

.PHONY: bench-quality
bench-quality: ## Placement quality, beside other policies
	go -C bench run ./quality $(BENCHFLAGS)

.PHONY: bench-gangs
bench-gangs: ## Gangs on racks and spines, beside the rules of other systems
	go -C bench run ./gangs $(BENCHFLAGS)

.PHONY: bench-scheduler
bench-scheduler: cluster-programs ## Throughput on a real control plane, beside the stock scheduler
	go -C bench run ./scheduler $(BENCHFLAGS)

.PHONY: bench-pools
bench-pools: cluster-programs $(BIN)/kueue ## Jobs that Kueue admits and our scheduler places, beside the stock scheduler
	$(call program,nvtopo-pool-controller,pool-controller)
	go -C bench run ./pools $(BENCHFLAGS)

.PHONY: bench-webui
bench-webui: ## What the web view costs, as a process of its own, with viewers in another
	$(call program,nvtopo,nvtopo)
	go -C bench run ./webui $(BENCHFLAGS)

.PHONY: bench-cycle
bench-cycle: ## The scheduling cycle alone, beside the stock plugins
	go -C bench run ./cycle $(BENCHFLAGS)

.PHONY: bench-packages
bench-packages: ## Go benchmarks of the library and the extension points
	go test -run '^$$' -bench . -benchmem ./pkg/nvtopo/... ./pkg/plugins/lifecycle

FUZZTIME ?= 30s
FUZZ ?= .
.PHONY: fuzz
fuzz: ## Fuzz every parser and codec for FUZZTIME each and print a table (FUZZ: a pattern of "package target")
	@scripts/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: fuzz-keep
fuzz-keep: ## Keep under testdata/fuzz what make fuzz found that reaches new code (FUZZ: as above)
	@scripts/fuzz-keep.sh '$(FUZZ)'

.PHONY: generate
generate: ## Generate deepcopy functions, the CRDs and the reference pages of their fields
	go tool -modfile=tools/go.mod controller-gen object:headerFile=tools/controller-gen/header.go.txt paths=./pkg/apis/...
	go tool -modfile=tools/go.mod controller-gen crd paths=./pkg/apis/topology/... output:crd:dir=manifests/crd
	go tool -modfile=tools/go.mod controller-gen crd paths=./pkg/apis/pool/... output:crd:dir=manifests/pools
	scripts/quantities.sh manifests/crd/topology.nvtopo.dev_nodegputopologies.yaml
	$(call reference,topology,topology.nvtopo.dev/v1alpha1,Objects about GPUs and the fabric,For whoever reads or writes a NodeGPUTopology or the ClusterTopology: every field of both.)
	$(call reference,pool,pool.nvtopo.dev/v1alpha1,Objects of pools,For whoever reads or writes ComputePools and what belongs to them: every field.)
	$(call reference,config,kubescheduler.config.k8s.io/v1,Arguments of the plugins,For operators: every argument under pluginConfig of a KubeSchedulerConfiguration.)

# $(call reference,FOLDER OF pkg/apis,API VERSION,TITLE,FOR WHOM) writes a page about the types there.
reference = go tool -modfile=tools/go.mod crd-ref-docs --log-level ERROR --renderer markdown --config tools/crd-ref-docs/config.yaml \
	--templates-dir tools/crd-ref-docs/templates --source-path pkg/apis/$(1) --output-path docs/reference/$(1).md \
	--template-value 'apiVersion=$(2)' --template-value 'title=$(3)' --template-value 'for=$(4)'

$(BIN)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	$(BUILD) golangci-lint -C tools/lint -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run golangci-lint
	$(BIN)/golangci-lint run ./...
	cd bench && ../$(BIN)/golangci-lint run --config ../.golangci.yml ./...
	cd test/kubelet && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...
	for m in tools/dashboards tools/chart tools/images; do (cd $$m && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...) || exit; done

# Findings are explained in docs/security.md. VULNDB is a URL or file:///folder.
VULNDB ?= https://vuln.go.dev
.PHONY: vuln
vuln: ## Look for known vulnerabilities in what the programs call (needs vuln.go.dev, or VULNDB)
	go build -C tools/vuln -o ../../$(BIN)/govulncheck golang.org/x/vuln/cmd/govulncheck
	$(BIN)/govulncheck -db $(VULNDB) ./cmd/...

$(BIN)/cyclonedx-gomod: tools/sbom/go.mod tools/sbom/go.sum
	$(BUILD) cyclonedx-gomod -C tools/sbom -o ../../$@ github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod

# The programs of a release (docs/releases.md).
RELEASED ?= nvtopo-scheduler nvtopo-exporter nvtopo-node-agent nvtopo-pool-controller nvtopo
.PHONY: release-check
release-check: $(BIN)/cyclonedx-gomod ## Check that HEAD can be released: changelog, reproducible programs, SBOMs; they are left in out/release (RELEASED=nvtopo: that program only; SKIP_UI=1: without the web view's pages)
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' SBOM=$< scripts/release-check.sh out/release $(RELEASED)

# The pages as a web site in out/site. A link to a page or a heading that is not there fails.
# Hugo takes two minutes of CPU time to compile, so that it is no part of make test.
$(BIN)/hugo: tools/site/go.mod tools/site/go.sum
	CGO_ENABLED=0 $(BUILD) hugo -C tools/site -ldflags '-s -w' -o ../../$@ github.com/gohugoio/hugo

.PHONY: site
site: $(BIN)/hugo ## Make the web site of docs/ in out/site, and check its links
	$(BIN)/hugo --source docs/site --noBuildLock --destination ../../out/site --cleanDestinationDir --panicOnWarning --logLevel warn

# Transcripts and the reference of commands are what tests see; they compare them otherwise. A test
# that records one is named here, or this target does not write it.
.PHONY: transcripts
transcripts: cluster-programs $(BIN)/kueue ## Write the transcripts, pictures and command reference of docs/ anew, from a real control plane
	$(call program,nvtopo-pool-controller,pool-controller)
	NVTOPO_TRANSCRIPTS=write go test -count=1 -run '^(TestTheReferenceOfCommands|TestTheTranscriptOnPaper|TestTheTableOfWeights|TestThePicturesOfTheConcepts)$$' ./docs
	NVTOPO_TRANSCRIPTS=write NVTOPO_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 10m -run '^(TestExplain|TestClusterViewsOnARealControlPlane|TestWhatIfCommand|TestClusterTopology)$$' ./test/integration
	NVTOPO_TRANSCRIPTS=write NVTOPO_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 10m -run '^(TestAJobThatWaitsForQuotaIsExplained|TestPinsAreDerived|TestBilling)$$' ./test/pools

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the code
	$(BIN)/golangci-lint fmt ./... bench/... test/kubelet/...

.PHONY: verify
verify: generate fmt lint race ## Before an issue is called done: lint, race detector, and that generating, formatting and tidying change nothing
	go mod tidy
	go -C bench mod tidy
	go -C test/kubelet mod tidy
	git diff --exit-code

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) out
