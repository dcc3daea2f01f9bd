// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// checkedPod is a bound pod of the shipped profile with one GPU of node n.
func checkedPod(name, gpu string) string {
	text := fmt.Sprintf(`{"version":1,"node":"n","podUID":"uid-%s","assumed":"2026-11-21T12:00:00Z","enforced":false,
	"containers":[{"name":"main","resource":"nvidia.com/gpu","gpus":[%q]}]}`, name, gpu)
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":"default","uid":"uid-%s","annotations":{%q:%q}},
	"spec":{"schedulerName":"topology-aware-scheduler","nodeName":"n","containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`,
		name, name, allocation.Key, text)
}

func listOf(version, kind string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"resourceVersion":"7"},"items":[%s]}`, version, kind, strings.Join(items, ","))
}

const (
	checkedNode  = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"node-n"}}`
	checkedGraph = `{"apiVersion":"topology.nvtopo.dev/v1alpha1","kind":"NodeGPUTopology","metadata":{"name":"n","uid":"t"},
	"spec":{"nodeUID":"node-n","gpus":[{"id":"GPU-0","index":0,"numaNode":0},{"id":"GPU-1","index":1,"numaNode":0}],"numaNodes":[{"id":0,"cpus":"0-7"}],
	"linkKinds":[{"name":"PIX","class":"PIX","bandwidth":"24G"}],"linkRows":["PIX"]}}`
)

// checkedCluster serves these pods on one node, and a scheduler's state to requests with the token, and
// returns the arguments for it.
func checkedCluster(t *testing.T, d *diagnosis.State, pods ...string) (args []string, scheduler string) {
	t.Helper()
	mux := http.NewServeMux()
	serve := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Authorization") != "Bearer secret" {
				http.Error(w, "no", http.StatusUnauthorized)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(body))
		})
	}
	for i, p := range pods { // the API server names a kind once for a list
		pods[i] = strings.Replace(p, `"kind":"Pod",`, "", 1)
	}
	serve("/api/v1/pods", listOf("v1", "PodList", pods...))
	serve("/api/v1/nodes", listOf("v1", "NodeList", checkedNode))
	serve("/apis/coordination.k8s.io/v1/namespaces/nvtopo-system/leases", listOf("coordination.k8s.io/v1", "LeaseList", fmt.Sprintf(
		`{"metadata":{"name":"exporter-n","namespace":"nvtopo-system","annotations":{"nvtopo.dev/version":"v1"}},"spec":{"renewTime":%q,"leaseDurationSeconds":3600}}`, time.Now().UTC().Format(metav1.RFC3339Micro))))
	serve("/apis/topology.nvtopo.dev/v1alpha1/nodegputopologies", listOf("topology.nvtopo.dev/v1alpha1", "NodeGPUTopologyList", checkedGraph))
	if d != nil {
		body, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		serve(diagnosis.Path, string(body))
	}
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}],
users: [{name: good, user: {token: secret}}, {name: bad, user: {token: wrong}}, {name: certified, user: {}}],
contexts: [{name: c, context: {cluster: c, user: good}}, {name: bad, context: {cluster: c, user: bad}}, {name: none, context: {cluster: c, user: certified}}]}`, server.URL, ca), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"check", "--kubeconfig", config, "--scheduler-ca", ca, "--scheduler", server.URL}, server.URL
}

func believed() *diagnosis.State {
	return &diagnosis.State{
		Version: diagnosis.Version, Name: "s", At: time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC), Synced: true,
	}
}

func TestCheckCluster(t *testing.T) {
	leaking := believed()
	leaking.Claims = []diagnosis.Reservation{{Pod: "default/gone", Node: "n", UID: "gone", Phase: "doubtful", Since: leaking.At.Add(-time.Hour), GPUs: []string{"GPU-1"}}}
	cases := map[string]struct {
		state *diagnosis.State
		pods  []string
		code  int
		want  []string // in the output
	}{
		"nothing wrong": {
			state: believed(), pods: []string{checkedPod("a", "GPU-0"), checkedPod("b", "GPU-1")}, code: ExitOK,
			want: []string{"0 violations, 0 pending, 0 notes", "2 live GPU pods (2 allocations compared with 1 graphs", "1 schedulers"},
		},
		"one GPU twice": {
			state: believed(), pods: []string{checkedPod("a", "GPU-0"), checkedPod("b", "GPU-0")}, code: ExitViolations,
			want: []string{"VIOLATION  shared-by-annotation\n  Pod default/a (uid-a)\n  Pod default/b (uid-b)\n  Node n\n  field metadata.annotations[nvtopo.dev/allocation]\n", "GPU-0"},
		},
		"a claim of a pod that is gone": {
			state: leaking, pods: []string{checkedPod("a", "GPU-0")}, code: ExitViolations,
			want: []string{"leaked-claim", "Pod default/gone (gone)", "Scheduler s"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			args, _ := checkedCluster(t, tc.state, tc.pods...)
			args = append(args, "--grace", "200ms")
			out, err := run(t, "", args...)
			if ExitCode(err) != tc.code {
				t.Fatalf("exit code %d (%v), want %d\n%s", ExitCode(err), err, tc.code, out)
			}
			for _, w := range tc.want {
				if !strings.Contains(out, w) {
					t.Errorf("output lacks %q:\n%s", w, out)
				}
			}
			for format, parse := range map[string]func([]byte, any) error{
				"json": json.Unmarshal, "yaml": func(b []byte, v any) error { return yaml.Unmarshal(b, v) },
			} {
				out, err := run(t, "", append(args, "-o", format)...)
				var r check.Report
				if perr := parse([]byte(out), &r); perr != nil || ExitCode(err) != tc.code || (len(r.Violations) > 0) != (tc.code != ExitOK) {
					t.Errorf("-o %s: exit code %d, %v\n%s", format, ExitCode(err), perr, out)
				}
			}
		})
	}
}

// TestCheckPending: a pending finding is checked again until it has lasted.
func TestCheckPending(t *testing.T) {
	late := believed()
	late.Nodes = []diagnosis.Node{{Name: "n", NodeUID: "node-n", Counts: true, Derived: &diagnosis.Usage{}}}
	args, _ := checkedCluster(t, late, checkedPod("a", "GPU-0"))
	out, err := run(t, "", append(args, "--grace", "0")...)
	if ExitCode(err) != ExitOK || !strings.Contains(out, "PENDING    derivation-differs") {
		t.Errorf("without waiting: exit code %d, want %d and what is pending:\n%s", ExitCode(err), ExitOK, out)
	}
	out, err = run(t, "", append(args, "--grace", "200ms")...)
	if ExitCode(err) != ExitViolations || !strings.Contains(out, "VIOLATION  derivation-differs") {
		t.Errorf("after the grace: exit code %d, want %d and a violation:\n%s", ExitCode(err), ExitViolations, out)
	}
}

// hurried is a clock on which every wait is over at once.
type hurried struct {
	clock.Clock
	now time.Time
}

func (h *hurried) After(d time.Duration) <-chan time.Time {
	h.now = h.now.Add(d)
	c := make(chan time.Time, 1)
	c <- h.now
	return c
}

// TestCheckPendingOnly: only findings that were pending at first are waited for.
func TestCheckPendingOnly(t *testing.T) {
	const always = 1000
	// leak is a claim of a pod that is gone: pending, and a violation if it lasts.
	leak := func(uid string) diagnosis.Reservation {
		return diagnosis.Reservation{Pod: "default/" + uid, Node: "n", UID: types.UID(uid), Phase: "doubtful", GPUs: []string{uid}}
	}
	cases := map[string]struct {
		looks                              int // in which the first finding is seen
		churn                              bool
		wantLooks, wantViolations, wantNew int
	}{
		"nothing":                                {wantLooks: 1},
		"what lasts":                             {looks: always, wantLooks: 7, wantViolations: 1},
		"what lasts, and others in each look":    {looks: always, churn: true, wantLooks: 7, wantViolations: 1, wantNew: 1},
		"what is soon gone":                      {looks: 2, wantLooks: 3},
		"what is soon gone, with others by then": {looks: 2, churn: true, wantLooks: 3, wantNew: 1},
		"others in each look, and nothing lasts": {churn: true, wantLooks: 2, wantNew: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := &hurried{now: believed().At}
			c := &checking{grace: check.DefaultGrace, clock: h}
			looks := 0
			r, err := c.settle(t.Context(), check.NewChecker(c.grace), func(context.Context) (*check.World, error) {
				if looks++; looks > 20 {
					return nil, errors.New("it looks again and again")
				}
				d := believed()
				if looks <= tc.looks {
					d.Claims = append(d.Claims, leak("first"))
				}
				if tc.churn {
					d.Claims = append(d.Claims, leak(strconv.Itoa(looks)))
				}
				return &check.World{Objects: clusterobjects.Objects{Now: h.now, Schedulers: []diagnosis.State{*d}}}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			got := []int{looks, len(r.Violations), len(r.Pending)}
			if diff := cmp.Diff([]int{tc.wantLooks, tc.wantViolations, tc.wantNew}, got); diff != "" {
				t.Errorf("looks, violations, pending (-want +got):\n%s%v\n%v", diff, r.Violations, r.Pending)
			}
		})
	}
}

// TestCheckExitCode: a check that fails has its own exit code.
func TestCheckExitCode(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	args, url := checkedCluster(t, nil, checkedPod("a", "GPU-0"))
	old := believed()
	old.Version = 99
	newer, _ := checkedCluster(t, old)
	plain := args[:3]
	cases := map[string]struct {
		args []string
		want string
	}{
		"an argument":                       {[]string{"check", "x"}, "takes flags only"},
		"an unknown flag":                   {[]string{"check", "--x"}, "unknown flag"},
		"an unknown form":                   {append(plain[:len(plain):len(plain)], "-o", "text"), "want table, json or yaml"},
		"files and a cluster":               {append(plain[:len(plain):len(plain)], "--from", "x"), "--from reads files only"},
		"trust for no scheduler":            {append(plain[:len(plain):len(plain)], "--insecure-skip-tls-verify"), "go with --scheduler only"},
		"trust that contradicts itself":     {append(args[:len(args):len(args)], "--insecure-skip-tls-verify"), "contradict"},
		"a negative time":                   {append(plain[:len(plain):len(plain)], "--grace", "-1s"), "must not be negative"},
		"a cluster that refuses":            {append(args[:len(args):len(args)], "--context", "bad"), "list pods"},
		"a kubeconfig without a token":      {append(args[:len(args):len(args)], "--context", "none"), "--token-file"},
		"a scheduler that has no state":     {args, "404"},
		"a scheduler of a later version":    {newer, "version 99"},
		"a scheduler that is not trusted":   {append(plain[:len(plain):len(plain)], "--scheduler", url), "certificate"},
		"a scheduler's address without TLS": {append(plain[:len(plain):len(plain)], "--scheduler", "http://x:1"), "want https://host:port"},
		"a token file that is not there":    {append(args[:len(args):len(args)], "--token-file", "testdata/none"), "testdata/none"},
		"a file that is not there":          {[]string{"check", "--from", "testdata/none"}, "testdata/none"},
		"a folder without objects":          {[]string{"check", "--from", t.TempDir()}, "no .yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", tc.args...)
			if err == nil || ExitCode(err) != ExitUnchecked || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("exit code %d, want %d, and error %v, want %q\n%s", ExitCode(err), ExitUnchecked, err, tc.want, out)
			}
		})
	}
}

// TestTokenFile: the token of the file is sent to the scheduler instead of the kubeconfig's.
func TestTokenFile(t *testing.T) {
	args, _ := checkedCluster(t, believed())
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("wrong\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "", append(args, "--token-file", file)...); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("got %v, want 401 from the scheduler", err)
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	state, err := json.Marshal(believed())
	if err != nil {
		t.Fatal(err)
	}
	objects, err := yaml.JSONToYAML([]byte(listOf("v1", "List", checkedNode, checkedGraph, checkedPod("a", "GPU-0"), `{"apiVersion":"v1","kind":"Secret","data":{}}`)))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"cluster.yaml": string(objects) + "---\n" + checkedPod("b", "GPU-0") + "\n---\n", "state.json": string(state), "notes.txt": "not read",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range map[string][]string{
		"a folder": {"--from", dir}, "its files": {"--from", filepath.Join(dir, "cluster.yaml"), "--from", filepath.Join(dir, "state.json")},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "", append([]string{"check"}, args...)...)
			if ExitCode(err) != ExitViolations || !strings.Contains(out, "shared-by-annotation") || !strings.Contains(out, "and 1 schedulers") {
				t.Errorf("exit code %d (%v), want %d\n%s", ExitCode(err), err, ExitViolations, out)
			}
		})
	}
	if out, err := run(t, checkedPod("a", "GPU-0"), "check", "--from", "-"); err != nil || !strings.Contains(out, "1 live GPU pods") {
		t.Errorf("standard input: %v\n%s", err, out)
	}
	for name, text := range map[string]string{"not YAML": "a: [", "no object": "{}", "a pod that is none": `{"apiVersion":"v1","kind":"Pod","spec":7}`} {
		if _, err := run(t, text, "check", "--from", "-"); ExitCode(err) != ExitUnchecked {
			t.Errorf("%s: exit code %d (%v), want %d", name, ExitCode(err), err, ExitUnchecked)
		}
	}
}

// TestCheckHelp: the help lists the exit codes for notes, pending findings and violations.
func TestCheckHelp(t *testing.T) {
	const want = "Exit codes: 0 no violation, whatever notes and pending findings there are; 1 violations; 2 wrong usage, or it could not be checked."
	if help := strings.Join(strings.Fields(newCheck().Long), " "); !strings.Contains(help, want) {
		t.Errorf("want %q in the help\n%s", want, help)
	}
}
