// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const amd = "amd.com/gpu"

// becomes makes GPUs of a node another resource's, which has no links with the rest.
func (e *testEnv) becomes(node, resource string, gpus ...int) {
	spec := &e.topology(node).Spec
	for _, i := range gpus {
		spec.GPUs[i].Resource = resource
	}
	for i, row := range spec.LinkRows {
		words := strings.Fields(row)
		for j := range words {
			if spec.GPUs[i].Resource != spec.GPUs[i+1+j].Resource {
				words[j] = "-"
			}
		}
		spec.LinkRows[i] = strings.Join(words, " ")
	}
}

// asksFor makes a container ask for so many devices of a resource beside what it asks for.
func asksFor(c *v1.Container, resource v1.ResourceName, n int64) {
	both := v1.ResourceList{}
	maps.Copy(both, c.Resources.Limits)
	both[resource] = *quantity(n)
	c.Resources = v1.ResourceRequirements{Requests: both, Limits: both}
}

// TestProfileResources: every resource of a profile is checked.
func TestProfileResources(t *testing.T) {
	part := func(resource string, gpus []string) allocation.Container {
		return allocation.Container{Name: "main", Resource: resource, GPUs: gpus}
	}
	// single asks node b for one GPU of AMD, and gets the first.
	single := func(c *testEnv) *v1.Pod {
		c.becomes("b", amd, 0, 1, 2, 3, 4, 5, 6, 7)
		p := c.pod("one", "b")
		asksFor(&p.Spec.Containers[0], amd, 1)
		c.allocate(p, part(amd, c.ids("b", 0)))
		return p
	}
	// mixed asks node b for one GPU of each kind.
	mixed := func(c *testEnv) *v1.Pod {
		c.becomes("b", amd, 4, 5, 6, 7)
		p := c.pod("one", "b", 0)
		asksFor(&p.Spec.Containers[0], amd, 1)
		c.allocate(p, part(amd, c.ids("b", 4)), part(gpu, c.ids("b", 0)))
		delete(p.Annotations, allocation.GPUIDsKey)
		return p
	}
	served := func(c *testEnv, resources ...string) {
		c.Schedulers = []diagnosis.State{{
			Name: "s", Synced: true, Profiles: []diagnosis.Profile{{Name: DefaultProfile, Resources: resources}},
		}}
	}
	cases := map[string]struct {
		build func(c *testEnv)
		want  wanted
		pods  int // with GPUs
	}{
		"another resource than the shipped one":    {build: func(c *testEnv) { single(c) }, pods: 1},
		"a second resource beside the shipped one": {build: func(c *testEnv) { mixed(c) }, pods: 1},
		"a profile that is only named": {pods: 1, build: func(c *testEnv) {
			single(c).Spec.SchedulerName = "amd-scheduler"
			c.Profiles = []diagnosis.Profile{{Name: "amd-scheduler"}}
		}},
		"a pod of another resource without an allocation": {
			build: func(c *testEnv) { single(c).Annotations = nil }, pods: 1,
			want: wanted{violations: []string{MissingAllocation}, message: "it asks for 1 amd.com/gpu"},
		},
		"a second resource of which nothing was chosen": {
			build: func(c *testEnv) { c.allocate(mixed(c), part(gpu, c.ids("b", 0))) }, pods: 1,
			want: wanted{violations: []string{IncompleteAllocation}, message: "asks for 1 amd.com/gpu and has none"},
		},
		"a resource that nothing asks for": {
			build: func(c *testEnv) { single(c).Spec.Containers[0] = testobj.Container("main", 0) },
			want:  wanted{violations: []string{IncompleteAllocation}, message: "container main has amd.com/gpu that it does not ask for"},
		},
		"a node whose graph is gone": {
			build: func(c *testEnv) { single(c); c.Topologies = c.Topologies[:1] }, pods: 1,
			want: wanted{notes: []string{MissingExporter, Unverified}},
		},
		"a pod of a scheduler that is not named": {build: func(c *testEnv) {
			single(c).Spec.SchedulerName = "amd-scheduler"
			c.Topologies[1].Spec.NodeUID = "earlier"
		}, pods: 1, want: wanted{notes: []string{MissingExporter, Unverified}}},
		"a resource that its scheduler does not serve": {build: func(c *testEnv) {
			single(c).Annotations = nil
			served(c, gpu)
		}},
		"one that its scheduler served when it was chosen": {build: func(c *testEnv) {
			mixed(c)
			served(c, gpu)
		}, pods: 1},
		"a scheduler that says more of a profile than its name": {
			build: func(c *testEnv) {
				c.pod("one", "b", 0, 4)
				served(c, gpu)
				c.Schedulers[0].Profiles[0].DefaultPolicy = "restricted"
				c.Profiles = []diagnosis.Profile{{Name: DefaultProfile}}
			}, pods: 1,
			want: wanted{violations: []string{DemandUnmet}, message: "NUMA policy"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newTestEnv(t)
			tc.build(c)
			r := Examine(c.World)
			tc.want.compare(t, r)
			if r.Checked.Pods != tc.pods {
				t.Errorf("%d pods with GPUs, want %d", r.Checked.Pods, tc.pods)
			}
		})
	}
}
