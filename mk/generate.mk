# SPDX-License-Identifier: Apache-2.0

##@ Generated files, documentation and pictures

.PHONY: generated
generated: ## Check that no generated file is stale
	scripts/generated.sh

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

.PHONY: chart
chart: ## Write the templates of charts/nvtopo from manifests
	go run -C tools/chart . $(CURDIR)/manifests $(CURDIR)/charts/nvtopo

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
	NVTOPO_TRANSCRIPTS=write go test -count=1 -run '^(TestCommandReference|TestCauseReference|TestPaperTranscript|TestWeightTable|TestConceptPictures)$$' ./docs
	NVTOPO_TRANSCRIPTS=write NVTOPO_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 10m -run '^(TestExplain|TestClusterViews|TestWhatIfCommand|TestClusterTopology)$$' ./test/integration
	NVTOPO_TRANSCRIPTS=write NVTOPO_BIN=$(CURDIR)/$(BIN) go test -count=1 -timeout 10m -run '^(TestQuotaWaitExplanation|TestPinDerivation|TestBilling)$$' ./test/pools

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

# What users, operators and other programs see, as tests find it in the source, in the chart and on
# pods of a real control plane (internal/contract). The diff of the files is for the review.
CONTRACT := NVTOPO_CONTRACT=write go test -count=1
.PHONY: contract
contract: cluster-programs $(BIN)/helm ## Write the contract of test/contract/golden anew, whose diff shows what changes for others
	$(CONTRACT) ./test/contract
	$(CONTRACT) -run '^TestContract$$' ./cmd/exporter ./cmd/node-agent ./cmd/pool-controller
	$(BUILT) $(CONTRACT) -run '^TestContract$$' ./test/chart
	$(BUILT) $(CONTRACT) -run '^TestContract$$' ./test/integration
