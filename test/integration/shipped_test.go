// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strconv"
	"testing"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// TestShippedConfigurations runs the scheduler as shipped: its configuration,
// its account, its own leader-election Lease, the admission policies in force,
// and an example pod. Only where the API server is was added.
func TestShippedConfigurations(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.node(t, "n1", "dgx-h100")
	const ours = "topology-aware-scheduler"
	for name, tc := range map[string]struct{ path, profile string }{
		"prebind": {manifests.SchedulerConfigPath, ours},
		"binding": {manifests.SchedulerConfigBindingPath, ours},
		// In place of kube-scheduler: pods that name nobody, and those that name ours.
		"default": {manifests.SchedulerConfigDefaultPath, defaultProfile},
		"both":    {manifests.SchedulerConfigDefaultPath, ours},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := l.StartScheduler(t.Context(), devcluster.SchedulerOptions{
				Binary: testkit.Program(t, "nvtopo-scheduler"), Config: withKubeconfig(t, tc.path),
				ServiceAccount: l.schedulerAccount,
			})
			if err != nil {
				t.Fatal(err)
			}
			pod := gpuPod("pod-"+name, tc.profile, 2).Annotation(podrequest.NUMAAffinityKey, "required").Obj()
			l.create(t, pod)
			got := l.bound(t, pod.Name)
			for _, key := range []string{allocation.Key, allocation.GPUIDsKey, allocation.GPUIDsAlias, allocation.NUMANodeAlias} {
				if got.Annotations[key] == "" {
					t.Errorf("no annotation %s", key)
				}
			}
			lease, err := l.client.CoordinationV1().Leases(systemNamespace).Get(t.Context(), "nvtopo-scheduler", metav1.GetOptions{})
			if err != nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
				t.Errorf("the leader's Lease: %v, %v", lease, err)
			}
			l.remove(t, pod.Name)
			l.testShippedGang(t, "gang-"+name, tc.profile)
			// An orderly end gives the Lease back, so that the next one need not wait for it to run out.
			if err := s.Stop(t.Context()); err != nil {
				t.Errorf("stop the scheduler: %v", err)
			}
		})
	}
}

// testShippedGang places a gang that needs the whole node. Its choices and ranks are written as
// those of single pods are: when a member is bound, they are there.
func (e *testEnv) testShippedGang(t *testing.T, name, profile string) {
	t.Helper()
	var members []string
	for i := range 2 {
		pod := gpuPod(fmt.Sprintf("%s-%d", name, i), profile, 4).Annotations(notes{gangrequest.GangKey: name, gangrequest.GangSizeKey: "2"}).Obj()
		e.create(t, pod)
		members = append(members, pod.Name)
	}
	var used nvtopo.Mask
	for rank, member := range members {
		pod := e.bound(t, member)
		c := choiceOf(t, pod, e.graphs["n1"])
		if c.set&used != 0 || pod.Annotations[gangrequest.RankKey] != strconv.Itoa(rank) {
			t.Errorf("pod %s has GPUs %v beside %v and rank %q, want others and %d",
				member, c.set.Positions(), used.Positions(), pod.Annotations[gangrequest.RankKey], rank)
		}
		used |= c.set
	}
	t.Logf("expected 8 GPUs for two members; got %v", used.Positions())
	e.remove(t, members...)
}

// withKubeconfig returns a shipped configuration for a scheduler outside of the cluster.
func withKubeconfig(t *testing.T, path string) []byte {
	t.Helper()
	data, err := manifests.FS.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return fromOutside(t, data)
}

// fromOutside returns a configuration for a scheduler outside of the cluster.
func fromOutside(t *testing.T, data []byte) []byte {
	t.Helper()
	var config map[string]any
	if err := yaml.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	if !ok {
		t.Fatalf("no clientConnection in\n%s", data)
	}
	connection["kubeconfig"] = "KUBECONFIG"
	data, err := yaml.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
