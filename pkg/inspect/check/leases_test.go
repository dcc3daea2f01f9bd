// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// agent is the Lease of the only agent, on node a.
func (e *testEnv) agent() *coordinationv1.Lease {
	for i := range e.Leases {
		if e.Leases[i].Name == nodelease.AgentPrefix+"a" {
			return &e.Leases[i]
		}
	}
	return nil
}

// applied says that a Lease was renewed that long before the World is examined, on a
// node whose clock is so far ahead.
func (e *testEnv) applied(l *coordinationv1.Lease, age, ahead time.Duration) {
	then := e.Now.Add(-age)
	l.Spec.RenewTime = new(metav1.NewMicroTime(then.Add(ahead)))
	l.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "agent", Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(then)), FieldsV1: fields("f:renewTime"),
	}}
}

// byHand says that somebody wrote the renewal time just now.
func (e *testEnv) byHand(l *coordinationv1.Lease, renewed time.Duration) {
	l.Spec.RenewTime = new(metav1.NewMicroTime(e.Now.Add(renewed)))
	l.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, Time: new(metav1.NewTime(e.Now)), FieldsV1: fields("f:renewTime"),
	}}
}

// TestNodeClock: the clock of a node decides nothing.
func TestNodeClock(t *testing.T) {
	differs := func(c *testEnv) { c.record(c.pod("one", "a", 0, 3), "main", 0, 2) }
	cases := map[string]struct {
		build func(c *testEnv)
		want  wanted
	}{
		"an hour behind, and renewed just now": {
			build: func(c *testEnv) { differs(c); c.applied(c.agent(), time.Second, -time.Hour) },
			want:  wanted{pending: []string{RecordDiffers}},
		},
		"an hour ahead, and renewed just now": {
			build: func(c *testEnv) { differs(c); c.applied(c.agent(), time.Second, time.Hour) },
			want:  wanted{pending: []string{RecordDiffers}},
		},
		"an hour ahead, and silent for five minutes": {
			build: func(c *testEnv) { differs(c); c.applied(c.agent(), 5*time.Minute, time.Hour) },
			want:  wanted{notes: []string{StaleAgent}, message: "agent-a was last renewed at 2026-11-21T12:55:00Z"},
		},
		"right, and silent for five minutes": {
			build: func(c *testEnv) { differs(c); c.applied(c.agent(), 5*time.Minute, 0) },
			want:  wanted{notes: []string{StaleAgent}},
		},
		"an hour behind, while a swap is corrected": {
			build: func(c *testEnv) {
				one := c.pod("one", "a", 1)
				corrected(one)
				c.record(one, "main", 1)
				c.record(c.pod("two", "a", 1), "main", 0)
				c.applied(c.agent(), time.Second, -time.Hour)
			},
			want: wanted{pending: []string{RecordDiffers, SharedByAnnotation}},
		},
		"a Lease that somebody let run out by hand": {
			build: func(c *testEnv) { differs(c); c.byHand(c.agent(), -5*time.Minute) },
			want:  wanted{notes: []string{StaleAgent}},
		},
		"right, of the agent of an earlier node of the name": {
			build: func(c *testEnv) {
				differs(c)
				c.applied(c.agent(), time.Second, 0)
				c.agent().OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: "earlier"}}
			},
		},
		"right, of this node's agent": {
			build: func(c *testEnv) {
				differs(c)
				c.applied(c.agent(), time.Second, 0)
				c.agent().OwnerReferences = []metav1.OwnerReference{{Kind: "Node", Name: "a", UID: "node-a"}}
			},
			want: wanted{pending: []string{RecordDiffers}},
		},
		"a Lease whose managed fields were not read": {
			build: func(c *testEnv) {
				differs(c)
				c.agent().Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(-time.Minute)))
			},
			want: wanted{pending: []string{RecordDiffers}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			tc.build(c)
			tc.want.compare(t, Examine(c.World))
		})
	}
}

// TestAheadClock: the moment of a reading is not taken from the clock that is ahead.
func TestAheadClock(t *testing.T) {
	c := newTestEnv(t)
	for i := range c.Leases {
		c.applied(&c.Leases[i], 10*time.Second, 0)
	}
	c.applied(&c.Leases[len(c.Leases)-1], 5*time.Second, 5*time.Minute) // of b's exporter
	c.record(c.pod("one", "a", 0, 3), "main", 0, 2)
	w := &World{}
	if err := w.Add(c.export(t)); err != nil {
		t.Fatal(err)
	}
	w.Now = w.Moment()
	if want := c.Now.Add(-5 * time.Second); !w.Now.Equal(want) {
		t.Errorf("moment %v, want %v", w.Now, want)
	}
	want := wanted{pending: []string{RecordDiffers}}
	want.compare(t, Examine(w))
}

// TestRenewalTime proves of the code with which the API server
// keeps managed fields that each renewal by the programs of nodes moves their time.
func TestRenewalTime(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"right": 0, "behind": -time.Hour, "ahead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset()
				l := nodelease.Lease{Namespace: "ns", Name: nodelease.AgentPrefix + "n", Node: "n", NodeUID: "u", Manager: "agent"}
				for range 3 {
					time.Sleep(nodelease.Renewal)
					if err := l.Renew(t.Context(), client, time.Now().Add(ahead)); err != nil {
						t.Fatal(err)
					}
				}
				got, err := client.CoordinationV1().Leases("ns").Get(t.Context(), l.Name, metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if at := nodelease.Renewed(got); !at.Equal(time.Now()) {
					t.Errorf("renewed at %v, want %v", at, time.Now())
				}
				if !fresh(got, time.Now().Add(nodelease.Duration-time.Second)) || fresh(got, time.Now().Add(nodelease.Duration)) {
					t.Errorf("%+v is not fresh for %v", got, nodelease.Duration)
				}
			})
		})
	}
}

// TestManualRenewal proves of the same code that a renewal time
// which somebody writes is theirs from then on, until the program renews again.
func TestManualRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		leases := client.CoordinationV1().Leases("ns")
		l := nodelease.Lease{Namespace: "ns", Name: nodelease.AgentPrefix + "n", Node: "n", NodeUID: "u", Manager: "agent"}
		for _, byHand := range []bool{false, true, false} {
			time.Sleep(nodelease.Renewal)
			want := time.Now()
			err := l.Renew(t.Context(), client, want)
			if byHand {
				want = want.Add(-time.Hour)
				body := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, want.UTC().Format(metav1.RFC3339Micro))
				_, err = leases.Patch(t.Context(), l.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "kubectl-edit"})
			}
			if err != nil {
				t.Fatal(err)
			}
			got, err := leases.Get(t.Context(), l.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if at := nodelease.Renewed(got); !at.Equal(want) {
				t.Errorf("by hand %t: renewed at %v, want %v", byHand, at, want)
			}
		}
	})
}
