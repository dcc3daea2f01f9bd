# SPDX-License-Identifier: Apache-2.0

##@ Lint

$(BIN)/golangci-lint: tools/lint/go.mod tools/lint/go.sum
	$(BUILD) golangci-lint -C tools/lint -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: lint
lint: $(BIN)/golangci-lint ## Run golangci-lint
	$(BIN)/golangci-lint run ./...
	cd bench && ../$(BIN)/golangci-lint run --config ../.golangci.yml ./...
	cd test/kubelet && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...
	for m in tools/dashboards tools/chart tools/images; do (cd $$m && ../../$(BIN)/golangci-lint run --config ../../.golangci.yml ./...) || exit; done

.PHONY: fmt
fmt: $(BIN)/golangci-lint ## Format the code
	$(BIN)/golangci-lint fmt ./... bench/... test/kubelet/...

.PHONY: verify
verify: generate fmt lint race ## Before an issue is called done: lint, race detector, and that generating, formatting and tidying change nothing
	go mod tidy
	go -C bench mod tidy
	go -C test/kubelet mod tidy
	git diff --exit-code
