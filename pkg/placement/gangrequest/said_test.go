// SPDX-License-Identifier: Apache-2.0

package gangrequest

import (
	"cmp"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// TestSaid: the scheduler's message about missing members is updated, and removed once none is missing.
func TestSaid(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pods   int
		change func(last *v1.Pod)
		size   string // of the gang; empty: 4
		said   string
		want   string
	}{
		"nothing":                       {pods: 4},
		"another reason":                {pods: 4, said: "rack: 3 of 4", want: "rack: 3 of 4"},
		"one is missing":                {pods: 3, said: "gang: 3 of 4 members", want: "gang: 3 of 4 members"},
		"one more came, one is missing": {pods: 3, said: "gang: 2 of 4 members; no such level", want: "gang: 3 of 4 members; no such level"},
		"the last one came":             {pods: 4, said: "gang: 3 of 4 members"},
		"the last one came, in a cycle": {pods: 4, said: "0/5 nodes are available: gang: 3 of 4 members. preemption: none."},
		"more came than start together": {pods: 5, said: "gang: 3 of 4 members"},
		"one is being deleted":          {pods: 4, change: func(p *v1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp }, said: "gang: 3 of 4 members", want: "gang: 3 of 4 members"},
		"the size cannot be read":       {pods: 4, size: "x", said: "gang: 3 of 4 members", want: "gang: 3 of 4 members"},
		"one has a scheduling gate":     {pods: 4, change: func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "wait"}} }, said: "gang: 3 of 4 members may be scheduled", want: "gang: 3 of 4 members may be scheduled"},
		"the last gate is gone":         {pods: 4, said: "gang: 3 of 4 members may be scheduled"},
		"one is another scheduler's":    {pods: 4, change: func(p *v1.Pod) { p.Spec.SchedulerName = "x" }, said: "gang: 3 of 4 members may be scheduled", want: "gang: 3 of 4 members may be scheduled"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pods []*v1.Pod
			for i := range tc.pods {
				p := testobj.Pod(fmt.Sprint("g-", i)).Namespace("ns").UID(fmt.Sprint("uid-", i))
				pods = append(pods, p.Annotation(GangKey, "g").Annotation(GangSizeKey, cmp.Or(tc.size, "4")).Obj())
			}
			if tc.change != nil {
				tc.change(pods[len(pods)-1])
			}
			key, _ := KeyOf(pods[0])
			if got := Read(key, nil, pods).Said(pods[0], tc.said); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
