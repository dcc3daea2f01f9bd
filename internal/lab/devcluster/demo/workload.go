// SPDX-License-Identifier: Apache-2.0

package demo

// machines are the kinds of node of the demo, two of each.
var machines = []string{"dgx1-v100", "dgx-a100", "hgx-h200", "a100-pcie-4-bridged", "l40s-8", "h200-nvl-8"}

const nodesPerMachine = 2

// wave is a group of pods that are created at once, after those in finish have ended.
type wave struct {
	title  string
	finish []string
	pods   []request
}

// workload returns about 40 pods on 88 GPUs. Each wave fits into the room that the waves before it left,
// so that apart from the impossible pod all are placed.
func workload() []wave {
	one := []int{1}
	two := []int{2}
	three := []int{3}
	four := []int{4}
	eight := []int{8}
	return []wave{
		{
			title: "an empty cluster",
			pods: []request{
				{name: "pretrain-0", gpus: eight},
				{name: "pretrain-1", gpus: eight, minLink: "NVLINK", minGBps: 100},
				{name: "finetune-0", gpus: four, policy: "single-numa-node"},
				{name: "finetune-1", gpus: four},
				{name: "finetune-2", gpus: four, policy: "restricted"},
				{name: "finetune-3", gpus: four, minLink: "NVLINK"},
				{name: "pair-0", gpus: two, minLink: "NVLINK"},
				{name: "pair-1", gpus: two},
				{name: "pair-2", gpus: two, policy: "single-numa-node", affinity: "required"},
				{name: "pair-3", gpus: two, policy: "none"},
				{name: "triple-0", gpus: three},
				{name: "triple-1", gpus: three, model: "V100"},
				{name: "serve-0", gpus: one},
				{name: "serve-1", gpus: one, affinity: "preferred"},
				{name: "serve-2", gpus: one, affinity: "required"},
				{name: "serve-3", gpus: one, model: "L40S"},
			},
		},
		{
			title:  "some have finished, others come, one asks for what there is not",
			finish: []string{"pretrain-0", "finetune-1", "pair-1", "triple-0", "serve-0"},
			pods: []request{
				{name: "wish-0", gpus: eight, model: "L40S", minLink: "NVLINK", impossible: true},
				{name: "eval-0", gpus: four},
				{name: "eval-1", gpus: four, minGBps: 20},
				{name: "batch-0", gpus: eight, policy: "restricted"},
				{name: "pair-4", gpus: two, model: "A100"},
				{name: "pair-5", gpus: two, policy: "single-numa-node"},
				{name: "pair-6", gpus: two, minGBps: 100},
				{name: "triple-2", gpus: three, policy: "restricted"},
				{name: "serve-4", gpus: one},
				{name: "serve-5", gpus: one, policy: "single-numa-node", affinity: "required"},
				{name: "serve-6", gpus: one, model: "A100"},
				{name: "serve-7", gpus: one},
			},
		},
		{
			title:  "a crowded cluster",
			finish: []string{"batch-0", "finetune-0", "finetune-2", "eval-0", "pair-0", "serve-1", "serve-4"},
			pods: []request{
				{name: "late-0", gpus: eight},
				{name: "late-1", gpus: four, affinity: "preferred"},
				{name: "late-2", gpus: four, minLink: "PHB"},
				{name: "late-3", gpus: three},
				{name: "late-4", gpus: two, minLink: "NVLINK"},
				{name: "late-5", gpus: two, policy: "none"},
				{name: "late-6", gpus: two},
				{name: "duo-0", gpus: []int{2, 2}},
				{name: "duo-1", gpus: []int{1, 1}, policy: "single-numa-node"},
				{name: "serve-8", gpus: one},
				{name: "serve-9", gpus: one, affinity: "required"},
				{name: "serve-10", gpus: one, model: "L40S"},
				{name: "serve-11", gpus: one},
			},
		},
	}
}
