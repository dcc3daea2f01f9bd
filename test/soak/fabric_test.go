// SPDX-License-Identifier: Apache-2.0

package soak

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

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	spineLabel, rackLabel = "example.com/spine", "topology.kubernetes.io/rack"
	// racks is the number of racks, in two spines, each with three or four of the nodes.
	racks = 4
	// labelWriter owns the labels of nodes, so that a checker sees when they changed.
	labelWriter = "soak-labels"

	clusterTopology = `{
  "apiVersion": "topology.nvtopo.dev/v1alpha1", "kind": "ClusterTopology", "metadata": {"name": "default"},
  "spec": {
    "levels": [
      {"name": "spine", "nodeLabel": "example.com/spine", "bandwidthGBps": "50", "latencyMicros": "500"},
      {"name": "rack", "nodeLabel": "topology.kubernetes.io/rack", "bandwidthGBps": "100", "latencyMicros": "100"}
    ],
    "root": {"bandwidthGBps": "50", "latencyMicros": "500"}
  }
}`
)

// makeFabric describes racks and spines, and installs PodGroups by the definition that scheduler-plugins
// ships.
func (e *testEnv) makeFabric(t *testing.T) {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON([]byte(clusterTopology)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.dyn.Resource(v1alpha1.ClusterTopologyGVR).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/scheduler-plugins").Output()
	if err != nil {
		t.Fatalf("finding the module: %v", err)
	}
	const file = "scheduling.x-k8s.io_podgroups.yaml"
	crd, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "bases", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cluster.ApplyManifests(t.Context(), fstest.MapFS{file: {Data: crd}}); err != nil {
		t.Fatal(err)
	}
}

// labelsIn returns the labels of the nodes of a rack.
func labelsIn(rack int) map[string]string {
	return map[string]string{spineLabel: fmt.Sprintf("spine-%d", rack*2/racks), rackLabel: fmt.Sprintf("rack-%d", rack)}
}

// rack returns the machine's rack.
func (b *box) rack() int { return b.index * racks / defaultNodes }

// relabel gives the node the labels of another rack for a while, or none.
func (b *box) relabel(ctx context.Context, o *op) error {
	labels := labelsIn((b.rack() + 1 + int(o.Draw%(racks-1))) % racks)
	if o.Kind == opRackLost {
		labels = map[string]string{}
	}
	if err := b.label(ctx, labels); err != nil {
		return err
	}
	b.w.lapse(ctx, o.Lag)
	return b.label(ctx, labelsIn(b.rack()))
}

// label sets the labels of the fabric; labels that are not given are removed.
func (b *box) label(ctx context.Context, labels map[string]string) error {
	all := map[string]*string{spineLabel: nil, rackLabel: nil}
	for k, v := range labels {
		all[k] = &v
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": all}})
	if err != nil {
		return err
	}
	return b.w.try(ctx, "label "+b.name, func(ctx context.Context) error {
		_, err := b.w.kube.CoreV1().Nodes().Patch(ctx, b.name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: labelWriter})
		return gone(err)
	})
}

// domains returns the names of nodes by their domain at a level; all in one for no level.
func domains(nodes []v1.Node, level string) map[string][]string {
	out := map[string][]string{}
	for i := range nodes {
		l, domain := nodes[i].Labels, ""
		switch level {
		case "spine":
			domain = l[spineLabel]
		case "rack":
			domain = l[spineLabel] + "/" + l[rackLabel]
		}
		out[domain] = append(out[domain], nodes[i].Name)
	}
	return out
}
