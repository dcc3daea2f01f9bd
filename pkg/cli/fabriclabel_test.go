// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// fakeCluster is an API server with some nodes, and lists by path.
type fakeCluster struct {
	mu      sync.Mutex
	nodes   map[string]map[string]string // node -> labels
	lists   map[string]string            // path -> what is there
	patched []string
	config  string // kubeconfig
}

// newFakeCluster reads lines of a node and its labels.
func newFakeCluster(t *testing.T, nodes string) *fakeCluster {
	t.Helper()
	c := &fakeCluster{nodes: map[string]map[string]string{}, lists: map[string]string{}}
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		labels := map[string]string{}
		for _, f := range fields[1:] {
			k, v, _ := strings.Cut(f, "=")
			labels[k] = v
		}
		c.nodes[fields[0]] = labels
	}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.config = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c}}]}", server.URL)
	if err := os.WriteFile(c.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	node, isNode := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	switch {
	case r.Method == http.MethodPatch && isNode:
		c.patch(w, r, node)
	case r.URL.Path == "/api/v1/nodes":
		list := v1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}}
		for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
			list.Items = append(list.Items, *testobj.Node(name).UID("uid-" + name).Labels(c.nodes[name]).Obj())
		}
		_ = json.NewEncoder(w).Encode(list)
	case c.lists[r.URL.Path] != "":
		fmt.Fprint(w, c.lists[r.URL.Path])
	default:
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}
}

func (c *fakeCluster) patch(w http.ResponseWriter, r *http.Request, node string) {
	var body struct {
		Metadata struct {
			UID    string
			Labels map[string]*string
		}
	}
	if json.NewDecoder(r.Body).Decode(&body) != nil || body.Metadata.UID != "uid-"+node || r.URL.Query().Get("fieldManager") != labelManager {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Conflict","code":409}`)
		return
	}
	c.patched = append(c.patched, node)
	for k, v := range body.Metadata.Labels {
		if v == nil {
			delete(c.nodes[node], k)
		} else {
			c.nodes[node][k] = *v
		}
	}
	fmt.Fprint(w, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"x"}}`)
}

// labels returns all nodes with their labels.
func (c *fakeCluster) labels() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		b.WriteString(name)
		for _, k := range slices.Sorted(maps.Keys(c.nodes[name])) {
			b.WriteString(" " + k + "=" + c.nodes[name][k])
		}
		b.WriteString("\n")
	}
	return b.String()
}

const (
	twoSwitches = "node,switch\nn0,s0\nn1,s0\nn2,s1\nn3,s1\ngone,s1\n"
	rackTable   = "node,rack\nn0,r0\nn1,r0\nn2,r1\n"
	spineObject = `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"ClusterTopology","metadata":{"name":"default"},` +
		`"spec":{"levels":[{"name":"core","nodeLabel":"c"},{"name":"leaf","nodeLabel":"l"}]}}`
)

func TestFabricLabel(t *testing.T) {
	const rack = "topology.kubernetes.io/rack"
	cases := map[string]struct {
		nodes      string
		file       string
		topology   string // the cluster's
		flags      string
		want       string // of the output; not checked if empty
		wantLabels string // afterwards; unchanged if empty
		wantCode   int
		wantError  string
	}{
		"a dry run of switches": {
			nodes: "n0\nn1 a=b\nn2 topology.kubernetes.io/switch=s1\nn9\n", file: twoSwitches,
			want: `NODE  LABEL                          NOW  NEW  ACTION
n0    topology.kubernetes.io/switch  -    s0   set
n1    topology.kubernetes.io/switch  -    s0   set
Not in the cluster: n3, gone
2 labels to write, 1 are right. Nothing was written.
`,
		},
		"switches are applied": {
			nodes: "n0\nn1 a=b\n", file: twoSwitches, flags: "--apply --label switch=example.com/leaf",
			want: `NODE  LABEL             NOW  NEW  ACTION
n0    example.com/leaf  -    s0   set
n1    example.com/leaf  -    s0   set
Not in the cluster: n2, n3, gone
2 labels written, 0 were right.
`,
			wantLabels: "n0 example.com/leaf=s0\nn1 a=b example.com/leaf=s0\n",
		},
		"the cluster's own levels": {
			nodes: "n0\n", file: "node,core,leaf\nn0,core,s0\n", topology: spineObject, flags: "--apply", wantLabels: "n0 c=core l=s0\n",
		},
		"a table is applied": {
			nodes: "n0\nn1\nn2 " + rack + "=r1\n", file: rackTable, flags: "--apply",
			wantLabels: "n0 " + rack + "=r0\nn1 " + rack + "=r0\nn2 " + rack + "=r1\n",
		},
		"another value stops everything": {
			nodes: "n0\nn1 " + rack + "=r7\n", file: rackTable, flags: "--apply -o json", wantCode: ExitNoAnswer, wantError: "--overwrite",
			want: `{"applied":false,"levels":[{"level":"rack","label":"topology.kubernetes.io/rack"}],"changes":[` +
				`{"node":"n0","label":"topology.kubernetes.io/rack","to":"r0","action":"set"},` +
				`{"node":"n1","label":"topology.kubernetes.io/rack","from":"r7","to":"r0","action":"differs"}],"unchanged":0,"unknown":["n2"]}` + "\n",
		},
		"labels that the file does not have stay": {
			nodes: "n0\nother " + rack + "=r7\n", file: rackTable, flags: "--apply", wantLabels: "n0 " + rack + "=r0\nother " + rack + "=r7\n",
		},
		"and are replaced and removed with --overwrite": {
			nodes: "n0 " + rack + "=r7\nother a=b " + rack + "=r7\n", file: rackTable, flags: "--apply --overwrite",
			wantLabels: "n0 " + rack + "=r0\nother a=b\n",
		},
		"nothing to do": {
			nodes: "n0 " + rack + "=r0\n", file: rackTable, flags: "--apply", want: "Not in the cluster: n1, n2\n0 labels written, 1 were right.\n",
		},
		"a level without a label": {
			nodes: "n0\n", file: "node,row\nn0,a\n", wantCode: ExitInput, wantError: `no label is known for level "row"`,
		},
		"what is no tree": {nodes: "n0\n", file: "node,zone,rack\nn0,,r0\n", wantCode: ExitInput, wantError: `node "n0": level "zone"`},
		"a node twice":    {nodes: "n0\n", file: "node,rack\nn0,a\nn0,b\n", wantCode: ExitInput, wantError: `node "n0"`},
		"a name that no label has": {
			nodes: "n0\n", file: "node,rack\nn0,a b\n", wantCode: ExitInput, wantError: `node "n0": rack "a b" cannot be a label's value`,
		},
		"a label that is none":   {nodes: "n0\n", file: rackTable, flags: "--label rack", wantCode: ExitUsage, wantError: "want LEVEL=LABEL"},
		"a label for two":        {nodes: "n0\n", file: rackTable, flags: "--label rack=a --label row=a", wantCode: ExitUsage, wantError: "is there twice"},
		"a key that no node has": {nodes: "n0\n", file: rackTable, flags: "--label rack=a/b/c", wantCode: ExitUsage, wantError: "--label"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newFakeCluster(t, tc.nodes)
			if tc.topology != "" {
				c.lists["/apis/topology.nvtopo.dev/v1alpha1/clustertopologies/default"] = tc.topology
			}
			before := c.labels()
			got, err := run(t, tc.file, append([]string{"fabric", "label", "--kubeconfig", c.config, "--fabric", "-"}, strings.Fields(tc.flags)...)...)
			if ExitCode(err) != tc.wantCode {
				t.Fatalf("exit code %d (%v), want %d", ExitCode(err), err, tc.wantCode)
			}
			if err != nil && !strings.Contains(err.Error(), tc.wantError) {
				t.Errorf("error %v, want %q in it", err, tc.wantError)
			}
			if tc.want != "" {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("(-want,+got):\n%s", diff)
				}
			}
			want := tc.wantLabels
			if want == "" {
				want = before
			}
			if diff := cmp.Diff(want, c.labels()); diff != "" {
				t.Errorf("labels (-want,+got):\n%s", diff)
			}
			if (tc.wantLabels != "") != (len(c.patched) > 0) {
				t.Errorf("written: %v", c.patched)
			}
			written := len(c.patched)
			if _, err := run(t, tc.file, append([]string{"fabric", "label", "--kubeconfig", c.config, "--fabric", "-"}, strings.Fields(tc.flags)...)...); ExitCode(err) != tc.wantCode {
				t.Errorf("the second time: %v", err)
			}
			if len(c.patched) != written {
				t.Errorf("written once more: %v", c.patched[written:])
			}
		})
	}
}

func TestFabricLabelFlags(t *testing.T) {
	for name, tc := range map[string]struct{ flags, want string }{
		"no file":            {"", "--fabric is needed"},
		"two sets of labels": {"--fabric a --label a=b --topology x", "cannot both be given"},
		"one input twice":    {"--fabric - --topology -", "standard input"},
		"an unknown form":    {"--fabric a -o table", "--output"},
	} {
		_, err := run(t, "", append([]string{"fabric", "label"}, strings.Fields(tc.flags)...)...)
		if ExitCode(err) != ExitUsage || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
