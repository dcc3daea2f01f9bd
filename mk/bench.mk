# SPDX-License-Identifier: Apache-2.0

##@ Benchmarks

.PHONY: bench
bench: bench-pick bench-cycle bench-quality bench-gangs bench-scheduler bench-upstream bench-pools bench-bills bench-webui bench-admission bench-tenants ## All benchmarks; tables on the terminal, JSON and plots under out/ (BENCHFLAGS: see docs/benchmarks.md)

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

.PHONY: bench-upstream
bench-upstream: $(BIN)/etcd ## Kubernetes' own benchmark of schedulers, scheduler_perf, with the stock profile and ours in turn
	go -C bench test -c -o ../$(BIN)/bench-upstream.test ./scheduler/upstream
	go -C bench run ./scheduler/upstream $(BENCHFLAGS)

.PHONY: bench-pools
bench-pools: cluster-programs $(BIN)/kueue ## Jobs that Kueue admits and our scheduler places, beside the stock scheduler
	$(call program,nvtopo-pool-controller,pool-controller)
	go -C bench run ./pools $(BENCHFLAGS)

.PHONY: bench-bills
bench-bills: ## What an event costs that changes a bill, beside the bill computed anew
	go -C bench run ./bills $(BENCHFLAGS)

.PHONY: bench-webui
bench-webui: ## What the web view costs, as a process of its own, with viewers in another
	$(call program,nvtopo,nvtopo)
	go -C bench run ./webui $(BENCHFLAGS)

.PHONY: bench-admission
bench-admission: ## What the admission policies add to requests that are as long as they may be
	go -C bench run ./admission $(BENCHFLAGS)

.PHONY: bench-tenants
bench-tenants: cluster-programs ## What one tenant's large requests do to the latency of another's pods
	$(call program,nvtopo,nvtopo)
	go -C bench run ./tenants $(BENCHFLAGS)

.PHONY: bench-cycle
bench-cycle: ## The scheduling cycle alone, beside the stock plugins
	go -C bench run ./scheduler cycle $(BENCHFLAGS)
