// SPDX-License-Identifier: Apache-2.0

package topology

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/refusals"
)

// refuse records refusals by a node's kubelet of this number of pods that were sent to it.
func (e *testEnv) refuse(node string, pods int) {
	for i := range pods {
		p := testobj.Pod(fmt.Sprint("refused-", i)).UID(fmt.Sprint("refused-", node, i)).Node(node).Phase(v1.PodFailed).Obj()
		p.Status.Reason = "UnexpectedAdmissionError"
		e.state.Refusals.Sent(p.UID, node)
		e.state.Refusals.See(p)
	}
}

// TestNodesBehind: a node whose kubelet refuses pods comes after others, however good its links are, and
// is taken if there are no others.
func TestNodesBehind(t *testing.T) {
	tests := map[string]struct {
		fast, slow int // pods that the kubelets of the fast and the slow machine refused
		want       string
	}{
		"no kubelet refuses pods":              {want: "node-0"},
		"two refusals are no pattern":          {fast: refusals.Enough - 1, want: "node-0"},
		"that of the fast machine does":        {fast: refusals.Enough, want: "node-1"},
		"both do, so that links decide":        {fast: refusals.Enough, slow: refusals.Enough, want: "node-0"},
		"that of the slow machine does anyhow": {slow: refusals.Enough, want: "node-0"},
	}
	for name, tc := range tests {
		for kind, limit := range map[string]int{"all nodes": 0, "a list": 64} {
			t.Run(name+" of "+kind, func(t *testing.T) {
				e := newTestEnv(t, "hgx-a100-8", "h200-nvl-8")
				e.plugin.narrowing.Limit = limit
				e.refuse("node-0", tc.fast)
				e.refuse("node-1", tc.slow)
				if d := e.chosen(asks("p", 0, 2).Obj()); d.Node != tc.want {
					t.Errorf("node %s was chosen, want %s", d.Node, tc.want)
				}
			})
		}
	}
}
