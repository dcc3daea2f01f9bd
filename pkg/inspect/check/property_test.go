// SPDX-License-Identifier: Apache-2.0

package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestDemandsBruteForce: demands agree with a brute force.
func TestDemandsBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 1))
	policies := map[string]nvtopo.Policy{
		"none": nvtopo.PolicyNone, "best-effort": nvtopo.PolicyBestEffort, "restricted": nvtopo.PolicyRestricted, "single-numa-node": nvtopo.PolicySingleNUMANode,
	}
	names := slices.Sorted(maps.Keys(policies))
	links := []string{"", "SYS", "NODE", "PHB", "NV1", "NV2"}
	speeds := []string{"", "10", "25", "50"}
	met := map[bool]int{}
	c := newTestEnv(t)
	o := oracle.New(c.graphs["b"])
	for i := range 2000 {
		c.Pods = nil
		gpus := rng.Perm(8)[:1+rng.IntN(8)]
		p := c.pod("one", "b", gpus...)
		policy, link, speed := names[rng.IntN(len(names))], links[rng.IntN(len(links))], speeds[rng.IntN(len(speeds))]
		con := nvtopo.Constraint{Policy: policies[policy]}
		p.Annotations[podrequest.TopologyPolicyKey] = policy
		if link != "" {
			p.Annotations[podrequest.MinLinkKey] = link
			var err error
			if con.MinLink, err = nvtopo.ParseClass(link); err != nil {
				t.Fatal(err)
			}
		}
		if speed != "" {
			p.Annotations[podrequest.MinBandwidthKey] = speed
			if _, err := fmt.Sscan(speed, &con.MinBandwidth); err != nil {
				t.Fatal(err)
			}
			con.MinBandwidth *= 1e6
		}
		want := []string{}
		if !o.Permits(nvtopo.MaskOf(gpus...), con) {
			want = append(want, DemandUnmet)
		}
		met[len(want) == 0]++
		if diff := cmp.Diff(want, slugs(Check(c.World))); diff != "" {
			t.Fatalf("run %d: GPUs %v, policy %s, min-link %q, min-bandwidth %q (-want +got):\n%s", i, gpus, policy, link, speed, diff)
		}
	}
	if met[true] < 100 || met[false] < 100 {
		t.Errorf("%d met and %d not: too few of one kind to prove anything", met[true], met[false])
	}
}

// TestSharingBruteForce: sharing agrees with a comparison of every pair.
func TestSharingBruteForce(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		c := newTestEnv(t)
		holders := map[string][]string{} // node and UUID -> pods
		for i := range 2 + rng.IntN(12) {
			node := []string{"a", "b"}[rng.IntN(2)]
			gpus := rng.Perm(8)[:1+rng.IntN(2)]
			p := c.pod(fmt.Sprintf("p%02d", i), node, gpus...)
			switch rng.IntN(6) {
			case 0:
				p.Status.Phase = v1.PodFailed
				continue
			case 1:
				p.Spec.NodeName = ""
				continue
			case 2:
				p.DeletionTimestamp = at(0)
			}
			for _, id := range c.ids(node, gpus...) {
				holders[node+id] = append(holders[node+id], string(p.UID))
			}
		}
		want := map[string]bool{} // pod pod
		for _, pods := range holders {
			for i := range pods {
				for j := range i {
					want[pods[j]+" "+pods[i]] = true
				}
			}
		}
		got := map[string]bool{}
		for _, v := range Check(c.World) {
			if v.Invariant != SharedByAnnotation {
				t.Fatalf("seed %d: %v", seed, v)
			}
			for i := range v.Objects {
				for j := range i {
					if v.Objects[i].Kind == "Pod" && v.Objects[j].Kind == "Pod" {
						got[string(v.Objects[j].UID)+" "+string(v.Objects[i].UID)] = true
					}
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seed %d: pairs that share (-want +got):\n%s", seed, diff)
		}
	}
}

// export writes the World as kubectl and the debug address would.
func (e *testEnv) export(tb testing.TB) []byte {
	tb.Helper()
	var docs []string
	add := func(version, kind string, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			tb.Fatal(err)
		}
		if kind != "" {
			b = []byte(`{"apiVersion":"` + version + `","kind":"` + kind + `",` + string(b[1:]))
		}
		docs = append(docs, string(b))
	}
	for i := range e.Pods {
		add("v1", "Pod", e.Pods[i])
	}
	for i := range e.Nodes {
		add("v1", "Node", e.Nodes[i])
	}
	for i := range e.Leases {
		add("coordination.k8s.io/v1", "Lease", e.Leases[i])
	}
	for i := range e.Topologies {
		e.Topologies[i].TypeMeta = metav1.TypeMeta{}
		add("topology.nvtopo.dev/v1alpha1", "NodeGPUTopology", e.Topologies[i])
	}
	for i := range e.Schedulers {
		add("", "", e.Schedulers[i])
	}
	return []byte(strings.Join(docs, "\n---\n"))
}

// TestFilesMatchCluster: files say what the cluster says.
func TestFilesMatchCluster(t *testing.T) {
	c := busy(t)
	want := Examine(c.World)
	w := &World{Objects: clusterobjects.Objects{Now: c.Now}}
	if err := w.Add(c.export(t)); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, Examine(w)); diff != "" {
		t.Errorf("from files (-cluster +files):\n%s", diff)
	}
	if !w.Moment().Equal(c.Now) {
		t.Errorf("moment %v, want %v", w.Moment(), c.Now)
	}
}

// busy is a World with something of everything.
func busy(tb testing.TB) *testEnv {
	tb.Helper()
	c := newTestEnv(tb)
	d := c.scheduler()
	d.Claims = []diagnosis.Reservation{c.claim("gone", "void", 0, 7)}
	c.derives(d, "a", 0, 1)
	c.record(c.pod("one", "a", 0), "main", 1)
	c.pod("two", "b", 3, 4).Annotations[podrequest.MinLinkKey] = "NV1"
	three := c.pod("three", "b", 4)
	three.Spec.InitContainers = []v1.Container{testobj.Container("prepare", 2)}
	corrected(three)
	fail(c, "b", 3)
	return c
}

// FuzzWorld reads any text as a cluster and examines it: nothing in a World is
// trusted, so nothing in it may end the program, and every finding names an object.
func FuzzWorld(f *testing.F) {
	f.Add(busy(f).export(f))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"nodeName":"n","containers":[{"resources":{"limits":{"nvidia.com/gpu":"9223372036854775807"}}},{"resources":{"limits":{"nvidia.com/gpu":"2"}}}]}}`))
	f.Add([]byte(`{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"n"},"spec":{"nodeUID":""},"status":{"allocations":[{"gpus":["x","x"]}]}}` + "\n---\n" + `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`))
	f.Add([]byte(`{"version":1,"requestTimeout":"1s","claims":[{"pod":"/","gpus":[""]},{"pod":""}],"nodes":[{"name":"n","counts":true,"derived":{}}],"synced":true}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		w := &World{Objects: clusterobjects.Objects{Now: chosen}}
		if err := w.Add(data); err != nil {
			return
		}
		k := NewChecker(DefaultGrace)
		for range 2 {
			r := k.Examine(w)
			for _, all := range [][]Violation{r.Violations, r.Pending, r.Notes} {
				for _, v := range all {
					if v.Invariant == "" || len(v.Objects) == 0 || v.Message == "" || v.String() == "" {
						t.Errorf("a finding without invariant, object or message: %+v", v)
					}
				}
			}
			w.Now = w.Now.Add(DefaultGrace)
		}
	})
}
