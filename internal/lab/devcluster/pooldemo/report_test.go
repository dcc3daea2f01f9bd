// SPDX-License-Identifier: Apache-2.0

package pooldemo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestGPUPicture: the picture has a letter for each GPU.
func TestGPUPicture(t *testing.T) {
	got := draw([]held{{"team-b", "node-1", 2}, {"team-a", "node-1", 1}, {"team-c", "node-7", 8}, {"somebody", "node-2", 4}})
	want := []string{"........", "ABB.....", "........", "........", "........", "........", "........", "CCCCCCCC"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The rest of 24 is shared 3:2:1.
func TestShares(t *testing.T) {
	got := map[string]int64{}
	for _, tenant := range tenants() {
		got[tenant.name] = tenant.share
	}
	if diff := cmp.Diff(map[string]int64{"team-a": 20, "team-b": 24, "team-c": 12}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestLimitWatch: the watch finds who is beyond a limit.
func TestLimitWatch(t *testing.T) {
	pod := func(tenant, uid string, gpus int64) *v1.Pod {
		limits := v1.ResourceList{gpu: *resource.NewQuantity(gpus, resource.DecimalSI)}
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, UID: types.UID(uid)},
			Spec:       v1.PodSpec{NodeName: "node-0", Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: limits}}}},
		}
	}
	leaving := pod("team-a", "1", 48)
	leaving.DeletionTimestamp = &metav1.Time{}
	tests := map[string]struct {
		pods []*v1.Pod
		want string
	}{
		"at the limit":             {[]*v1.Pod{pod("team-a", "1", 48)}, ""},
		"above it":                 {[]*v1.Pod{pod("team-a", "1", 48), pod("team-a", "2", 1)}, "team-a held 49 GPUs, its limit is 48"},
		"one goes, another comes":  {[]*v1.Pod{pod("team-a", "1", 48), leaving, pod("team-a", "2", 48)}, ""},
		"more than the pool gives": {[]*v1.Pod{pod("team-a", "1", 48), pod("team-b", "2", 9)}, "the tenants held 57 GPUs, the pool gives 56"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			w := &watch{pods: map[types.UID]held{}, ended: map[string]int{}}
			for _, p := range tc.pods {
				w.see(p, false)
			}
			if wrong, _ := w.verdict(); strings.Join(wrong, "; ") != tc.want {
				t.Errorf("said %q, want %q", wrong, tc.want)
			}
		})
	}
}
