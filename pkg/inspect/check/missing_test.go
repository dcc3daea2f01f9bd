// SPDX-License-Identifier: Apache-2.0

package check

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

func TestPodsWithoutAllocation(t *testing.T) {
	allow := diagnosis.Profile{Name: DefaultProfile, Resources: []string{gpu}, AllowNoGraph: true}
	count := diagnosis.Profile{Name: DefaultProfile, Resources: []string{gpu}, CountStale: true}
	both := diagnosis.Profile{Name: DefaultProfile, Resources: []string{gpu}, AllowNoGraph: true, CountStale: true}
	strict := diagnosis.Profile{Name: DefaultProfile, Resources: []string{gpu}}
	breach := wanted{violations: []string{MissingAllocation}}
	mark := func(_ *testEnv, p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: allocation.ConditionPlacedByCount, Status: v1.ConditionTrue})
	}
	policyNone := func(_ *testEnv, p *v1.Pod) { p.Annotations[podrequest.TopologyPolicyKey] = "none" }
	young := func(c *testEnv, _ *v1.Pod) { c.Now = chosen.Add(10 * time.Second) }
	cases := map[string]struct {
		profile diagnosis.Profile // by default nothing is known
		build   []func(c *testEnv, p *v1.Pod)
		want    wanted
	}{
		"a profile that permits nothing":                  {profile: strict, want: breach},
		"a profile that permits nothing, just now":        {profile: strict, build: []func(*testEnv, *v1.Pod){young}, want: breach},
		"a profile of which nothing is known":             {want: breach},
		"a profile of which nothing is known, just now":   {build: []func(*testEnv, *v1.Pod){young}, want: wanted{pending: []string{MissingAllocation}}},
		"a profile of which nothing is known, and a mark": {build: []func(*testEnv, *v1.Pod){mark}, want: wanted{notes: []string{PlacedByCount}}},
		"nodes without a graph allowed, and this has": {
			profile: allow, want: wanted{violations: []string{MissingAllocation}, message: "was there before the pod"},
		},
		"a pod that was bound to such a node just now": {
			profile: allow, build: []func(*testEnv, *v1.Pod){young}, want: wanted{pending: []string{MissingAllocation}},
		},
		"a pod that was bound to such a node with a mark": {
			profile: allow, build: []func(*testEnv, *v1.Pod){mark}, want: wanted{notes: []string{PlacedByCount}, message: "where no graph counts"},
		},
		"a demand that only a graph can meet": {
			profile: both, want: breach, build: []func(*testEnv, *v1.Pod){mark, func(_ *testEnv, p *v1.Pod) { p.Annotations[podrequest.MinLinkKey] = "NV1" }},
		},
		"a graph that came after the pod": {
			profile: allow, want: wanted{notes: []string{PlacedByCount}, message: "not marked so"},
			build: []func(*testEnv, *v1.Pod){func(c *testEnv, _ *v1.Pod) { c.topology("b").CreationTimestamp = *at(-500 * time.Millisecond) }},
		},
		"a graph that changed after the pod": {profile: allow, want: wanted{notes: []string{PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.topology("b").ManagedFields[0].Time = at(time.Minute) },
		}},
		"a graph whose health changed after the pod": {profile: allow, want: wanted{notes: []string{PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.topology("b").ManagedFields[1].Time = at(time.Minute) },
		}},
		"a graph that came a moment before the pod": {profile: allow, want: wanted{notes: []string{PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.topology("b").CreationTimestamp = *at(-10 * time.Second) },
		}},
		"a graph of an earlier Node": {profile: allow, want: wanted{notes: []string{MissingExporter, PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.topology("b").Spec.NodeUID = "earlier" },
		}},
		"no graph": {profile: allow, want: wanted{notes: []string{MissingExporter, PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.Topologies = c.Topologies[:1] },
		}},
		"a graph that cannot be read": {profile: allow, want: wanted{notes: []string{MalformedTopology, PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(c *testEnv, _ *v1.Pod) { c.topology("b").Spec.LinkRows = nil },
		}},
		"a policy that was another when it was placed": {profile: allow, want: wanted{notes: []string{PlacedByCount}}, build: []func(*testEnv, *v1.Pod){
			func(_ *testEnv, p *v1.Pod) {
				p.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", Time: at(time.Minute), FieldsV1: fields("f:" + podrequest.TopologyPolicyKey)}}
			},
		}},
		// Nothing tells whether the graph was stale then.
		"stale nodes counted":               {profile: count, want: wanted{notes: []string{PlacedByCount}}},
		"both permitted":                    {profile: both, want: wanted{notes: []string{PlacedByCount}}},
		"policy none":                       {profile: strict, build: []func(*testEnv, *v1.Pod){policyNone}, want: wanted{notes: []string{PlacedByCount}}},
		"policy none where graphs may lack": {profile: allow, build: []func(*testEnv, *v1.Pod){policyNone}, want: wanted{notes: []string{PlacedByCount}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			if tc.profile.Name != "" {
				c.Profiles = []diagnosis.Profile{tc.profile}
			}
			p := c.pod("one", "b", 0)
			p.Annotations, p.CreationTimestamp = map[string]string{}, *at(-time.Second)
			for _, build := range tc.build {
				build(c, p)
			}
			tc.want.compare(t, Examine(c.World))
		})
	}
}
