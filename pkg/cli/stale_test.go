// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
)

// TestStaleEverywhere: top, check and explain report the same graphs as stale, whatever condition a
// scheduler has left.
func TestStaleEverywhere(t *testing.T) {
	for name, tc := range map[string]struct {
		renewed time.Duration // ago, by the clock of the node; 0: there is no Lease
		served  time.Duration // ago, by the API server's; 0: not known
		owner   string        // UID of the Node that the Lease is of; empty: this one
		stale   bool          // the condition
		want    bool
	}{
		"the exporter runs": {renewed: 10 * time.Second},
		"it is silent":      {renewed: 3 * time.Minute, want: true},
		"it is silent, and a scheduler has said so":     {renewed: 3 * time.Minute, stale: true, want: true},
		"it came back, and no scheduler has said so":    {renewed: 10 * time.Second, stale: true},
		"it has never run":                              {want: true},
		"its Lease is of an earlier node of the name":   {renewed: 10 * time.Second, owner: "earlier", want: true},
		"it runs on a node whose clock is behind":       {renewed: time.Hour, served: 10 * time.Second},
		"it is silent on a node whose clock is ahead":   {renewed: -time.Hour, served: 3 * time.Minute, want: true},
		"it runs on a node whose clock is ahead":        {renewed: -time.Hour, served: 10 * time.Second},
		"it runs on a node whose clock may be ahead":    {renewed: -time.Hour},
		"its Lease ends at this moment":                 {renewed: 2 * time.Minute, want: true},
		"its Lease ends at this moment, as is recorded": {renewed: time.Minute, served: 2 * time.Minute, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := viewtest.New()
			if err := c.AddNode("n", "dgx-h100"); err != nil {
				t.Fatal(err)
			}
			c.LeasesKnown = true
			if l := &c.Leases[0]; tc.renewed == 0 {
				l.Name = "another"
			} else {
				l.Spec.RenewTime = new(metav1.NewMicroTime(c.Now.Add(-tc.renewed)))
				if tc.owner != "" {
					l.OwnerReferences[0].UID = "earlier"
				}
				if tc.served > 0 {
					l.ManagedFields = served(c.Now.Add(-tc.served))
				}
			}
			if tc.stale {
				c.Topology("n").Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStale, Status: metav1.ConditionTrue}}
			}
			c.Pods = []v1.Pod{*testobj.Pod("asks").GPUs(1).Scheduler(check.DefaultProfile).Obj()}
			if got := clusterview.Of(&c.Objects, clusterview.Options{}).Nodes[0].NoGraph; (got != "") != tc.want {
				t.Errorf("top says %q, want it stale: %t", got, tc.want)
			}
			r := check.Examine(&check.World{Objects: c.Objects})
			if got := slices.ContainsFunc(r.Notes, func(v check.Violation) bool { return v.Invariant == check.StaleExporter }); got != tc.want {
				t.Errorf("check has the notes %v, want it stale: %t", r.Notes, tc.want)
			}
			e, err := explain.Pod(&explain.World{Objects: c.Objects}, c.Pods[0].Namespace, "asks")
			if err != nil {
				t.Fatal(err)
			}
			refuses := slices.ContainsFunc(e.Refusals, func(r explain.Refusal) bool { return r.Cause == explain.StaleGraph || r.Cause == "NodeReplaced" })
			if refuses != tc.want {
				t.Errorf("explain says %s, %q, refused by %v, want it stale: %t", e.Cause, e.Reason, e.Refusals, tc.want)
			}
		})
	}
}

// served are the managed fields of a Lease that was renewed then by the API server's clock.
func served(at time.Time) []metav1.ManagedFieldsEntry {
	return []metav1.ManagedFieldsEntry{{
		Operation: metav1.ManagedFieldsOperationApply, Time: new(metav1.NewTime(at)), FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:spec":{"f:renewTime":{}}}`)},
	}}
}

// TestSilentAgents: top and check report the agents of the same nodes as silent.
func TestSilentAgents(t *testing.T) {
	for name, tc := range map[string]struct {
		renewed time.Duration // ago, by the clock of the node; 0: there is no Lease
		served  time.Duration // ago, by the API server's; 0: not known
		owner   types.UID     // of the Node that the Lease is of; empty: this one
		want    bool
	}{
		"the node has none":                             {},
		"it runs":                                       {renewed: 10 * time.Second},
		"it is silent":                                  {renewed: 3 * time.Minute, want: true},
		"it was that of an earlier node":                {renewed: 3 * time.Minute, owner: "earlier"},
		"it runs on a node whose clock is behind":       {renewed: time.Hour, served: 10 * time.Second},
		"it is silent on a node whose clock is ahead":   {renewed: -time.Hour, served: 3 * time.Minute, want: true},
		"its Lease ends at this moment, as is recorded": {renewed: time.Minute, served: 2 * time.Minute, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := viewtest.New()
			if err := c.AddNode("n", "dgx-h100"); err != nil {
				t.Fatal(err)
			}
			c.LeasesKnown = true
			if tc.renewed != 0 {
				l := c.Leases[0].DeepCopy()
				l.Name, l.Spec.RenewTime = nodelease.AgentPrefix+"n", new(metav1.NewMicroTime(c.Now.Add(-tc.renewed)))
				l.OwnerReferences[0].UID = cmp.Or(tc.owner, l.OwnerReferences[0].UID)
				if tc.served > 0 {
					l.ManagedFields = served(c.Now.Add(-tc.served))
				}
				c.Leases = append(c.Leases, *l)
			}
			n := clusterview.Of(&c.Objects, clusterview.Options{}).Nodes[0]
			const silent = "choices of GPUs are not enforced: the node agent's Lease has run out"
			if got := n.Note == silent; got != tc.want || n.NoGraph != "" {
				t.Errorf("top says %q %q, want that it is silent: %t", n.NoGraph, n.Note, tc.want)
			}
			r := check.Examine(&check.World{Objects: c.Objects})
			if got := slices.ContainsFunc(r.Notes, func(v check.Violation) bool { return v.Invariant == check.StaleAgent }); got != tc.want {
				t.Errorf("check has the notes %v, want that it is silent: %t", r.Notes, tc.want)
			}
		})
	}
}
