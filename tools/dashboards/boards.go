// SPDX-License-Identifier: Apache-2.0

package main

// all returns the dashboards, which docs/monitoring.md describes.
func all() []board { return []board{placement(), traffic()} }

// placement returns the dashboard of nvtopo's own metrics.
func placement() board {
	return board{
		file: "placement.json", uid: "nvtopo-placement", title: "nvtopo: placement",
		description: "What is free, how good the choices are, and whether graphs, exporters and agents are well.",
		rows: []row{
			{"What is free", []panel{
				{
					"GPUs", "Stranded GPUs are free without a free partner as fast as any on the machine.", "short",
					[]query{{`sum by (state) (max by (model, state) (scheduler_nvtopo_gpus))`, "{{state}}"}},
				},
				{
					"Free GPUs by model", "Stranded ones too.", "short",
					[]query{{`sum by (model) (max by (model, state) (scheduler_nvtopo_gpus{state=~"free|stranded"}))`, "{{model}}"}},
				},
				{
					"Used GPUs by model", "The share that pods hold.", "percentunit",
					[]query{{
						`sum by (model) (max by (model, state) (scheduler_nvtopo_gpus{state="used"}))` +
							` / sum by (model) (max by (model, state) (scheduler_nvtopo_gpus))`, "{{model}}",
					}},
				},
				{
					"Free linked groups", "Disjoint groups of one node whose ring is as fast as that of as many GPUs can be there.", "short",
					[]query{{`max by (model, gpus, link_class) (scheduler_nvtopo_linked_groups{state="free"})`, "{{gpus}} × {{model}} {{link_class}}"}},
				},
				{
					"Room for linked groups on the empty machines", "To compare the free groups with.", "short",
					[]query{{`max by (model, gpus, link_class) (scheduler_nvtopo_linked_groups{state="capacity"})`, "{{gpus}} × {{model}} {{link_class}}"}},
				},
				{
					"Fragmentation", "The share of groups that are missing of those that as many free GPUs could be.", "percentunit",
					[]query{{`model_gpus_link_class:scheduler_nvtopo_fragmentation:ratio`, "{{gpus}} × {{model}} {{link_class}}"}},
				},
				{
					"Stranded GPUs", "They serve only pods of one GPU well.", "short",
					[]query{{`max by (model) (scheduler_nvtopo_gpus{state="stranded"})`, "{{model}}"}},
				},
			}},
			{"Choices", []panel{
				{
					"Choices by link class", "Of the weakest link of the ring.", "ops",
					// Grafana shows the name of a label without a value.
					[]query{{`label_replace(sum by (link_class) (rate(scheduler_nvtopo_choices_total[$__rate_interval])), "link_class", "one GPU", "link_class", "")`, "{{link_class}}"}},
				},
				{
					"Choices as fast as any on the machine", "In the last hour, of choices of two GPUs or more.", "percentunit",
					[]query{{`cluster:scheduler_nvtopo_best_choices:ratio_rate1h`, "best"}},
				},
				{
					"In flight", "Choices on their way to their pods, by phase.", "short",
					[]query{{`max by (phase) (scheduler_nvtopo_claims)`, "{{phase}}"}},
				},
				{
					"Waiting", "Pods with GPUs that no node took, and gangs.", "short",
					[]query{
						{`max by (state) (scheduler_nvtopo_waiting_pods)`, "pods {{state}}"},
						{`max by (state) (scheduler_nvtopo_gangs{state!="bound"})`, "gangs {{state}}"},
					},
				},
			}},
			{"Pods and gangs", []panel{
				{
					"Pods that span more NUMA nodes than they need", "The number of NUMA nodes of each.", "short",
					[]query{{
						`max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_numa_nodes)` +
							` > max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_numa_nodes_least)`, "{{pod_namespace}}/{{pod_name}}",
					}},
				},
				{
					"Slowest pods", "Estimated time of an all-reduce of 1 GB.", "s",
					[]query{{`topk(10, max by (pod_namespace, pod_name) (scheduler_nvtopo_pod_allreduce_seconds))`, "{{pod_namespace}}/{{pod_name}}"}},
				},
				{
					"Slowest gangs", "Estimated time of an all-reduce of 1 GB over all members.", "s",
					[]query{{`topk(10, max by (gang) (scheduler_nvtopo_gang_allreduce_seconds))`, "{{gang}}"}},
				},
				{
					"Events about hardware under running pods", "In the last hour.", "short",
					[]query{{`sum by (reason) (increase(scheduler_nvtopo_hardware_events_total[1h]))`, "{{reason}}"}},
				},
			}},
			{"Graphs, exporters and agents", []panel{
				{
					"Nodes with GPUs by what their graph is worth", "", "short",
					[]query{{`max by (state) (scheduler_nvtopo_nodes)`, "{{state}}"}},
				},
				{
					"Oldest graphs", "Time since what an exporter published last agreed with a reading.", "s",
					[]query{{`topk(10, time() - max by (node) (nvtopo_exporter_last_success_timestamp_seconds))`, "{{node}}"}},
				},
				{
					"Errors of exporters", "In the last hour.", "short",
					[]query{
						{`sum(increase(nvtopo_exporter_read_errors_total[1h]))`, "readings"},
						{`sum by (object) (increase(nvtopo_exporter_write_errors_total[1h]))`, "writes of {{object}}"},
					},
				},
				{
					"GPUs that are unhealthy or degraded", "", "short",
					[]query{
						{`max by (node) (nvtopo_exporter_gpus) - max by (node) (nvtopo_exporter_gpus_healthy) - (max by (node) (nvtopo_exporter_gpus_partitioned) or 0 * max by (node) (nvtopo_exporter_gpus)) > 0`, "{{node}} unhealthy"},
						{`max by (node) (nvtopo_exporter_gpus_degraded) > 0`, "{{node}} degraded"},
					},
				},
				{
					"Containers with other GPUs than chosen", "In the last hour.", "short",
					[]query{{`sum by (kind) (increase(nvtopo_agent_mismatch_total[1h]))`, "{{kind}}"}},
				},
				{
					"Answers of agents to kubelet", "", "ops",
					[]query{{`sum by (result) (rate(nvtopo_agent_decisions_total[$__rate_interval]))`, "{{result}}"}},
				},
			}},
		},
	}
}
