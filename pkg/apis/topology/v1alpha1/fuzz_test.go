// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// FuzzGraphs reads arbitrary objects, also those that no API server would have
// admitted: a graph either comes out whole and within its limits, and reads back
// equal, or there is an error that names a field.
func FuzzGraphs(f *testing.F) {
	f.Add(`{"metadata":{"name":"n"},"spec":{"nodeUID":"u","numaNodes":[{"id":0,"cpus":"0-3"}],"gpus":[{"id":"GPU-a","index":0,"numaNode":0},` +
		`{"id":"GPU-b","index":1,"numaNode":-1}],"linkKinds":[{"name":"NV4","class":"NVLink","lanes":4,"bandwidth":"100G"}],"linkRows":["NV4"]}}`)
	f.Add(`{"spec":{"gpus":[{"id":"a","index":0,"numaNode":0,"memory":"1e400"}],"numaNodes":[{"id":0,"distances":[255]}]}}`)
	f.Add(`{"spec":{"gpus":[{"id":"a","index":0,"numaNode":-1}],"linkKinds":[{"name":"-","class":"SYS","bandwidth":"-0"}]}}`)
	f.Add(`{"spec":{"gpus":[{"id":"a","index":0,"numaNode":-1,"resource":"x/y"},{"id":"b","index":1,"numaNode":-1}],"numaNodes":[],` +
		`"linkKinds":[{"name":"x","class":"PIX","bandwidth":"9223372036854775807"}],"linkRows":["x"],"nics":[{"name":"m","distances":["PIX","SYS"]}]},` +
		`"status":{"gpuHealth":[{"id":"a","healthy":false,"reason":"\u0000\uffff"}]}}`)
	f.Add(`{"spec":{"gpus":[{"id":"a","index":0,"numaNode":-1},{"id":"b","index":1,"numaNode":0},{"id":"c","index":2,"numaNode":-1,"resource":"x/y"}],` +
		`"numaNodes":[{"id":0,"cpus":"0-3,8-11","threadsPerCore":2}],"linkKinds":[{"name":"NV2/PHB","class":"NVLink","lanes":2,"bandwidth":"50G","pcie":"PHB"}],` +
		`"linkRows":["NV2/PHB -","-"]}}`)
	f.Add(`{"spec":{"numaNodes":[{"id":0,"cpus":"0-4294967295"},{"id":1,"cpus":"8191","siblings":["0-8191"],"memory":"-1"}]}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var obj NodeGPUTopology
		if json.Unmarshal([]byte(text), &obj) != nil {
			return
		}
		var reader Reader
		graphs, numa, err := reader.Read(&obj)
		if err != nil {
			if !strings.Contains(err.Error(), "spec") {
				t.Errorf("the error names no field: %v", err)
			}
			return
		}
		again, shared, err := reader.Read(&obj)
		if diff := cmp.Diff(graphs, again, cmp.AllowUnexported(nvtopo.Graph{})); diff != "" || err != nil || shared != numa {
			t.Errorf("read again it is another, %v (-first,+again):\n%s", err, diff)
		}
		total := 0
		for res, g := range graphs {
			total += g.Len()
			checkGraph(t, g)
			checkRoundTrip(t, res, g)
		}
		if total != len(obj.Spec.GPUs) {
			t.Errorf("%d GPUs in the graphs, %d in the object", total, len(obj.Spec.GPUs))
		}
	})
}

func checkGraph(t *testing.T, g *nvtopo.Graph) {
	t.Helper()
	if g.Len() > nvtopo.MaxGPUs || len(g.NUMANodes) > maxNUMANodes {
		t.Fatalf("%d GPUs on %d NUMA nodes", g.Len(), len(g.NUMANodes))
	}
	for i := range g.Len() {
		if m := g.GPUs[i].Memory; m < 0 {
			t.Errorf("GPU %d has %d bytes", i, m)
		}
		for j := range i {
			if l := g.Link(i, j); l.Bandwidth < 1 || l.Bandwidth > maxBytesPerSecond/1000 || l.Latency < 1 || l != g.Link(j, i) {
				t.Errorf("link of %d and %d: %+v and %+v", i, j, l, g.Link(j, i))
			}
		}
	}
}

// checkRoundTrip writes a graph as the exporter does and reads it again.
func checkRoundTrip(t *testing.T, resource string, g *nvtopo.Graph) {
	t.Helper()
	data, err := json.Marshal(FromGraph("n", resource, g))
	if err != nil {
		t.Fatalf("a graph that was read cannot be written: %v", err)
	}
	var again NodeGPUTopology
	if err := json.Unmarshal(data, &again); err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, data)
	}
	graphs, err := again.Graphs()
	if err != nil {
		t.Fatalf("what was written cannot be read: %v\n%s", err, data)
	}
	if diff := cmp.Diff(g.ClassKey(), graphs[resource].ClassKey()); diff != "" {
		t.Errorf("the graph became one of another class (-first +again):\n%s\n%s", diff, data)
	}
}
