# SPDX-License-Identifier: Apache-2.0

##@ Lint

$(BIN)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	$(BUILD) golangci-lint -C tools/lint -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# The garbage collector takes a quarter of lint's CPU time unless the heap may grow.
LINT := GOGC=400 GOMEMLIMIT=8GiB nice -n 19 $(CURDIR)/$(BIN)/golangci-lint
.PHONY: lint
lint: $(BIN)/golangci-lint ## Run golangci-lint, and compare the figures of tools/measure with their limits
	$(LINT) run ./...
	for m in $(OWN_MODULES); do (cd $$m && $(LINT) run --config $(CURDIR)/.golangci.yml ./...) || exit; done
	nice -n 19 go run -C tools ./measure

.PHONY: measure
measure: ## Print the figures that tools/measure/limits.yaml limits, and more, as Markdown tables
	@go run -C tools ./measure -all

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the code
	$(BIN)/golangci-lint fmt ./... $(OWN_MODULES:%=%/...)

.PHONY: verify
verify: generate fmt lint race ## Before an issue is called done: lint, race detector, and that generating, formatting and tidying change nothing
	go mod tidy
	for m in $(OWN_MODULES); do go -C $$m mod tidy || exit; done
	git diff --exit-code
