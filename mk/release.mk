# SPDX-License-Identifier: Apache-2.0

##@ Releases

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
