# SPDX-License-Identifier: Apache-2.0

##@ Build

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

# Before the long builds: what is to come.
.PHONY: first-time
first-time:
	@[ -e $(BIN)/nvtopo-devcluster ] || echo "first time: builds kwok, nvtopo-scheduler and nvtopo-devcluster (with kube-apiserver) from source;" \
		"some eight minutes on two cores, and the download of their modules" >&2

.PHONY: cluster-programs
cluster-programs: first-time $(BIN)/kwok
	$(call program,nvtopo-scheduler,scheduler)
	$(call program,nvtopo-devcluster,devcluster)

$(BIN)/kwok: tools/kwok/go.mod tools/kwok/go.sum
	$(BUILD) kwok -C tools/kwok -o ../../$(BIN)/kwok sigs.k8s.io/kwok/cmd/kwok

# scheduler_perf starts etcd as a program; all else has it embedded.
$(BIN)/etcd: tools/etcd/go.mod tools/etcd/go.sum
	$(BUILD) etcd -C tools/etcd -ldflags '-s -w' -o ../../$@ go.etcd.io/etcd/server/v3

# Kueue as tools/kueue/go.mod says, and the config folder of its module: CRDs, roles, webhooks.
KUEUE_TAGS := exclude_scheduler_library
$(BIN)/kueue: tools/kueue/go.mod tools/kueue/go.sum
	$(BUILD) kueue -C tools/kueue -tags $(KUEUE_TAGS) -ldflags '-s -w' -o ../../$@ sigs.k8s.io/kueue/cmd/kueue
	rm -rf $@-config
	cp -r "$$(go -C tools/kueue list -m -f '{{.Dir}}' sigs.k8s.io/kueue)/config" $@-config
	chmod -R u+w $@-config

# JobSet's controller, of the version that Kueue is built with, and the config folder of its module.
$(BIN)/jobset: tools/kueue/go.mod tools/kueue/go.sum tools/kueue/jobset/main.go
	$(BUILD) jobset -C tools/kueue -ldflags '-s -w' -o ../../$@ ./jobset
	rm -rf $@-config
	cp -r "$$(go -C tools/kueue list -m -f '{{.Dir}}' sigs.k8s.io/jobset)/config" $@-config
	chmod -R u+w $@-config

# The architectures of images, and their names: REGISTRY/nvtopo-scheduler:TAG.
ARCHS ?= amd64 arm64
REGISTRY ?=
TAG ?= dev
.PHONY: images
images: ui ## Build container images as OCI layouts with bills of materials into out/images (ARCHS, REGISTRY, TAG; SKIP_UI=1: without the web view's pages)
	VERSION='$(VERSION)' LDFLAGS='$(LDFLAGS)' ARCHS='$(ARCHS)' REGISTRY='$(REGISTRY)' TAG='$(TAG)' scripts/images.sh out/images

# The front end of the web view, which ui/embed.go embeds. It is not part of build: without it
# nvtopo ui serves a page that says how to build it.
.PHONY: ui
ui: ## Build the web view's front end into ui/dist (root: installs nodejs and npm; SKIP_UI=1: not)
ifeq ($(SKIP_UI),1)
	@echo "SKIP_UI=1: the front end of the web view was not built"
else
	scripts/ui-tools.sh
	cd ui && npm run --silent build
endif
