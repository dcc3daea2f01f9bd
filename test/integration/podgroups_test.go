// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	"sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned"
	groupsclient "sigs.k8s.io/scheduler-plugins/pkg/generated/clientset/versioned/typed/scheduling/v1alpha1"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/schedtest"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
)

// TestPodGroups follows gangs of scheduler-plugins' API with the shipped account: the
// definition comes after the scheduler, a group after its pods, and a minimum changes.
func TestPodGroups(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.makeFabric(t)
	s := scenario{free: freeRacks{{{8, 8, 8, 8}, {8, 8, 8, 8}, {8, 8, 8, 8}}}}
	l.makeRacks(t, 0, &s)
	l.startScheduler(t, profile{name: gangProfile, write: "PreBind", plugins: []string{gangPlugin, topologyPlugin, numaPlugin}})

	early := groupPods("early", 3)
	for _, pod := range early {
		l.create(t, pod)
	}
	l.wantGangRefused(t, early, "there is no such PodGroup")

	groups := l.definePodGroups(t)
	makeGroup(t, groups, "early", 3, notes{gangrequest.RequiredKey: "rack"})
	l.wantOneRack(t, early)
	l.wantWhole(t, groups, "early")

	short := groupPods("short", 3)
	makeGroup(t, groups, "short", 4, nil)
	for _, pod := range short {
		l.create(t, pod)
	}
	l.wantGangRefused(t, short, "3 of 4 members")
	lower := []byte(`{"spec":{"minMember":3}}`)
	if _, err := groups.Patch(t.Context(), "short", types.MergePatchType, lower, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	l.wantOneRack(t, short)
	l.wantWhole(t, groups, "short")
}

// definePodGroups installs the definition that scheduler-plugins ships.
func (e *testEnv) definePodGroups(t *testing.T) groupsclient.PodGroupInterface {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	if err != nil {
		t.Fatalf("finding the module: %v", err)
	}
	const file = "scheduling.x-k8s.io_podgroups.yaml"
	crd, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ApplyManifests(t.Context(), fstest.MapFS{file: {Data: crd}}); err != nil {
		t.Fatal(err)
	}
	client, err := versioned.NewForConfig(e.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	return client.SchedulingV1alpha1().PodGroups(metav1.NamespaceDefault)
}

func makeGroup(t *testing.T, groups groupsclient.PodGroupInterface, name string, minimum int32, more notes) {
	t.Helper()
	group := &schedulingv1alpha1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: more},
		Spec:       schedulingv1alpha1.PodGroupSpec{MinMember: minimum},
	}
	if _, err := groups.Create(t.Context(), group, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// groupPods are members of a PodGroup, with a whole node each.
func groupPods(group string, pods int) []*v1.Pod {
	out := make([]*v1.Pod, pods)
	for i := range out {
		out[i] = groupPod(group, i).Obj()
	}
	return out
}

// groupPod starts one of them.
func groupPod(group string, i int) *schedtest.PodWrapper {
	return gpuPod(fmt.Sprintf("%s-%d", group, i), gangProfile, 8).Label(schedulingv1alpha1.PodGroupLabel, group)
}

// wantOneRack waits until all pods are bound, in one rack.
func (e *testEnv) wantOneRack(t *testing.T, pods []*v1.Pod) {
	t.Helper()
	racks := map[string]bool{}
	for _, pod := range pods {
		node := e.bound(t, pod.Name).Spec.NodeName
		racks[node[:strings.LastIndex(node, "-")]] = true
	}
	if len(racks) != 1 {
		t.Errorf("the gang of %s is in racks %v, want one", pods[0].Name, racks)
	}
}

// wantWhole waits until the group says that its gang is whole, and where it is.
func (e *testEnv) wantWhole(t *testing.T, groups groupsclient.PodGroupInterface, name string) {
	t.Helper()
	testkit.Eventually(t, waitLimit, "PodGroup "+name+" says that it is whole", func(ctx context.Context) (bool, string) {
		group, err := groups.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		state, ok := gangrequest.StateOf(group)
		placed, err := gangrequest.ParsePlacement(group.Annotations[gangrequest.PlacementKey])
		notes, _ := json.Marshal(group.Annotations)
		return ok && state == (gangrequest.State{Attempt: 1, Whole: true}) && err == nil && placed.Level == "rack", string(notes)
	})
}
