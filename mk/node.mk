# SPDX-License-Identifier: Apache-2.0

##@ A real node

# A real node needs Linux and root. SKIP_NODE=1 leaves it out.
ifeq ($(SKIP_NODE),1)
NO_NODE := SKIP_NODE=1 is set
else ifneq ($(shell uname)$(shell id -u),Linux0)
NO_NODE := a real node needs Linux and root
endif

.PHONY: node-check
node-check:
	$(if $(NO_NODE),@echo '$(NO_NODE)' >&2; exit 1)

# What a real node consists of. kubelet shares the product's build cache;
# containerd leaves out the snapshotters that need C libraries.
CONTAINERD := github.com/containerd/containerd/v2/cmd

$(BIN)/kubelet: tools/kubelet/go.mod tools/kubelet/go.sum
	$(BUILD) kubelet -C tools/kubelet -ldflags '-X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)' -o ../../$(BIN)/kubelet k8s.io/kubernetes/cmd/kubelet

# The newest kubelet that the agent is tested with. It shares nothing that is compiled.
KUBELET_137 := tools/kubelet-1.37
$(BIN)/kubelet-1.37: $(KUBELET_137)/go.mod $(KUBELET_137)/go.sum
	$(BUILD) kubelet-1.37 -C $(KUBELET_137) -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$$(go -C $(KUBELET_137) list -m -f '{{.Version}}' k8s.io/kubernetes)" \
		-o ../../$(BIN)/kubelet-1.37 k8s.io/kubernetes/cmd/kubelet

$(BIN)/containerd $(BIN)/containerd-shim-runc-v2 $(BIN)/ctr: $(BIN)/%: tools/containerd/go.mod tools/containerd/go.sum
	CGO_ENABLED=0 $(BUILD) $* -C tools/containerd -tags no_btrfs,no_devmapper,no_zfs -o ../../$@ $(CONTAINERD)/$*

# The network of pods on a real node.
CNI := github.com/containernetworking/plugins/plugins
$(BIN)/cni/ptp: CNI_PLUGIN := main/ptp
$(BIN)/cni/host-local: CNI_PLUGIN := ipam/host-local
$(BIN)/cni/ptp $(BIN)/cni/host-local: tools/containerd/go.mod tools/containerd/go.sum
	CGO_ENABLED=0 $(BUILD) $(@F) -C tools/containerd -ldflags '-s -w' -o ../../$@ $(CNI)/$(CNI_PLUGIN)

# NVIDIA's device plugin as it is released; it loads the fake driver.
$(BIN)/nvidia-device-plugin: tools/nvidia-device-plugin/go.mod tools/nvidia-device-plugin/go.sum
	$(BUILD) nvidia-device-plugin -C tools/nvidia-device-plugin -o ../../$@ github.com/NVIDIA/k8s-device-plugin/cmd/nvidia-device-plugin

.PHONY: node-tools
node-tools: $(BIN)/kubelet $(BIN)/kubelet-1.37 $(BIN)/containerd $(BIN)/containerd-shim-runc-v2 $(BIN)/ctr $(BIN)/nvidia-device-plugin $(BIN)/cni/ptp $(BIN)/cni/host-local $(BIN)/helm

# What the last parts of make test-all run, compiled beside those before them, which must not
# notice.
.PHONY: tools-idle
tools-idle:
	nice -n 19 $(MAKE) --no-print-directory $(BIN)/kueue $(BIN)/promtool $(BIN)/helm $(if $(NO_NODE),,node-tools)

.PHONY: node-programs
node-programs: node-tools $(FAKE_DRIVER)
	scripts/install-runc.sh
	CGO_ENABLED=0 go build -ldflags '-s -w' -o $(BIN)/nvtopo-probe ./internal/lab/devcluster/realnode/probe
	$(call program,nvtopo-scheduler,scheduler)
	$(call program,nvtopo-node-agent,node-agent)
	$(call program,nvtopo-exporter,exporter)

# The images that the real node runs are of the programs in bin/, which are there: they need a C
# library, and are not packed. Those of make images are compiled for themselves.
.PHONY: node-images
ifdef NO_NODE
node-images:
	@scripts/leave-out.sh $@ '$(NO_NODE)'
else
node-images: node-programs
	$(call program,nvtopo-pool-controller,pool-controller)
	$(call program,nvtopo,nvtopo)
	mkdir -p $(BIN)/images/programs/linux-$$(go env GOHOSTARCH)
	for p in nvtopo-scheduler nvtopo-exporter nvtopo-node-agent nvtopo-pool-controller nvtopo; do \
		ln -sf $(CURDIR)/$(BIN)/$$p $(BIN)/images/programs/linux-$$(go env GOHOSTARCH)/ || exit; done
	go run -C tools/images . --plain --programs $(CURDIR)/$(BIN)/images/programs --out $(CURDIR)/$(BIN)/images
endif

.PHONY: e2e
ifdef NO_NODE
e2e:
	@scripts/leave-out.sh $@ '$(NO_NODE); then: make e2e'
else
e2e: node-images $(BIN)/gotestsum ## Tests on a real node: kubelet, containerd, runc (root; NVTOPO_E2E_PODS, NVTOPO_E2E_SEED)
	$(GOTEST) -again -format testname e2e ./test/e2e -count=1 -parallel 2
endif

.PHONY: test-kubelet
ifdef NO_NODE
test-kubelet:
	@scripts/leave-out.sh $@ '$(NO_NODE); then: make test-kubelet'
else
test-kubelet: $(BIN)/gotestsum ## Tests on kubelet's own device manager, in process (root)
	cd test/kubelet && ../../$(GOTEST) -again test-kubelet ./... -count=1
endif
