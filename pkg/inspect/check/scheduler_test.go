// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// scheduler is a process that believes what is true of the World.
func (e *testEnv) scheduler() *diagnosis.State {
	d := diagnosis.State{
		Version: 1, Name: "s", At: e.Now, Synced: true, LastSweep: new(e.Now), RequestTimeout: metav1.Duration{Duration: time.Minute},
	}
	for name := range e.graphs {
		d.Nodes = append(d.Nodes, diagnosis.Node{
			Name: name, NodeUID: types.UID("node-" + name), Counts: true, Derived: &diagnosis.Usage{Used: map[string][]string{}},
		})
	}
	e.Schedulers = []diagnosis.State{d}
	return &e.Schedulers[0]
}

func (e *testEnv) derives(d *diagnosis.State, node string, gpus ...int) {
	for i := range d.Nodes {
		if d.Nodes[i].Name == node {
			d.Nodes[i].Derived.Used[gpu] = append(d.Nodes[i].Derived.Used[gpu], e.ids(node, gpus...)...)
		}
	}
}

// claim is one of b's GPUs for a pod, since so long before the World is examined.
func (e *testEnv) claim(uid types.UID, phase string, age time.Duration, gpus ...int) diagnosis.Reservation {
	return diagnosis.Reservation{
		Pod: "default/" + string(uid), Node: "b", UID: uid, Phase: phase, Since: e.Now.Add(-age), GPUs: e.ids("b", gpus...),
	}
}

// TestSchedulerBelief: the state that a scheduler believes follows from the pods.
func TestSchedulerBelief(t *testing.T) {
	cases := map[string]struct {
		build func(c *testEnv, d *diagnosis.State)
		want  wanted
	}{
		"nothing runs": {build: func(*testEnv, *diagnosis.State) {}},
		"pods, records and claims": {build: func(c *testEnv, d *diagnosis.State) {
			c.pod("one", "b", 0, 3)
			two := c.pod("two", "a", 1)
			c.record(two, "main", 1)
			d.Claims = []diagnosis.Reservation{c.claim("new", "reserved", time.Second, 4)}
			c.derives(d, "a", 1)
			c.derives(d, "b", 0, 3, 4)
		}},
		"a GPU that a pod holds does not count": {
			build: func(c *testEnv, d *diagnosis.State) { c.pod("one", "b", 0, 3); c.derives(d, "b", 0) },
			want:  wanted{pending: []string{DerivationDiffers}, message: "Node b, Pod default/one (uid-one), Scheduler s: nodes[b].derived.used[GPU-"},
		},
		"a GPU that nobody holds counts": {
			build: func(c *testEnv, d *diagnosis.State) { c.derives(d, "b", 5) },
			want:  wanted{pending: []string{DerivationDiffers}, message: "nobody holds it"},
		},
		"a record of a pod that is gone counts while the agent lives": {build: func(c *testEnv, d *diagnosis.State) {
			p := c.pod("one", "a", 0)
			c.record(p, "main", 0)
			c.Pods = nil
			c.derives(d, "a", 0)
		}},
		"and not when it is dead": {
			build: func(c *testEnv, d *diagnosis.State) {
				p := c.pod("one", "b", 0)
				c.record(p, "main", 0)
				c.Pods = nil
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{DerivationDiffers}},
		},
		"a graph that does not count is not compared": {build: func(c *testEnv, d *diagnosis.State) {
			c.pod("one", "b", 0)
			for i := range d.Nodes {
				d.Nodes[i].Counts = false
			}
		}},
		"a Node made anew is not compared with the old one's": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0)
				for i := range d.Nodes {
					d.Nodes[i].NodeUID = "old"
				}
			},
		},
		"a scheduler that has just started": {
			build: func(c *testEnv, d *diagnosis.State) { c.pod("one", "b", 0); d.Synced = false },
			want:  wanted{notes: []string{NotSynced}},
		},
		"a claim whose pod is gone, a moment ago": {build: func(c *testEnv, d *diagnosis.State) {
			d.Claims = []diagnosis.Reservation{c.claim("gone", "reserved", time.Minute, 0)}
			c.derives(d, "b", 0)
		}},
		"a claim whose pod is long gone": {
			build: func(c *testEnv, d *diagnosis.State) {
				d.Claims = []diagnosis.Reservation{c.claim("gone", "doubtful", time.Hour, 0)}
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{LeakedClaim}, message: "the pod is gone"},
		},
		"a claim whose pod ended": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0).Status.Phase = "Failed"
				d.Claims = []diagnosis.Reservation{c.claim("uid-one", "binding", time.Hour, 0)}
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{LeakedClaim}},
		},
		"a claim of a pod that was made anew under its name": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0)
				d.Claims = []diagnosis.Reservation{c.claim("uid-before", "binding", time.Hour, 1)}
				d.Claims[0].Pod = "default/one"
				c.derives(d, "b", 0, 1)
			},
			want: wanted{pending: []string{LeakedClaim}},
		},
		"a claim whose pod is on another node": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "a", 0)
				d.Claims = []diagnosis.Reservation{c.claim("uid-one", "doubtful", time.Hour, 0)}
				c.derives(d, "a", 0)
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{LeakedClaim}, message: "the pod is on node a"},
		},
		"places of a gang that is being placed": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0).Spec.NodeName = ""
				d.Claims = []diagnosis.Reservation{c.claim("uid-one", "planned", time.Hour, 0)}
				d.Gangs = []diagnosis.Gang{{Gang: "g", Attempt: &diagnosis.GangAttempt{Phase: "committed", Held: []types.UID{"uid-one"}}}}
				c.derives(d, "b", 0)
			},
			want: wanted{notes: []string{LateClaim}},
		},
		"places of a gang that nobody tries to place": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0).Spec.NodeName = ""
				d.Claims = []diagnosis.Reservation{c.claim("uid-one", "planned", time.Hour, 0)}
				d.Gangs = []diagnosis.Gang{{Gang: "g", Waits: "rack: 3 of 4"}}
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{LeakedClaim}, message: "no attempt to place its gang goes on"},
		},
		"an old claim whose pod still waits": {
			build: func(c *testEnv, d *diagnosis.State) {
				c.pod("one", "b", 0).Spec.NodeName = ""
				d.Claims = []diagnosis.Reservation{c.claim("uid-one", "doubtful", time.Hour, 0)}
				c.derives(d, "b", 0)
			},
			want: wanted{notes: []string{LateClaim}},
		},
		"a settled claim that no cycle has dropped yet": {build: func(c *testEnv, d *diagnosis.State) {
			d.Claims = []diagnosis.Reservation{c.claim("gone", "void", time.Hour, 0)}
			d.LastSweep = new(c.Now.Add(-2 * time.Hour))
			c.derives(d, "b", 0)
		}},
		"a settled claim that cycles did not drop": {
			build: func(c *testEnv, d *diagnosis.State) {
				d.Claims = []diagnosis.Reservation{c.claim("gone", "void", time.Hour, 0)}
				c.derives(d, "b", 0)
			},
			want: wanted{pending: []string{LeakedClaim}},
		},
		"a settled claim of a process without any cycle": {build: func(c *testEnv, d *diagnosis.State) {
			d.Claims = []diagnosis.Reservation{c.claim("gone", "confirmed", time.Hour, 0)}
			d.LastSweep = nil
			c.derives(d, "b", 0)
		}},
		"one GPU promised to two pods": {
			build: func(c *testEnv, d *diagnosis.State) {
				d.Claims = []diagnosis.Reservation{c.claim("x", "reserved", 0, 0, 1), c.claim("y", "binding", 0, 1)}
				c.derives(d, "b", 0, 1)
			},
			want: wanted{violations: []string{SharedByClaim}, message: "Pod default/x (x), Pod default/y (y), Node b, Scheduler s"},
		},
		"a GPU whose pod is evicted for a gang that awaits it": {
			build: func(c *testEnv, d *diagnosis.State) {
				d.Claims = []diagnosis.Reservation{c.claim("x", "binding", 0, 0, 1), c.claim("y", diagnosis.Awaiting, 0, 1)}
				c.derives(d, "b", 0, 1)
			},
		},
		"a GPU that two pods await": {
			build: func(c *testEnv, d *diagnosis.State) {
				d.Claims = []diagnosis.Reservation{c.claim("x", diagnosis.Awaiting, 0, 0, 1), c.claim("y", diagnosis.Awaiting, 0, 1)}
				c.derives(d, "b", 0, 1)
			},
			want: wanted{violations: []string{SharedByClaim}, message: "Pod default/x (x), Pod default/y (y), Node b, Scheduler s"},
		},
		"two claims of one pod": {build: func(c *testEnv, d *diagnosis.State) {
			d.Claims = []diagnosis.Reservation{c.claim("x", "doubtful", 0, 0, 1), c.claim("x", "binding", 0, 1)}
			c.derives(d, "b", 0, 1)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			tc.build(c, c.scheduler())
			tc.want.compare(t, Examine(c.World))
		})
	}
}
