// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"cmp"
	"fmt"

	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// comment describes how to apply the configuration and its meaning.
func (k *Kubelet) comment(c *kubeletv1beta1.KubeletConfiguration, g *nvtopo.Graph) []string {
	node := cmp.Or(k.Node, "NODE")
	out := []string{
		"Kubelet aligns CPUs, memory and GPUs. These fields belong into the node's",
		"/var/lib/kubelet/config.yaml, or as a file of their own into the folder of --config-dir.",
		"Kubelet refuses to start with another policy than its state files have, so:",
		"",
		"  kubectl drain " + node + " --ignore-daemonsets --delete-emptydir-data",
		"  systemctl stop kubelet            # on the node, as what follows",
		"  rm -f /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state",
		"  # put the fields into the configuration",
		"  systemctl start kubelet",
		"  kubectl uncordon " + node,
		"",
		"Only pods of the class Guaranteed with whole CPUs get CPUs of their own.",
	}
	if c.CPUManagerPolicyOptions["full-pcpus-only"] != "" {
		out = append(out, fmt.Sprintf("full-pcpus-only: such a pod must ask for a multiple of %d CPUs, or kubelet refuses it.", mostThreads(g)))
	}
	out = append(out, "strict-cpu-reservation: other pods do not run on the reserved CPUs either.")
	if k.MemoryManager == MemoryStatic {
		out = append(out,
			"reservedMemory: the sum must be kubeReserved + systemReserved + evictionHard of memory, here",
			fmt.Sprintf("%d Mi. Change them together.", k.totalMemory()/mib))
	}
	aligned := k.Policy == "best-effort" || k.Policy == "restricted"
	if n := len(g.NUMANodes); aligned && k.MemoryManager == MemoryStatic && n >= manyNodes {
		out = append(out,
			fmt.Sprintf("With %d NUMA nodes kubelet may weigh (2^%d-1)^3 combinations of hints for one pod, which", n, n),
			"takes long. The policy single-numa-node, or no memory manager, avoids that.")
	}
	if len(g.NUMANodes) <= defaultMaxNodes && k.Policy != "none" {
		out = append(out,
			"Should lscpu show more than 8 NUMA nodes, those without CPUs counted, kubelet starts only with",
			"their number as max-allowable-numa-nodes in topologyManagerPolicyOptions.")
	}
	return out
}

// mostThreads is the number of hyper-threads of a core of the machine.
func mostThreads(g *nvtopo.Graph) int {
	most := 1
	for _, n := range nodesWithCPUs(g) {
		most = max(most, threads(n))
	}
	return most
}
