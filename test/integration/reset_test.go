// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
)

// TestReset shows that a cluster that a test has used is as a new one for the next.
func TestReset(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	before, err := l.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, round := range []string{"the first test", "one on a cluster that was reset"} {
		l = testEnvOn(t, l.Cluster)
		l.install(t)
		l.startScheduler(t, profile{name: "gpu", write: "PreBind"})
		l.node(t, "node", "dgx1-v100")
		l.create(t, gpuPod("pod", "gpu", 2).Obj())
		l.bound(t, "pod")
		label := []byte(`{"metadata":{"labels":{"left":"behind"}}}`)
		if _, err := l.client.CoreV1().Namespaces().Patch(t.Context(), metav1.NamespaceDefault, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.client.RbacV1().ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := l.Reset(context.Background(), before); err != nil {
			t.Fatalf("reset after %s: %v", round, err)
		}
		after, err := l.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := before.Differences(after); len(diff) > 0 {
			t.Errorf("after %s: %q", round, diff)
		}
		if n := len(l.Schedulers()); n > 0 {
			t.Errorf("after %s: %d schedulers run", round, n)
		}
	}
}
