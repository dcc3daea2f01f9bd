// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/fabric"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// TestElasticJobMessageSize is acceptance 43: dataSizeMB is the size of the all-reduce by whose time the
// place is judged.
func TestElasticJobMessageSize(t *testing.T) {
	a := rack(t, 0)
	s := newScenario(t, racked(4, a)...)
	s.pool(t, fmt.Sprintf(onePool, 32), "a")
	s.elasticJob(t, "a", "train", `
  scaling: {minReplicas: 4, maxReplicas: 4, gpuPerReplica: 8}
  placement: {strategy: communication_heavy, algorithm: ring, dataSizeMB: 100}`)
	base := names.BaseJob("train")
	c, _ := s.placed(t, base, 4)
	if want := "all-reduce of 100 MB in 1.46484375 ms"; !strings.HasSuffix(c.Message, want) {
		t.Errorf("the check says %q, want %q at its end", c.Message, want)
	}
	s.estimates(t, base, fabric.QualitySameRack, gangrequest.Estimate{Ring: 1.46484375, Tree: 3.90625, Other: 0.4})
}

// TestExtraVictimChoice: Kueue evicts the newest extra for a job that needs a whole node, which leaves no
// such node. The check lets the job start nevertheless, because the scheduler can free one: it evicts the
// extra whose end frees a linked set, and that one comes back on other devices.
func TestExtraVictimChoice(t *testing.T) {
	node := devcluster.NodeSpec{Machine: "hgx-a100-4"}
	s := newScenario(t, node, node)
	s.tenants(t, "a")
	s.computePool(t, `
  poolType: gpu
  capacity: {total: 8, reserved: 0}
  quotas: [{tenant: POOL-a, limit: 8, guaranteed: 8}]`)
	s.ready(t)

	// The first node is full when the first extra comes, and has room for the others.
	s.job(t, "a", "blocker", work{gpus: 3})
	blocker := s.running(t, "a", "blocker", 1)[0]
	s.elasticJob(t, "a", "grows", `
  scaling: {minReplicas: 1, maxReplicas: 2, gpuPerReplica: 1, rendezvous: elastic}`)
	base := s.running(t, "a", names.BaseJob("grows"), 1)[0]
	first := s.running(t, "a", names.ExtraJob("grows", 1), 1)[0]
	if base.Spec.NodeName != blocker.Spec.NodeName || first.Spec.NodeName == base.Spec.NodeName {
		t.Fatalf("the base is on %s beside the blocker on %s, the extra on %s: the scenario wants it elsewhere", base.Spec.NodeName, blocker.Spec.NodeName, first.Spec.NodeName)
	}
	s.end(t, blocker)
	s.waitFor(t, "the blocker's quota is free", func(ctx context.Context) (bool, string) {
		w, err := s.workload(ctx, "a", "blocker")
		return err == nil && w != nil && meta.IsStatusConditionTrue(w.Status.Conditions, kueue.WorkloadFinished), fmt.Sprint(w, err)
	})
	patch := []byte(`{"spec":{"scaling":{"maxReplicas":5}}}`)
	if err := s.Patch(t.Context(), s.elastic(t, "a", "grows"), client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	s.waitBound(t, map[string]int64{"a": 5})
	for i := int32(2); i < 5; i++ {
		if p := s.running(t, "a", names.ExtraJob("grows", i), 1)[0]; p.Spec.NodeName != base.Spec.NodeName {
			t.Fatalf("extra %d is on %s, the base on %s", i, p.Spec.NodeName, base.Spec.NodeName)
		}
	}

	s.elasticJob(t, "a", "whole", `
  scaling: {minReplicas: 1, maxReplicas: 1, gpuPerReplica: 4}`)
	whole := s.running(t, "a", names.BaseJob("whole"), 1)[0]
	if whole.Spec.NodeName != first.Spec.NodeName {
		t.Errorf("the job is on %s, and the extra that was alone was on %s", whole.Spec.NodeName, first.Spec.NodeName)
	}
	c, _, err := s.check(t.Context(), names.BaseJob("whole"))
	if want := "there is room once pods of a lower priority are evicted"; err != nil || c.Message != want {
		t.Errorf("the check said %q, %v, want %q", c.Message, err, want)
	}
	t.Logf("Kueue evicted %v", s.evicted("a"))
	s.waitFor(t, "the extras are back beside their base", func(context.Context) (bool, string) {
		on := map[string]int{}
		for _, p := range s.podsOf(t, "a", client.MatchingLabels{names.LabelElasticJob: "grows"}) {
			if p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil {
				on[p.Spec.NodeName]++
			}
		}
		return on[base.Spec.NodeName] == 4 && len(on) == 1, fmt.Sprint(on)
	})
	if now := s.running(t, "a", names.BaseJob("grows"), 1)[0]; now.UID != base.UID {
		t.Errorf("the base was evicted: pod %s is now %s", base.UID, now.UID)
	}
}
