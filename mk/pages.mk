# SPDX-License-Identifier: Apache-2.0

##@ The web view's pages

UI_TOOLS := out/ui-tools.log
# $(call ui-tools,PART,ARGUMENT,COMMAND,AGAIN) runs a command when what the pages are built with is
# there, and otherwise leaves the part out; AGAIN says how to run it.
ui-tools = @mkdir -p $(dir $(UI_TOOLS)); scripts/ui-tools.sh $(2) 2>&1 | tee $(UI_TOOLS); code=$$?; \
	if [ $$code -eq 3 ]; then scripts/leave-out.sh $(1) "$$(tail -n 1 $(UI_TOOLS)); $(4)"; \
	elif [ $$code -ne 0 ]; then exit $$code; else $(3); fi

.PHONY: test-pages
test-pages: ## Check and test the pages without a browser (needs node and npm)
ifeq ($(SKIP_UI),1)
	@scripts/leave-out.sh $@ 'SKIP_UI=1 is set; then: make $@'
else
	$(call ui-tools,$@,present,cd ui && npm run --silent check && npm test --silent,then: make test-pages)
endif

# The browser tests run on a made-up cluster, then on a real API server.
.PHONY: test-ui
test-ui: cluster-programs $(BIN)/gotestsum ## Build the pages and test them in Chromium (root: installs nodejs, npm, chromium)
ifeq ($(SKIP_UI),1)
	@scripts/leave-out.sh $@ 'SKIP_UI=1 is set; then: make $@'
else
	$(call ui-tools,$@,chromium,cd ui && npm run --silent build && npm run --silent e2e && cd .. && $(BUILT) $(GOTEST) -again -format testname test-ui ./test/ui -count=1,then: make test-ui)
endif

# The pictures are of the cluster of test/ui, which has something for each page. pngquant has to be
# there (Debian: pngquant): pictures stay in the history, and are half the size with it.
.PHONY: ui-pictures
ui-pictures: ui cluster-programs ## Draw the pictures of docs/ui.md, by the browser tests on a real API server (root: installs nodejs, npm, chromium; needs pngquant)
	pngquant --version
	scripts/ui-tools.sh chromium
	rm -rf out/ui-cluster
	$(BUILT) go test -count=1 -timeout 10m -v ./test/ui
	cp out/ui-cluster/*-light.png out/ui-cluster/*-dark.png docs/pictures/ui/
	pngquant --force --ext .png --strip 256 docs/pictures/ui/*.png
