# SPDX-License-Identifier: Apache-2.0
#
# nvtopo: `make demo` runs the main job, `make test` passes the tests, `make help` lists the
# rest. Needs Go, gcc and make; everything else is built from modules. Targets are in mk/, a file
# for each subject.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

BIN := bin
# go-nvml's header marks calls as deprecated that it still wraps.
export CGO_CFLAGS := -Wno-deprecated-declarations
export CGO_ENABLED := 1

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT := $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
# component-base parses gitVersion, so it starts with the Kubernetes version the scheduler is built from.
KUBE_VERSION := v1.35.8
LDFLAGS := -X k8s.io/component-base/version.gitVersion=$(KUBE_VERSION)+nvtopo.$(VERSION) \
	-X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=35 \
	-X k8s.io/component-base/version.gitCommit=$(COMMIT)
# go build that says how far it is.
BUILD := scripts/build.sh
# $(call program,NAME,FOLDER) builds a program of ours into bin/.
program = @$(BUILD) $(1) -ldflags '$(LDFLAGS)' -o $(BIN)/$(1) ./cmd/$(2)

# Modules of the repository besides the main one whose code is ours.
OWN_MODULES := bench test/kubelet tools tools/dashboards tools/chart tools/images

.PHONY: help
help: ## Show the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

include mk/build.mk mk/demo.mk mk/test.mk mk/node.mk mk/pages.mk mk/bench.mk mk/generate.mk mk/lint.mk mk/mutants.mk mk/release.mk

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) out
