// SPDX-License-Identifier: Apache-2.0

package gang_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testkit"
)

// TestLocalVolumes: members are placed at their local volumes. Their claims are bound, each to a volume on
// another node. No plugin refuses a node here, so the plan itself has to respect them.
func TestLocalVolumes(t *testing.T) {
	t.Parallel()
	r := newTestEnv(t, 4, 4)
	testkit.Watched(t, r.client.Actions, "persistentvolumes")
	testkit.Watched(t, r.client.Actions, "persistentvolumeclaims")
	want := []string{"node-1-3", "node-0-2", "node-1-0"}
	var pods []*v1.Pod
	for i, node := range want {
		pod := member("g", len(want), i, 8).PVC(fmt.Sprintf("g-%d", i)).Obj()
		r.localVolume(pod.Namespace, pod.Name, node)
		pods = append(pods, pod)
	}
	for _, pod := range pods {
		r.create(pod)
	}
	r.known(pods[0])
	var got []string
	for _, pod := range pods {
		c := r.cycle(pod)
		if !c.status.IsWait() {
			t.Fatalf("pod %s: %v", pod.Name, c.status)
		}
		got = append(got, c.node)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes of the members (-want,+got)\n%s", diff)
	}
}

// localVolume makes a claim that is bound to a volume of one node, and waits until it is known.
func (e *testEnv) localVolume(namespace, name, node string) {
	e.t.Helper()
	required := &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{node}},
	}}}}
	volume := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: required}}}
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: name}}
	core := e.client.CoreV1()
	if _, err := core.PersistentVolumes().Create(e.t.Context(), volume, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	if _, err := core.PersistentVolumeClaims(namespace).Create(e.t.Context(), claim, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	known := e.factory.Core().V1()
	testkit.Soon(e.t, "volume "+name+" and its claim are known", func() bool {
		_, err := known.PersistentVolumes().Lister().Get(name)
		_, claimErr := known.PersistentVolumeClaims().Lister().PersistentVolumeClaims(namespace).Get(name)
		return err == nil && claimErr == nil
	})
}
