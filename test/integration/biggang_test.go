// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// The fabric of TestThousandMemberGang: 125 nodes of eight GPUs.
const manySpines, manyRacks, manyNodes = 5, 5, 5

// TestThousandMemberGang places gangs up to the size of the cluster.
func TestThousandMemberGang(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	free := make(freeRacks, manySpines)
	for spine := range free {
		for range manyRacks {
			free[spine] = append(free[spine], slices.Repeat([]int{8}, manyNodes))
		}
	}
	l.makeRacks(t, 0, &scenario{free: free})
	l.startScheduler(t, profile{
		name: gangProfile, write: "Binding", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}, binders: []string{topologyPlugin, "DefaultBinder"},
	})
	l.testOutsideTheList(t)
	l.testThousand(t)
}

// testOutsideTheList has a gang planned on nodes outside of every single pod's list. Single pods with a
// whole node each are listed the nodes of the rack with the fewest whole ones: that of the first of them.
// On its spine the fewest racks that hold twenty are the four others.
func (e *testEnv) testOutsideTheList(t *testing.T) {
	t.Helper()
	const members = (manyRacks - 1) * manyNodes
	rackOf := func(name string) string {
		node := e.bound(t, name).Spec.NodeName
		return node[:strings.LastIndex(node, "-")]
	}
	wholeNode := func(name string) *v1.Pod { return gpuPod(name, gangProfile, 8).Obj() }
	e.create(t, wholeNode("listed-0"))
	listed := rackOf("listed-0")
	wantListed := func(name string) {
		e.create(t, wholeNode(name))
		if got := rackOf(name); got != listed {
			t.Fatalf("the pod %s is in %s: its list is not that of %s", name, got, listed)
		}
	}
	wantListed("listed-1")
	pods := gangPods(0, "outside", members, 8, nil)
	for _, pod := range pods {
		pod.Spec.NodeSelector = nil // a pod that selects nodes could have another list
	}
	e.create(t, pods...)
	racks := map[string]int{}
	for _, pod := range pods {
		racks[rackOf(pod.Name)]++
	}
	t.Logf("expected %d members in %d racks without %s; got %v", members, manyRacks-1, listed, racks)
	if racks[listed] > 0 || len(racks) != manyRacks-1 {
		t.Errorf("racks of the members: %v, want %d that are not %s", racks, manyRacks-1, listed)
	}
	e.placementOf(t, pods[0].Name) // is written with the planned nodes
	wantNodes := e.get(t, pods[0].Name).Annotations[gangrequest.NodesKey]
	for i, node := range strings.Split(wantNodes, ",") {
		if got := e.get(t, pods[i].Name).Spec.NodeName; got != node {
			t.Errorf("member %d is on %s, want %s as planned", i, got, node)
		}
	}
	wantListed("listed-2")
	e.dropAll(t)
}

// testThousand has a launcher without GPUs and 999 members of one GPU each: all GPUs but one.
func (e *testEnv) testThousand(t *testing.T) {
	t.Helper()
	const members, gpus = 1000, 999
	pods := gangPods(0, "thousand", members, 1, nil)
	launcher := gpuPod("thousand-0", gangProfile, 0).Annotations(pods[0].Annotations).Obj()
	launcher.Spec.NodeSelector = pods[0].Spec.NodeSelector
	pods[0] = launcher
	e.createAll(t, pods[:members-1])
	if n := e.countBound(t, pods); n != 0 {
		t.Errorf("%d of %d members are bound before the last is there", n, members)
	}
	start := time.Now()
	e.create(t, pods[members-1])
	testkit.Eventually(t, waitLimit, "all members are bound", func(context.Context) (bool, string) {
		time.Sleep(200 * time.Millisecond) // a list of a thousand pods is expensive
		n := e.countBound(t, pods)
		return n == members, strconv.Itoa(n)
	})
	took := time.Since(start)
	owners, ranks := map[string]string{}, map[string]string{}
	for _, pod := range e.pods(t) {
		rank := pod.Annotations[gangrequest.RankKey]
		if pod.Name == launcher.Name {
			continue
		}
		if other, ok := ranks[rank]; ok {
			testkit.Violation(t, "%s and %s both have rank %q", other, pod.Name, rank)
		}
		ranks[rank] = pod.Name
		a, err := allocation.Of(&pod, pod.Spec.NodeName)
		if err != nil || len(a.GPUs(string(gpuResource))) != 1 {
			t.Fatalf("pod %s: its choice is %+v (%v)", pod.Name, a, err)
		}
		id := pod.Spec.NodeName + "/" + a.GPUs(string(gpuResource))[0]
		if other, ok := owners[id]; ok {
			testkit.Violation(t, "GPU %s is %s's and %s's", id, other, pod.Name)
		}
		owners[id] = pod.Name
	}
	t.Logf("expected %d members bound and %d GPUs with one owner each; got %d GPUs with an owner, %d ms after the last member came (%.0f members a second)",
		members, gpus, len(owners), took.Milliseconds(), members/took.Seconds())
	if len(owners) != gpus {
		t.Errorf("%d GPUs have an owner", len(owners))
	}
}

func (e *testEnv) countBound(t *testing.T, among []*v1.Pod) (n int) {
	t.Helper()
	wanted := make(map[string]bool, len(among))
	for _, pod := range among {
		wanted[pod.Name] = true
	}
	for _, pod := range e.pods(t) {
		if wanted[pod.Name] && pod.Spec.NodeName != "" {
			n++
		}
	}
	return n
}
