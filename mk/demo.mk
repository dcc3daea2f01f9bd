# SPDX-License-Identifier: Apache-2.0

##@ Demos

.PHONY: demo
demo: cluster-programs ## Place pods on simulated nodes with a real API server
	$(BIN)/nvtopo-devcluster demo

.PHONY: demo-gang
demo-gang: cluster-programs ## Place gangs by racks and spines on simulated nodes, and draw who has which GPU
	$(BIN)/nvtopo-devcluster demo-gang

.PHONY: demo-pools
demo-pools: cluster-programs $(BIN)/kueue ## Share a pool among three tenants with the real Kueue, and draw who holds what and who pays
	$(call program,nvtopo-pool-controller,pool-controller)
	$(BIN)/nvtopo-devcluster demo-pools

.PHONY: demo-node
demo-node: node-check node-programs ## Run pods on a real node and compare what was chosen, recorded and seen (root)
	$(call program,nvtopo-devcluster,devcluster)
	$(BIN)/nvtopo-devcluster demo-node
