// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
)

const twoGPUs = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n" +
	"GPU0\t X \tNV4\t0-7\t0\n" +
	"GPU1\tNV4\t X \t8-15\t1\n"

const (
	twoNPUs = "\tNPU0       NPU1       CPU Affinity\nNPU0       X          HCCS       0-23\nNPU1       HCCS       X          0-23\n"
	twoDies = "= Link Type between two GPUs =\n       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n"
)

func write(t *testing.T, content string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func object(t *testing.T, kind string) string {
	t.Helper()
	top := v1alpha1.FromGraph("n1", "nvidia.com/gpu", uniform(t, 4, "NVIDIA H200", "NV18"))
	top.Kind, top.Spec.NodeUID = kind, "uid-1"
	top.Status.GPUHealth[1].Healthy, top.Status.GPUHealth[1].Reason = false, "Xid 79"
	b, err := yaml.Marshal(top)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestOpen: Open reads each kind of source.
func TestOpen(t *testing.T) {
	asJSON, err := yaml.YAMLToJSON([]byte(object(t, v1alpha1.Kind)))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		spec, resource       string
		wantGPUs, wantUsable int
		wantClass            string
	}{
		"a captured text":           {spec: "file:" + write(t, twoGPUs), wantGPUs: 2, wantUsable: 2, wantClass: "NV4"},
		"npu-smi's text":            {spec: "file:" + write(t, twoNPUs), resource: "huawei.com/Ascend910B", wantGPUs: 2, wantUsable: 2, wantClass: "HCCS1"},
		"rocm-smi's text":           {spec: "file:" + write(t, twoDies), resource: "amd.com/gpu", wantGPUs: 2, wantUsable: 2, wantClass: "XGMI1"},
		"an object in YAML":         {spec: "file:" + write(t, object(t, v1alpha1.Kind)), wantGPUs: 4, wantUsable: 3, wantClass: "NV18"},
		"an object in JSON":         {spec: "file:" + write(t, string(asJSON)), wantGPUs: 4, wantUsable: 3, wantClass: "NV18"},
		"a machine":                 {spec: "machine:dgx-h100", wantGPUs: 8, wantUsable: 8, wantClass: "NV18"},
		"a resource named outright": {spec: "file:" + write(t, object(t, v1alpha1.Kind)), resource: "nvidia.com/gpu", wantGPUs: 4, wantUsable: 3, wantClass: "NV18"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			src, err := Open(tc.spec, "n1", tc.resource, smi.Options{Model: "NVIDIA RTX A6000"})
			if err != nil {
				t.Fatal(err)
			}
			g, _, err := src.Graph(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if g.Len() != tc.wantGPUs || g.Healthy().Len() != tc.wantUsable || g.Link(0, 1).Class.String() != tc.wantClass {
				t.Errorf("%d GPUs, %d usable, 0-1 is %s; want %d, %d, %s",
					g.Len(), g.Healthy().Len(), g.Link(0, 1).Class, tc.wantGPUs, tc.wantUsable, tc.wantClass)
			}
		})
	}
}

// TestOpenErrors: Open refuses sources that it cannot read.
func TestOpenErrors(t *testing.T) {
	tests := map[string]struct{ spec, resource, want string }{
		"no kind of source":           {spec: "dgx-h100", want: "not nvml, machine:NAME or file:PATH"},
		"an empty name":               {spec: "machine:", want: "not nvml"},
		"an unknown machine":          {spec: "machine:abacus", want: "abacus"},
		"a missing file":              {spec: "file:/does/not/exist", want: "/does/not/exist"},
		"a cut text":                  {spec: "file:" + write(t, strings.Join(strings.SplitAfter(twoGPUs, "\n")[:2], "")), want: "GPU1"},
		"an object of another kind":   {spec: "file:" + write(t, object(t, "Node")), want: `kind is "Node"`},
		"an object with a wrong word": {spec: "file:" + write(t, object(t, v1alpha1.Kind)+"\nspek: {}\n"), want: "spek"},
		"NPUs as NVIDIA's GPUs":       {spec: "file:" + write(t, twoNPUs), want: `"npu-smi info -t topo", but the resource is nvidia.com/gpu: set --resource, for example to huawei.com/Ascend910`},
		"AMD's GPUs as NVIDIA's":      {spec: "file:" + write(t, twoDies), resource: "nvidia.com/gpu", want: "for example to amd.com/gpu"},
		"a cut table of rocm-smi":     {spec: "file:" + write(t, twoDies[:len(twoDies)-len("GPU1   XGMI         0\n")]), resource: "amd.com/gpu", want: "line 3, column 25: Link Type between two GPUs: row GPU1 is missing"},
		"another resource":            {spec: "file:" + write(t, object(t, v1alpha1.Kind)), resource: "amd.com/gpu", want: "no GPUs of resource amd.com/gpu"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			src, err := Open(tc.spec, "n1", tc.resource, smi.Options{})
			if err == nil {
				_, _, err = src.Graph(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want it to contain %q", err, tc.want)
			}
		})
	}
}

// TestUnknownsAreSaid: Ready names what pods may ask about and the source does not have.
func TestUnknownsAreSaid(t *testing.T) {
	both := strings.NewReplacer("\t0-7\t0\n", "\t0-15\t0-1\n", "\t8-15\t1\n", "\t0-15\t0-1\n").Replace(twoGPUs)
	tests := map[string]struct {
		spec, model             string
		wantReason, wantMessage string
	}{
		"a machine of the catalogue": {spec: "machine:dgx-h100", wantReason: "Read", wantMessage: "all GPUs were read"},
		"a text that has NUMA nodes": {spec: "file:" + write(t, twoGPUs), model: "NVIDIA A40", wantReason: "ReadWithProblems", wantMessage: "memory of GPU 0-1 is not known"},
		"a text in which all GPUs are near two NUMA nodes": {
			spec: "file:" + write(t, both), wantReason: "ReadWithProblems",
			wantMessage: "NUMA node of GPU 0-1 is not known; memory of GPU 0-1 is not known; model of GPU 0-1 is not known",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			src, err := Open(tc.spec, "n1", "", smi.Options{Model: tc.model})
			if err != nil {
				t.Fatal(err)
			}
			r := newTestEnv(t, Config{})
			kube, dyn := r.api.clients(t)
			if r.exporter, err = New(r.cfg, src, kube, dyn, WithClock(r.clk)); err != nil {
				t.Fatal(err)
			}
			r.publish(t)
			if c := readyOf(t, r.api.topology(t)); c.Reason != tc.wantReason || c.Message != tc.wantMessage {
				t.Errorf("Ready is %s: %q, want %s: %q", c.Reason, c.Message, tc.wantReason, tc.wantMessage)
			}
		})
	}
}

// TestFileReload: a file is read again each time.
func TestFileReload(t *testing.T) {
	path := write(t, twoGPUs)
	src, err := Open("file:"+path, "n1", "", smi.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, class := range []string{"NV4", "NV2"} {
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(twoGPUs, "NV4", class)), 0o600); err != nil {
			t.Fatal(err)
		}
		g, _, err := src.Graph(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := g.Link(0, 1).Class.String(); got != class {
			t.Errorf("class %s, want %s", got, class)
		}
	}
}

// Every machine of the catalogue survives being published and read back.
func TestCataloguePublishing(t *testing.T) {
	for _, name := range machine.Names() {
		t.Run(name, func(t *testing.T) {
			r := newTestEnv(t, Config{})
			src, err := Open("machine:"+name, "n1", "", smi.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if r.src.graph, _, err = src.Graph(t.Context()); err != nil {
				t.Fatal(err)
			}
			r.publish(t)
			graphs, err := r.api.topology(t).Graphs()
			if err != nil {
				t.Fatal(err)
			}
			if got, want := graphs["nvidia.com/gpu"].ClassKey(), r.src.graph.ClassKey(); got != want {
				t.Errorf("published as class %s, read as %s", got, want)
			}
			r.restart(t)
			r.expect(t, "after a restart", getNode, getTopology, putLease)
		})
	}
}
