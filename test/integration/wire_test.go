// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestObjectOnWire has the JSON that the API server sends of a node's object,
// written by exporter and agent: each scheduler reads one of each node at its start,
// and again with each change.
func TestObjectOnWire(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	for name, tc := range map[string]struct {
		machine string
		most    int // bytes
	}{
		"8 GPUs with NVLinks between some pairs":      {"dgx1-v100", 6000},
		"8 GPUs behind NVSwitches and 12 adapters":    {"dgx-h100", 6000},
		"8 GPUs behind NVSwitches, 128 cores, 8 NUMA": {"dgx-a100", 6500},
		"8 GPUs without NVLink":                       {"l40s-8", 6000},
		"16 GPUs behind NVSwitches":                   {"dgx2", 9000},
	} {
		t.Run(name, func(t *testing.T) {
			spec := l.addNode(t, l.freshName(tc.machine), tc.machine)
			n := l.agentOf(t, spec.Name)
			l.publish(t, devcluster.ExporterOptions{Unenforced: true}, spec)
			n.start(t)
			data := l.sent(t, n)
			t.Logf("%s: %d bytes, of which %s", tc.machine, len(data), parts(t, data))
			if len(data) > tc.most {
				t.Errorf("%d bytes, want %d at most:\n%s", len(data), tc.most, data)
			}
		})
	}
}

// sent is a node's object as the API server sends it, when the agent has written its part.
func (e *testEnv) sent(t *testing.T, n *nodeUnderTest) []byte {
	t.Helper()
	testkit.Eventually(t, waitLimit, "the agent of "+n.name+" says whether it enforces", func(ctx context.Context) (bool, string) {
		obj, err := n.status(ctx)
		if err != nil {
			return false, err.Error()
		}
		return meta.FindStatusCondition(obj.Status.Conditions, v1alpha1.ConditionEnforced) != nil && obj.Status.Summary != nil, fmt.Sprint(obj.Status.Conditions)
	})
	data, err := e.client.Discovery().RESTClient().Get().
		AbsPath("/apis", v1alpha1.GroupName, v1alpha1.SchemeGroupVersion.Version, v1alpha1.Resource, n.name).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// parts tells the size of what an object has most of.
func parts(t *testing.T, data []byte) string {
	t.Helper()
	var obj struct {
		Metadata     struct{ ManagedFields json.RawMessage }
		Spec, Status map[string]json.RawMessage
	}
	if err := json.Unmarshal(data, &obj); err != nil {
		t.Fatal(err)
	}
	out := []string{fmt.Sprintf("managedFields %d", len(obj.Metadata.ManagedFields))}
	for _, half := range []map[string]json.RawMessage{obj.Spec, obj.Status} {
		for _, field := range []string{"gpus", "numaNodes", "linkKinds", "linkRows", "nics", "gpuHealth", "conditions"} {
			if v, ok := half[field]; ok {
				out = append(out, fmt.Sprintf("%s %d", field, len(v)))
			}
		}
	}
	return strings.Join(out, ", ")
}
