// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// savedCluster writes a cluster into a file, as kubectl would.
func savedCluster(t *testing.T, c *viewtest.Cluster) (file string) {
	t.Helper()
	data, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "cluster.json")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func sampleCluster(t *testing.T) (file string) {
	t.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return savedCluster(t, c)
}

// clusterTranscripts are the commands of the page, with the file that each output is compared with.
var clusterTranscripts = map[string]string{
	"top": "top", "topology-group": "topology -g rack,pod", "defrag": "defrag", "get-pods": "get pods -A",
}

func TestClusterGoldenOutputs(t *testing.T) {
	from := " --from " + sampleCluster(t)
	cases := map[string]string{
		"top-wide": "top -o wide" + from, "top-json": "top -o json" + from, "top-yaml": "top -o yaml" + from,
		"topology": "topology" + from, "topology-node": "topology v100-0" + from,
		"topology-json": "topology -g rack -o json" + from, "topology-node-json": "topology pcie-0 -o json" + from, "topology-stale": "topology old-0" + from,
		"defrag-8": "defrag -n 8" + from, "defrag-json": "defrag -o json" + from,
		"top-linked": "top --min-link NV12" + from, "defrag-linked": "defrag --min-link NV12" + from,
		"get-pods-json":    "get pods -n default --state running -o json" + from,
		"get-pods-pending": "get pods -A -o wide --from testdata/explain.yaml", "get-pods-none": "get pods -n nobody" + from, "help-get-pods": "get pods --help",
		"help-top": "top --help", "help-topology": "topology --help", "help-defrag": "defrag --help",
	}
	for name, line := range clusterTranscripts {
		cases[name] = line + from
	}
	checkGolden(t, cases)
}

// TestTranscriptPage: the transcripts in docs/cli.md are the commands' output.
func TestTranscriptPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := maps.Clone(clusterTranscripts)
	shown["explain-linked"] = "explain -n team trainer" // TestGoldenOutputs compares it
	for name, line := range shown {
		want, err := os.ReadFile(filepath.Join("testdata", "golden", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "$ nvtopo "+line+"\n"+strings.TrimRight(string(want), "\n")+"\n") {
			t.Errorf("docs/cli.md does not have what nvtopo %s prints:\n%s", line, want)
		}
	}
}

// TestNoScheduler: top and get pods report that no scheduler leads, and how to find the reason; also if no
// pod is listed.
func TestNoScheduler(t *testing.T) {
	const want = "Problem  no scheduler leads: Lease nvtopo-system/nvtopo-scheduler was last renewed at 2026-11-24T11:55:00Z; see why no scheduler runs: kubectl -n nvtopo-system get deploy,pods"
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	leads := savedCluster(t, c)
	c.Leases = append(c.Leases, coordinationv1.Lease{
		TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}, ObjectMeta: metav1.ObjectMeta{Namespace: "nvtopo-system", Name: diagnosis.ShippedLease},
		Spec: coordinationv1.LeaseSpec{LeaseDurationSeconds: new(int32(15)), HolderIdentity: new("pod-1_x"), RenewTime: new(metav1.NewMicroTime(c.Now.Add(-5 * time.Minute)))},
	})
	file := savedCluster(t, c)
	for _, line := range []string{"top", "top -o wide", "get pods -A", "get pods -n nobody"} {
		got := mustRun(t, "", append(strings.Fields(line), "--from", file)...)
		if n := strings.Count(got, want); n != 1 {
			t.Errorf("nvtopo %s says it %d times, want once:\n%s", line, n, got)
		}
		if got := mustRun(t, "", append(strings.Fields(line), "--from", leads)...); strings.Contains(got, "no scheduler") {
			t.Errorf("nvtopo %s where nothing tells who leads:\n%s", line, got)
		}
	}
	for line, want := range map[string]string{"top -o json": `"problems":["no scheduler leads: `, "get pods -A -o json": `"noScheduler":"no scheduler leads: `} {
		if got := mustRun(t, "", append(strings.Fields(line), "--from", file)...); strings.Count(got, want) != 1 {
			t.Errorf("nvtopo %s has %s %d times, want once", line, want, strings.Count(got, want))
		}
	}
}

// TestClusterCommandErrors: errors of cluster commands report the fault.
func TestClusterCommandErrors(t *testing.T) {
	from := " --from " + sampleCluster(t)
	for name, tc := range map[string]struct {
		line string
		code int
		want string
	}{
		"an unknown form":          {"top -o text", ExitUsage, "want table, wide, json or yaml"},
		"files and a cluster":      {"top --context c" + from, ExitUsage, "cannot be used with it"},
		"files that are watched":   {"top --watch" + from, ExitUsage, "--watch cannot be used with it"},
		"an interval of nothing":   {"top --watch --interval 0s", ExitUsage, "--interval 0s"},
		"a positional argument":    {"top x", ExitUsage, "flags only"},
		"two nodes":                {"topology a b", ExitUsage, "one node at most"},
		"a node nobody has":        {"topology nobody" + from, ExitInput, `no node "nobody"`},
		"a level nobody has":       {"topology -g row" + from, ExitUsage, `no level "row": want some of spine, rack, node, pod`},
		"levels of a node":         {"topology h100-0 -g rack" + from, ExitUsage, "--group-by"},
		"a picture of a cluster":   {"topology --svg x.svg" + from, ExitUsage, "name it"},
		"a picture nowhere":        {"topology h100-0 --svg /nonexistent/x.svg" + from, ExitInput, "--svg"},
		"another resource":         {"topology h100-0 --resource example.com/npu" + from, ExitInput, "no graph of example.com/npu"},
		"an unknown state":         {"get pods --state waiting" + from, ExitUsage, `--state "waiting": want pending, running, failing or ended`},
		"all and one namespace":    {"get pods -A -n x" + from, ExitUsage, "contradict"},
		"an unknown kind of list":  {"get nodes", ExitUsage, `unknown command "nodes"`},
		"an unknown link":          {"top --min-link FAST" + from, ExitUsage, "--min-link: "},
		"groups of one":            {"defrag -n 1" + from, ExitUsage, "--gpus 1"},
		"no moves":                 {"defrag --max-moves 0" + from, ExitUsage, "--max-moves 0"},
		"a file that is not there": {"defrag --from nowhere.yaml", ExitInput, "nowhere.yaml"},
	} {
		_, err := run(t, "", strings.Fields(tc.line)...)
		if ExitCode(err) != tc.code || err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v (code %d), want %q and %d", name, err, ExitCode(err), tc.want, tc.code)
		}
	}
}

// TestLinkDrawing: the links are drawn. The test reads the picture as XML and counts its elements.
func TestLinkDrawing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "node.svg")
	mustRun(t, "", "topology", "v100-0", "--svg", file, "--from", sampleCluster(t))
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	var text strings.Builder
	for d := xml.NewDecoder(bytes.NewReader(data)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			got[token.Name.Local]++
		case xml.CharData:
			text.Write(token)
		}
	}
	// 28 pairs and a line for each of NV2, NV1 and SYS; 8 GPUs and a pod.
	want := map[string]int{"svg": 1, "rect": 1, "line": 28 + 3, "circle": 8 + 1, "title": 8, "text": 1 + 16 + 3 + 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("elements (-want,+got):\n%s", diff)
	}
	for _, want := range []string{"v100-0, ", "GPU7", "unhealthy Xid79", "NV2, 50 GB/s", "default/train-1[0,1,2,3]"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

// TestColourColumns: colours keep the columns. A coloured table is the plain one with escapes in
// it.
func TestColourColumns(t *testing.T) {
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	v := clusterview.Of(&c.Objects, clusterview.Options{})
	var plain, coloured strings.Builder
	if err := errors.Join(writeTop(&plain, v, palette{}, true), writeTop(&coloured, v, palette{on: true}, true)); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(coloured.String(), "\x1b["); n < 40 {
		t.Errorf("%d escapes", n)
	}
	if diff := cmp.Diff(plain.String(), escapes.ReplaceAllString(coloured.String(), "")); diff != "" {
		t.Errorf("(-plain,+coloured):\n%s", diff)
	}
	if paletteFor(&plain).on {
		t.Error("colours for what is no terminal")
	}
}

// TestTop shows changes, nothing twice, and ends with its context.
func TestTop(t *testing.T) {
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	clk := clocktesting.NewFakeClock(c.Now)
	o := topping{out: "table", interval: time.Second, clock: clk}
	reads := 0
	read := func(context.Context) (*clusterview.View, error) {
		switch reads++; reads {
		case 3:
			c.AddPod("newcomer", "h100-0", 1, 7)
		case 5:
			stop()
			return nil, ctx.Err()
		}
		return clusterview.Of(&c.Objects, clusterview.Options{}), nil
	}
	go func() {
		for ctx.Err() == nil {
			if clk.HasWaiters() {
				clk.Step(time.Second)
			}
		}
	}()
	var out strings.Builder
	if err := o.follow(ctx, &out, read); err != nil {
		t.Fatalf("it ends with %v", err)
	}
	if got := strings.Count(out.String(), "NODE "); got != 2 || reads != 5 {
		t.Errorf("%d answers of %d readings, want 2 of 5:\n%s", got, reads, out.String())
	}
	failing := func(context.Context) (*clusterview.View, error) { return nil, errors.New("no route to host") }
	if err := o.follow(t.Context(), io.Discard, failing); err == nil || !strings.Contains(err.Error(), "no route") {
		t.Errorf("an error of a reading: %v", err)
	}
}
