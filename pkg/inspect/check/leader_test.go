// SPDX-License-Identifier: Apache-2.0

package check

import (
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNoScheduler: that no scheduler leads is a note, by the Lease that the scheduler has published, or the
// shipped one.
func TestNoScheduler(t *testing.T) {
	const expired = "no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-21T12:57:30Z; see why no scheduler runs: kubectl -n nvtopo-system get deploy,pods"
	for name, tc := range map[string]struct {
		lease     string
		age       time.Duration
		published string // name of the Lease; "-": nothing is published
		want      wanted
	}{
		"a scheduler leads":                            {lease: "nvtopo-scheduler", age: time.Second, published: "nvtopo-scheduler"},
		"its Lease has expired":                        {lease: "nvtopo-scheduler", age: 150 * time.Second, published: "nvtopo-scheduler", want: wanted{notes: []string{"no-scheduler"}, message: expired}},
		"the shipped Lease has expired":                {lease: "nvtopo-scheduler", age: 150 * time.Second, published: "-", want: wanted{notes: []string{"no-scheduler"}, message: expired}},
		"the Lease that is published is gone":          {lease: "nvtopo-scheduler", published: "ours", want: wanted{notes: []string{"no-scheduler"}, message: "Lease nvtopo-system/ours: no scheduler leads: there is no Lease nvtopo-system/ours"}},
		"nothing is published, and no Lease is there":  {lease: "other", age: time.Hour, published: "-"},
		"schedulers are elected by none, or elsewhere": {lease: "nvtopo-scheduler", age: time.Hour, published: ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			c.Leases = append(c.Leases, coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: tc.lease},
				Spec: coordinationv1.LeaseSpec{
					HolderIdentity: new("pod-1_x"), LeaseDurationSeconds: new(int32(15)), RenewTime: new(metav1.NewMicroTime(c.Now.Add(-tc.age))),
				},
			})
			if tc.published != "-" {
				profiles := fmt.Sprintf(`{"version":1,"profiles":[],"leaderLease":{"namespace":"nvtopo-system","name":%q}}`, tc.published)
				if err := c.Add(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"nvtopo-scheduler-profiles"},"data":{"profiles.json":%q}}`, profiles)); err != nil {
					t.Fatal(err)
				}
			}
			tc.want.compare(t, Examine(c.World))
		})
	}
}

// TestNothingInstalled: that nothing of nvtopo is in a cluster is a note as well.
func TestNothingInstalled(t *testing.T) {
	for name, tc := range map[string]struct {
		known bool // Leases are all that the namespace has
		want  wanted
	}{
		"nvtopo was taken out": {true, wanted{notes: []string{"no-scheduler"}, message: "no scheduler leads: nvtopo is not installed, or was taken out by nvtopo uninstall"}},
		"Leases are not known": {false, wanted{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			c.Nodes, c.Pods, c.Leases, c.Topologies, c.LeasesKnown = nil, nil, nil, nil, tc.known
			tc.want.compare(t, Examine(c.World))
		})
	}
}
