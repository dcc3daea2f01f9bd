// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// TestGetPodsWithoutGraph: without a graph with the indices of a pod's GPUs, as after nvtopo was removed,
// the ids of its annotation are listed.
func TestGetPodsWithoutGraph(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	given := func(name string, ids ...string) v1.Pod {
		p := testobj.Pod(name).GPUs(len(ids)).Node("n0").Phase(v1.PodRunning).Created(now).Obj()
		a := &allocation.Allocation{
			Version: allocation.Version, Node: "n0", PodUID: p.UID, Assumed: now,
			Containers: []allocation.Container{{Name: "main", Resource: v1alpha1.DefaultResource, GPUs: ids}},
		}
		text, err := a.Encode()
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations[allocation.Key] = text
		return *p
	}
	const first, second, third = "GPU-5ba92a1c-0000-4000-8000-000000000001", "GPU-77c0ffee-0000-4000-8000-000000000002", "GPU-0badcafe-0000-4000-8000-000000000003"
	moved := given("moved", first)
	moved.UID = "another"
	objects := &clusterobjects.Objects{
		Now: now, Nodes: []v1.Node{*testobj.Node("n0").GPUs(8).Obj()},
		Pods: []v1.Pod{given("one", first), given("two", first, second), given("three", first, second, third), moved},
	}
	o := &gettingPods{all: true}
	o.source.resource = v1alpha1.DefaultResource
	var b bytes.Buffer
	if err := writePods(&b, o.list(objects, ""), palette{}, false); err != nil {
		t.Fatal(err)
	}
	for pod, want := range map[string]string{
		"one": "GPU-5ba92a1c", "two": "GPU-5ba92a1c, GPU-77c0ffee", "three": "GPU-5ba92a1c and 2 more", "moved": "-",
	} {
		found := false
		for line := range strings.Lines(b.String()) {
			found = found || strings.Contains(line, " "+pod+" ") && strings.Contains(line, " n0    "+want+" ")
		}
		if !found {
			t.Errorf("pod %s is not listed with %q:\n%s", pod, want, b.String())
		}
	}
}
