# SPDX-License-Identifier: Apache-2.0

##@ Tests

# The fast tier. It installs nothing. The core of integration waits more than it computes, so it
# goes on beside the unit tests.
FAST_PARTS := 'modules&' generated modules programs 'test-core&' unit test-core test-chart test-pages
.PHONY: test
test: ## The fast tests, which CI runs, and a table of their parts
	@go run ./internal/testparts run $(FAST_PARTS) && code=0 || code=1; \
		echo "left out of make test: pools with the real Kueue, a real node, kubelet's suites, the rest of integration, soak, short benchmarks," \
			"the chart on a real API server, the pages in a browser, alerts, images, lint; make test-all runs them ($(SLOW_TIME))"; exit $$code

# What the parts after them run is compiled beside the tests that wait for most of their time: the
# tools beside the rest of integration. Lint, which needs most, goes on from there. e2e and test-pools both link programs
# into bin/ first, and one would overwrite what the other runs, so node-images links them before.
SLOW_TIME := about an hour on two cores the first time; as root, or the real node is left out
SLOW_PARTS := 'modules&' generated modules programs 'test-core&' unit test-core 'test-bench&' 'tools-idle&' test-integration test-bench tools-idle \
	'lint&' 'test-soak&' test-kubelet test-alerts test-chart test-chart-server test-images test-pages test-ui test-soak \
	node-images 'e2e&' test-pools e2e lint
.PHONY: test-all
test-all: ## All tests and lint, before an issue is called done; it goes on after a part that failed, and ends with a table (SKIP_NODE=1: no real node; SKIP_UI=1: no browser)
	@go run ./internal/testparts run $(SLOW_PARTS)

# go list downloads what is compiled and no more, as many modules at a time as it may use
# cores. Those of the tools of test-all are downloaded by the builds of these.
.PHONY: modules
modules:
	@for m in . tools/chart; do GOMAXPROCS=16 go -C $$m list -deps -test ./... >/dev/null || exit; done
	@for m in tools tools/kwok tools/helm; do GOMAXPROCS=16 go -C $$m list -deps tool >/dev/null || exit; done

# A libnvidia-ml.so.1 for machines without a GPU, against NVIDIA's own header.
FAKE_DRIVER := $(BIN)/fakedriver/libnvidia-ml.so.1
FAKE_DRIVER_SOURCES := $(wildcard pkg/nvtopo/nvml/fakedriver/lib/*)

.PHONY: fakedriver
fakedriver: $(FAKE_DRIVER) ## Build the fake libnvidia-ml.so.1 that tests load
$(FAKE_DRIVER): $(FAKE_DRIVER_SOURCES) go.mod
	mkdir -p $(@D)
	gcc -std=gnu11 -shared -fPIC -O1 -s -pthread -Wall -Wextra -Werror -Wno-deprecated-declarations -fvisibility=hidden \
		-Wl,-soname,$(@F) -I"$$(go list -f '{{.Dir}}' github.com/NVIDIA/go-nvml/pkg/nvml)" -o $@ $(filter %.c,$(FAKE_DRIVER_SOURCES))

# What unit and test-core both compile is compiled before them, for all cores at once.
.PHONY: programs
programs: cluster-programs $(BIN)/helm $(BIN)/gotestsum $(FAKE_DRIVER)
	$(call program,nvtopo-exporter,exporter)
	$(call program,nvtopo-node-agent,node-agent)

$(BIN)/gotestsum: tools/go.mod tools/go.sum
	$(BUILD) gotestsum -C tools -o ../$@ gotest.tools/gotestsum

# Helm says of Kubernetes what it was built with; the tests of the chart render for the version below.
HELM_LDFLAGS := -s -w -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=35 \
	-X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMajor=1 -X helm.sh/helm/v3/pkg/lint/rules.k8sVersionMinor=35
$(BIN)/helm: tools/helm/go.mod tools/helm/go.sum
	$(BUILD) helm -C tools/helm -ldflags '$(HELM_LDFLAGS)' -o ../../$@ helm.sh/helm/v3/cmd/helm

# Prometheus' own test of rules. The tag leaves out its discovery of targets in clouds: 40 s of CPU
# time in place of several minutes.
$(BIN)/promtool: tools/promtool/go.mod tools/promtool/go.sum
	$(BUILD) promtool -C tools/promtool -tags remove_all_sd -ldflags '-s -w' -o ../../$@ github.com/prometheus/prometheus/cmd/promtool

GOTEST := scripts/gotest.sh
# Tests take the programs that make has built.
BUILT := NVTOPO_BIN=$(CURDIR)/$(BIN)

# Packages whose tests need neither etcd nor an API server; internal/lab/devcluster and
# its demo link kube-apiserver and are tested with the integration tests.
UNIT_PACKAGES = $(shell go list ./pkg/... ./internal/... ./manifests/... ./docs/... ./test/contract ./test/mutants/... ./cmd/nvtopo ./cmd/exporter ./cmd/node-agent ./cmd/scheduler ./cmd/pool-controller | grep -v /internal/lab/devcluster)

.PHONY: unit
unit: $(FAKE_DRIVER) $(BIN)/gotestsum ## Unit, property and seed-corpus fuzz tests: no etcd, no root
	@code=0; $(GOTEST) unit '$(UNIT_PACKAGES)' || code=1; cd tools && ../$(GOTEST) unit.measure ./measure || code=1; exit $$code

include mk/core.mk

# Three tests run side by side, on two cores too: they wait for most of their time.
.PHONY: test-core
test-core: programs ## The core of the tests on a real API server and etcd
	@$(BUILT) $(GOTEST) test-core ./test/integration -parallel 3 -run '$(CORE)'

.PHONY: test-integration
test-integration: programs ## The rest of the tests on a real API server and etcd
	@code=0; $(BUILT) $(GOTEST) test-integration.devcluster './internal/lab/devcluster/... ./cmd/devcluster' || code=1; \
	$(BUILT) $(GOTEST) -again test-integration ./test/integration -parallel 3 -skip '$(CORE)' || code=1; exit $$code

# Scenarios wait for most of their time, so more of them run side by side than there are cores.
.PHONY: test-pools
test-pools: cluster-programs $(BIN)/kueue $(BIN)/jobset $(BIN)/gotestsum ## Tests of pools on a real API server and the real Kueue
	$(call program,nvtopo-pool-controller,pool-controller)
	code=0; $(BUILT) $(GOTEST) -again -format testname test-pools ./test/pools -count=1 -parallel 6 || code=1; \
	$(BUILT) $(GOTEST) test-pools.kinds ./pkg/apis/kueue/... -count=1 || code=1; \
	cd bench && $(BUILT) ../$(GOTEST) -again test-pools.bench ./pools -count=1 || code=1; exit $$code

.PHONY: test-alerts
test-alerts: $(BIN)/promtool $(BIN)/gotestsum ## promtool's tests of alerts and recording rules, and tests of dashboards
	code=0; $(BUILT) $(GOTEST) test-alerts ./test/alerts -count=1 || code=1; \
	cd tools/dashboards && ../../$(GOTEST) test-alerts.dashboards ./... -count=1 || code=1; exit $$code

.PHONY: test-chart
test-chart: $(BIN)/helm $(BIN)/gotestsum ## Lint the Helm chart, and compare what it renders with manifests
	code=0; $(BUILT) $(GOTEST) test-chart ./test/chart -count=1 -skip '$(CHART_SERVER)' || code=1; \
	cd tools/chart && ../../$(GOTEST) test-chart.maker ./... -count=1 || code=1; exit $$code

CHART_SERVER := ^TestServerValidation$$
.PHONY: test-chart-server
test-chart-server: $(BIN)/helm $(BIN)/gotestsum ## Apply chart and manifests to a real API server
	$(BUILT) $(GOTEST) -again test-chart-server ./test/chart -count=1 -run '$(CHART_SERVER)'

.PHONY: test-images
test-images: $(BIN)/gotestsum ## Tests of make images
	cd tools/images && ../../$(GOTEST) test-images ./... -count=1

# Two minutes of make soak, some four with its calms and sieges, and the tests of its plan.
.PHONY: test-soak
test-soak: $(BIN)/gotestsum ## A short make soak
	NVTOPO_SOAK_SEED=$(SEED) NVTOPO_SOAK_DURATION=2m $(GOTEST) -again -format standard-verbose test-soak ./test/soak -count=1

# Churn and faults from a seed; DURATION is how long the churn is, calm and start not counted.
SEED ?= 1
DURATION ?= 4m
.PHONY: soak
soak: ## Churn and faults on a real control plane with the checker throughout (SEED, DURATION; an hour: DURATION=1h)
	NVTOPO_SOAK_SEED=$(SEED) NVTOPO_SOAK_DURATION=$(DURATION) NVTOPO_SOAK_EVIDENCE=$(CURDIR)/out/soak go test -v -count=1 -timeout 0 -run '^TestSoak$$' ./test/soak

.PHONY: test-bench
test-bench: cluster-programs $(BIN)/etcd $(BIN)/gotestsum ## A short run of every benchmark but that of pools, which needs Kueue (test-pools); no times are judged
	$(call program,nvtopo,nvtopo)
	cd bench && $(BUILT) ../$(GOTEST) -again test-bench "$$(go list ./... | grep -v /bench/pools$$)"

# The attacks of docs/security.md, by the names of the tests in it. Those of test/e2e need a real node.
HOSTILE = $(shell grep -oE '`(Test|Fuzz)[A-Za-z0-9]+`' docs/security.md | tr -d '`' | sort -u | paste -sd'|')
hostile_packages = $(shell grep -rlE '^func ($(HOSTILE)).[tf] ' --include='*_test.go' $(1) | xargs -rn1 dirname | sort -u | sed 's|^|./|')
.PHONY: test-hostile
test-hostile: programs $(BIN)/kueue $(BIN)/jobset ## Every attack that docs/security.md names, as the account it names; parts of make test-all run the same tests
	$(call program,nvtopo-pool-controller,pool-controller)
	code=0; $(BUILT) $(GOTEST) test-hostile '$(call hostile_packages,manifests pkg internal test/integration test/pools)' -count=1 -parallel 3 -run '^($(HOSTILE))$$' || code=1; \
	cd bench && $(BUILT) ../$(GOTEST) test-hostile.bench '$(patsubst ./bench/%,./%,$(call hostile_packages,bench))' -count=1 -run '^($(HOSTILE))$$' || code=1; exit $$code

# Half an hour of the soak from each of some seeds, gangs placed by the scheduler and by its planner
# alone, and pods and gangs by what-if, on machines of many kinds and on those of LONG_FLEET, 1,000 nodes of four kinds, two gangs that exceed the cluster a hundred times, random jobs of which some must not be
# preempted, the killing of every program of a pool, 200 handovers between pool controllers, then
# thousands of pods on the real node.
LONG_SEEDS ?= 1 2 3
LONG_FLEET := dgx2,hgx-h200,l40s-8
.PHONY: test-long
test-long: cluster-programs $(BIN)/kueue ## What is too long for make test-all (LONG_SEEDS; SKIP_NODE=1: without a real node)
	for seed in $(LONG_SEEDS); do $(MAKE) soak SEED=$$seed DURATION=30m || exit 1; done
	$(BUILT) NVTOPO_GANG_PLANS=400 go test -v -count=1 -timeout 30m -run '^TestSchedulerPlannerParity$$' ./test/integration
	$(BUILT) NVTOPO_MACHINES=$(LONG_FLEET) NVTOPO_GANG_PLANS=400 go test -v -count=1 -timeout 30m -run '^TestSchedulerPlannerParity$$' ./test/integration
	$(BUILT) NVTOPO_UNEQUAL_NODES=250 go test -v -count=1 -timeout 40m -run '^TestUnequalMachines$$' ./test/integration
	$(BUILT) NVTOPO_WHATIF_STATES=20 go test -v -count=1 -timeout 60m -run '^TestWhatIfParity$$' ./test/integration
	$(BUILT) NVTOPO_MACHINES=$(LONG_FLEET) NVTOPO_WHATIF_STATES=40 go test -v -count=1 -timeout 90m -run '^TestWhatIfParity$$' ./test/integration
	$(BUILT) NVTOPO_GANG_ROUNDS=100 go test -v -count=1 -timeout 60m -run '^TestExcessGangs$$' ./test/integration
	$(call program,nvtopo-pool-controller,pool-controller)
	$(BUILT) NVTOPO_POOL_MIXES=50 NVTOPO_POOL_KILLS=5 NVTOPO_BILLING_KILLS=20 NVTOPO_HANDOVERS=200 go test -v -count=1 -timeout 4h -parallel 6 -run '^(TestNoWrongEviction|TestProgramKills|TestBillingKills|TestHandovers)$$' ./test/pools
	$(MAKE) site
	$(if $(filter 1,$(SKIP_NODE)),,for seed in $(LONG_SEEDS); do NVTOPO_E2E_PODS=1000 NVTOPO_E2E_SEED=$$seed $(MAKE) e2e || exit 1; done)

# What a pool survives: each of its programs killed, the pool controller killed while it bills, and handovers
# between two of them.
KILLS ?= 5
BILLING_KILLS ?= 20
HANDOVERS ?= 200
.PHONY: test-kills
test-kills: cluster-programs $(BIN)/kueue ## Kill the programs of pools under load, and compare limits and bills (KILLS, BILLING_KILLS, HANDOVERS: rounds)
	$(call program,nvtopo-pool-controller,pool-controller)
	$(BUILT) NVTOPO_POOL_KILLS=$(KILLS) NVTOPO_BILLING_KILLS=$(BILLING_KILLS) NVTOPO_HANDOVERS=$(HANDOVERS) go test -v -count=1 -timeout 4h -run '^(TestProgramKills|TestBillingKills|TestHandovers)$$' ./test/pools

.PHONY: race
race: ## Tests of concurrent code under the race detector
	go test -race ./pkg/scheduler/nodestate/... ./pkg/scheduler/gangstate ./pkg/plugins/... ./pkg/placement/allocation ./pkg/apis/topology/graphclient ./pkg/node/nodelease \
		./pkg/nvtopo ./pkg/nvtopo/nvml/... ./pkg/node/exporter ./pkg/node/nodeagent/... ./pkg/node/deviceplugin/... ./pkg/scheduler/controller ./internal/daemon ./pkg/scheduler/debug \
		./pkg/pools/... ./pkg/webui/... ./pkg/inspect/whatif ./pkg/scheduler/whatif/...

FUZZTIME ?= 30s
FUZZ ?= .
.PHONY: fuzz
fuzz: ## Fuzz every parser and codec for FUZZTIME each and print a table (FUZZ: a pattern of "package target")
	@scripts/fuzz.sh $(FUZZTIME) '$(FUZZ)'

.PHONY: fuzz-keep
fuzz-keep: ## Keep under testdata/fuzz what make fuzz found that reaches new code (FUZZ: as above)
	@scripts/fuzz-keep.sh '$(FUZZ)'
