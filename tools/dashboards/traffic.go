// SPDX-License-Identifier: Apache-2.0

package main

// ofPods renames the pod labels of a series of dcgm-exporter to ours.
func ofPods(expr string) string {
	return `sum by (pod_namespace, pod_name) (label_replace(label_replace(` + expr +
		`, "pod_namespace", "$1", "namespace", "(.+)"), "pod_name", "$1", "pod", "(.+)"))`
}

const (
	several = `max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_allreduce_seconds)`
	crosses = `(max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_numa_nodes)` +
		` > max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_numa_nodes_least))`
	rdmaSent = `rate(node_infiniband_port_data_transmitted_bytes_total[$__rate_interval])`
	ofPod    = "{{pod_namespace}}/{{pod_name}}"
)

// traffic returns the dashboard that joins nvtopo's choices with the measurements of dcgm-exporter and
// node-exporter.
func traffic() board {
	return board{
		file: "traffic.json", uid: "nvtopo-traffic", title: "nvtopo: traffic",
		description: "What flows over the links that were chosen: needs dcgm-exporter and node-exporter, see docs/monitoring.md.",
		rows: []row{
			{"Pods of two GPUs or more", []panel{
				{
					"NVLink, sent", "", "Bps",
					[]query{{`topk(10, ` + ofPods(`DCGM_FI_PROF_NVLINK_TX_BYTES`) + ` and on (pod_namespace, pod_name) ` + several + `)`, ofPod}},
				},
				{
					"PCIe, sent", "", "Bps",
					[]query{{`topk(10, ` + ofPods(`DCGM_FI_PROF_PCIE_TX_BYTES`) + ` and on (pod_namespace, pod_name) ` + several + `)`, ofPod}},
				},
				{
					"PCIe, sent, of pods that span NUMA nodes without need", "", "Bps",
					[]query{{ofPods(`DCGM_FI_PROF_PCIE_TX_BYTES`) + ` and on (pod_namespace, pod_name) ` + crosses, ofPod}},
				},
				{
					"GPU use of pods with a slow estimate", "The mean of a pod's GPUs, of the ten slowest.", "percent",
					[]query{{
						`avg by (pod_namespace, pod_name) (label_replace(label_replace(DCGM_FI_DEV_GPU_UTIL,` +
							` "pod_namespace", "$1", "namespace", "(.+)"), "pod_name", "$1", "pod", "(.+)"))` +
							` and on (pod_namespace, pod_name) topk(10, ` + several + `)`, ofPod,
					}},
				},
			}},
			{"Network between nodes", []panel{
				{
					"InfiniBand and RoCE, sent", "", "Bps",
					[]query{{`topk(10, sum by (instance) (` + rdmaSent + `))`, "{{instance}}"}},
				},
				{
					"Share of the rate of the busiest port", "Near 100 % the network sets the pace of a gang.", "percentunit",
					[]query{{`topk(10, max by (instance) (` + rdmaSent + ` / node_infiniband_rate_bytes_per_second))`, "{{instance}}"}},
				},
				{
					"Ethernet, sent", "Physical devices, not those of pods.", "Bps",
					[]query{{`topk(10, sum by (instance) (rate(node_network_transmit_bytes_total{device=~"en.*|eth.*|bond.*"}[$__rate_interval])))`, "{{instance}}"}},
				},
				{
					"All-reduce of gangs, estimate", "By the links of the ClusterTopology; see which gangs should load the network.", "s",
					[]query{{`topk(10, max by (gang) (scheduler_nvtopo_gang_allreduce_seconds))`, "{{gang}}"}},
				},
			}},
			{"Nodes", []panel{
				{
					"Memory from another NUMA node than asked", "", "suffix:pages/s",
					[]query{{`topk(10, sum by (instance) (rate(node_memory_numa_numa_miss_total[$__rate_interval])))`, "{{instance}}"}},
				},
				{
					"Memory used by CPUs of another NUMA node", "", "suffix:pages/s",
					[]query{{`topk(10, sum by (instance) (rate(node_memory_numa_other_node_total[$__rate_interval])))`, "{{instance}}"}},
				},
			}},
		},
	}
}
