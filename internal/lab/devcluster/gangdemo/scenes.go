// SPDX-License-Identifier: Apache-2.0

package gangdemo

import "github.com/nvtopo/nvtopo/pkg/placement/gangrequest"

// urgentClass is the priority class of the gang that preempts another one.
const urgentClass = "urgent"

// scene is one step of the demo.
type scene struct {
	title    string
	deleted  []string // pods that die, and are made again
	finished []string // pods that end
	come     []gang   // that are created
	start    []gang   // that are to run at its end
	wait     []gang   // that are to say why they do not
	evicted  []gang   // of which no pod is to be left
}

// scenes returns the demo's scenes. Their order matters: each builds on the state that the earlier ones
// left.
func scenes() []scene {
	singles := []gang{
		{name: "serve-0", letter: 's', pods: 1, gpus: 1},
		{name: "serve-1", letter: 's', pods: 1, gpus: 2},
		{name: "serve-2", letter: 's', pods: 1, gpus: 4},
		{name: "serve-3", letter: 's', pods: 1, gpus: 1},
		{name: "tune-0", letter: 't', pods: 1, gpus: 8},
	}
	llm := gang{name: "llm", letter: 'L', pods: 4, gpus: 8, racks: 1}
	moe := gang{name: "moe", letter: 'M', pods: 8, gpus: 8, racks: 2, spines: 1}
	sft := gang{name: "sft", letter: 'F', pods: 8, gpus: 4, racks: 1, wishes: map[string]string{gangrequest.RequiredKey: "rack"}}
	sweep := gang{name: "sweep", letter: 'W', pods: 4, gpus: 2, apart: 4, wishes: map[string]string{gangrequest.StrategyKey: "compute-heavy"}}
	late := gang{name: "late", letter: 'X', pods: 4, gpus: 8, racks: 1, wishes: map[string]string{gangrequest.RequiredKey: "rack"}}
	urgent := gang{name: "urgent", letter: 'U', pods: 12, gpus: 8, spines: 1, class: urgentClass, wishes: map[string]string{gangrequest.RequiredKey: "switch"}}
	return []scene{
		{title: "single pods come", come: singles, start: singles},
		{
			title: "four gangs come: two that want to be close, one that must be in one rack, one that wants to be spread",
			come:  []gang{llm, moe, sft, sweep}, start: []gang{llm, moe, sft, sweep},
		},
		{title: "a member of llm dies and is made again", deleted: []string{"llm-2"}, start: []gang{llm}},
		{title: "a gang comes that must be in one rack, and no rack has room", come: []gang{late}, wait: []gang{late}},
		{title: "the gang that is spread ends", finished: sweep.names(), start: []gang{late}},
		{
			title: "a gang of a higher priority comes that must be on one spine: a gang has to go, whole",
			come:  []gang{urgent}, start: []gang{urgent, llm, moe, sft}, evicted: []gang{late},
		},
	}
}
