// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/testkit"
	"github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/manifests"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// TestClusterTopology checks that the API server admits every example and refuses invalid objects, and
// that the scheduler reports the result for spec and labels in the status.
func TestClusterTopology(t *testing.T) {
	l := newTestEnv(t, devcluster.Config{})
	l.install(t)
	l.node(t, "n1", "dgx-h100")
	l.node(t, "n2", "dgx-h100")
	l.startScheduler(t, profile{name: preBindProfile, write: "PreBind"})
	cts := l.dynamic(t).Resource(v1alpha1.ClusterTopologyGVR)
	t.Run("examples are admitted", func(t *testing.T) { admitsExamples(t, cts) })
	t.Run("what is none is refused", func(t *testing.T) { refusesNone(t, cts) })
	t.Run("conditions follow labels and spec", func(t *testing.T) { l.testFabricConditions(t, cts) })
}

func topologyObject(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

func admitsExamples(t *testing.T, cts dynamic.ResourceInterface) {
	t.Helper()
	files, err := fs.Glob(manifests.FS, "examples/fabric/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("examples: %v, %v", files, err)
	}
	for _, file := range files {
		text, err := manifests.FS.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		strict := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict}
		if _, err := cts.Create(t.Context(), topologyObject(t, string(text)), strict); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func refusesNone(t *testing.T, cts dynamic.ResourceInterface) {
	t.Helper()
	const object = "apiVersion: topology.nvtopo.dev/v1alpha1\nkind: ClusterTopology\nmetadata: {name: %s}\nspec: {levels: [%s], excluded: [%s]}"
	for name, tc := range map[string]struct{ name, levels, excluded, want string }{
		"another name":      {name: "second", want: "named default"},
		"a level twice":     {levels: "{name: a, nodeLabel: a}, {name: a, nodeLabel: b}", want: "spec.levels: Invalid value"},
		"a link in Gb/s":    {levels: "{name: a, nodeLabel: a, bandwidthGBps: 800Gb/s}", want: `spec.levels[0].bandwidthGBps: Invalid value: "800Gb/s": bandwidthGBps: write a number of GB/s without a unit: 100 for 100GB/s, or an eighth, "12.5", for 100Gb/s or 100Gbps`},
		"a link in Gb":      {levels: "{name: a, nodeLabel: a, bandwidthGBps: 400Gb}", want: "write a number of GB/s without a unit"},
		"a fraction":        {levels: "{name: a, nodeLabel: a, bandwidthGBps: 12.5}", want: "spec.levels[0].bandwidthGBps"},
		"an unknown level":  {levels: "{name: a, nodeLabel: a}", excluded: "{level: b, domain: x}", want: "spec.excluded"},
		"the level cluster": {levels: "{name: cluster, nodeLabel: a}", want: "spec.levels[0].name"},
	} {
		_, err := cts.Create(t.Context(), topologyObject(t, fmt.Sprintf(object, cmp.Or(tc.name, "default"), tc.levels, tc.excluded)),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q in it", name, err, tc.want)
		}
	}
}

func (e *testEnv) testFabricConditions(t *testing.T, cts dynamic.ResourceInterface) {
	t.Helper()
	label := func(node, body string) {
		t.Helper()
		if _, err := e.client.CoreV1().Nodes().Patch(t.Context(), node, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	says := func(what string, want ...string) {
		t.Helper()
		testkit.Eventually(t, waitLimit, what, func(ctx context.Context) (bool, string) {
			u, err := cts.Get(ctx, v1alpha1.ClusterTopologyName, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			var ct v1alpha1.ClusterTopology
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &ct); err != nil {
				return false, err.Error()
			}
			got := []string{fmt.Sprintf("nodes %d", ct.Status.Nodes)}
			for _, d := range ct.Status.Domains {
				got = append(got, fmt.Sprintf("%s %d", d.Level, d.Domains))
			}
			for _, c := range ct.Status.Conditions {
				got = append(got, c.Type+" "+string(c.Status))
			}
			return ct.Status.ObservedGeneration == ct.Generation && slices.Equal(got, want), fmt.Sprint(got, ct.Status.Conditions)
		})
	}
	const spec = "apiVersion: topology.nvtopo.dev/v1alpha1\nkind: ClusterTopology\nmetadata: {name: default}\n" +
		"spec: {levels: [{name: spine, nodeLabel: example.com/spine}, {name: rack, nodeLabel: example.com/rack, bandwidthGBps: '12.5'}]}"
	if _, err := cts.Create(t.Context(), topologyObject(t, spec), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	says("no labels yet", "nodes 2", "spine 0", "rack 0", "Ready True", "NotATree False", "LabelsMissing True")
	label("n1", `{"metadata":{"labels":{"example.com/spine":"s0","example.com/rack":"r0"}}}`)
	label("n2", `{"metadata":{"labels":{"example.com/rack":"r0"}}}`)
	says("a rack in no spine", "nodes 2", "spine 1", "rack 1", "Ready True", "NotATree True", "LabelsMissing False")
	shown := e.labelFrom(t, "node,spine,rack\nn1,s0,r0\nn2,s1,r1\n")
	says("all labels", "nodes 2", "spine 2", "rack 2", "Ready True", "NotATree False", "LabelsMissing False")
	exclusion := []byte(`{"spec":{"excluded":[{"level":"rack","domain":"r9"}]}}`)
	if _, err := cts.Patch(t.Context(), v1alpha1.ClusterTopologyName, types.MergePatchType, exclusion, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	shown.Say("A domain is taken out that is not there.")
	shown.Run(t, "fabric", "show")
	shown.Compare(t)
	says("an exclusion of nobody", "nodes 2", "spine 2", "rack 2", "Ready False", "NotATree False", "LabelsMissing False")
}

// labelFrom labels the nodes with the command: a dry run, then for good. n2 is in another rack than its
// label.
func (e *testEnv) labelFrom(t *testing.T, table string) *transcript.Session {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fabric.csv")
	if err := os.WriteFile(path, []byte(table), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := transcript.New("fabric", "--kubeconfig", e.Kubeconfig())
	shown.Hide(regexp.QuoteMeta(filepath.Dir(path)+"/"), "")
	shown.Say("Two nodes whose racks and spines are labels; the label of n2 is wrong. A table knows better.")
	shown.File(path, table)
	label := []string{"fabric", "label", "--fabric", path}
	if out := shown.Run(t, append(label, "--apply")...); !strings.Contains(out, "n2    example.com/rack   r0   r1   differs") || !strings.Contains(out, "nvtopo: ") {
		t.Errorf("without --overwrite:\n%s", out)
	}
	if out := shown.Run(t, append(label, "--apply", "--overwrite")...); !strings.Contains(out, "2 labels written, 2 were right.") {
		t.Errorf("with --overwrite:\n%s", out)
	}
	shown.Run(t, "fabric", "show", "--show-nodes")
	return shown
}
