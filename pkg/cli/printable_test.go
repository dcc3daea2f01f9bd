// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/placement/gangrequest"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
)

// hostile has the characters that a terminal acts upon: escapes in both forms, a carriage return, a
// backspace, DEL, NEL, a line that looks like one of the program's, and letters that change the direction.
const hostile = "x\x1b[2J\x1b]0;owned\x07\u009b31m\r\b\x7f\u0085\u2028\u202e\nFORGED row\ty"

// hostileCluster is the sample with a text wherever a node or a tenant can put one.
func hostileCluster(tb testing.TB, text string) *viewtest.Cluster {
	tb.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		tb.Fatal(err)
	}
	for i := range c.Topologies {
		t := &c.Topologies[i]
		for j := range t.Spec.GPUs {
			t.Spec.GPUs[j].Model = text
		}
		for j := range t.Spec.NICs {
			t.Spec.NICs[j].Name = fmt.Sprint(text, j)
		}
		t.Status.GPUHealth = []v1alpha1.GPUHealth{{ID: t.Spec.GPUs[1].ID, Healthy: false, Reason: text}, {ID: t.Spec.GPUs[2].ID, Healthy: true, Degraded: true, Reason: text}}
		t.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: text, Message: text}}
		t.Status.Summary = &v1alpha1.Summary{Interconnect: text}
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Labels["example.com/rack"] += text
		n.Spec.Taints = []v1.Taint{{Key: "k", Value: text, Effect: v1.TaintEffectPreferNoSchedule}}
		n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: "Evil", Status: v1.ConditionTrue, Reason: text, Message: text})
	}
	for i := range c.Pods {
		p := &c.Pods[i]
		p.Annotations[gangrequest.GangKey], p.Annotations["nvtopo.dev/movable"] = text, text
		p.Annotations["nvtopo.dev/decision"], p.Annotations["nvtopo.dev/placement"] = text, text
		p.OwnerReferences[0].Name = text
	}
	c.AddPod("evil"+text, "h100-1", 1, 6)
	waiting := c.AddPod("waiting", "", 8)
	waiting.Annotations["nvtopo.dev/gpu-model"], waiting.Annotations["nvtopo.dev/min-link"] = text, "NVLINK"
	waiting.Status = v1.PodStatus{Phase: v1.PodPending, Message: text, Reason: text, Conditions: []v1.PodCondition{{
		Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/6 nodes are available: " + text,
	}}}
	refused := c.AddPod("refused", "", 1)
	refused.Annotations["nvtopo.dev/min-link"] = text
	refused.Status.Phase = v1.PodPending
	return c
}

// overCluster are the commands about a cluster, each with the files FILE and SVG.
var overCluster = []string{
	"top --from FILE", "top -o wide --from FILE", "top -o json --from FILE", "top -o yaml --from FILE",
	"topology --from FILE", "topology -g rack,pod --from FILE", "topology -o json --from FILE", "topology -o yaml --from FILE",
	"topology v100-0 --from FILE --svg SVG", "topology h100-0 -o json --from FILE", "topology h100-0 -o yaml --from FILE", "topology old-0 --from FILE",
	"defrag --from FILE", "defrag -o json --from FILE", "check --from FILE", "check -o json --from FILE", "check -o yaml --from FILE",
	"explain waiting --from FILE", "explain waiting -o json --from FILE", "explain waiting -o yaml --from FILE",
	"explain refused --from FILE", "explain train-0 --from FILE", "explain infer-0 --from FILE", "explain nobody --from FILE", "topology nobody --from FILE",
}

// overNode are the commands about one machine, with its NodeGPUTopology in the file FILE.
var overNode = []string{
	"matrix -f FILE", "pick -n 2 -f FILE", "pick -n 2 -f FILE -o json", "pick -n 9 -f FILE", "groups -g 2 -f FILE", "estimate -f FILE --size 1GB", "affinity -f FILE --gpus 0",
	"export -f FILE", "export -f FILE --format configmap", "generate kubelet-config -f FILE", "generate docker -f FILE -n 1",
	"generate nccl-topo -f FILE --arch x86_64 --vendor AuthenticAMD",
}

// outputOf returns a command's output to both streams, and whether it is JSON or YAML.
func outputOf(tb testing.TB, line string) (out string, data bool) {
	tb.Helper()
	cmd := New(programName)
	var b bytes.Buffer
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	args := strings.Fields(line)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(tb.Context()); err != nil {
		b.WriteString(ErrorText(err) + "\n")
	}
	return b.String(), slices.Contains(args, "json") || slices.Contains(args, "yaml") || slices.Contains([]string{"export", "generate"}, args[0])
}

// checkPrintable checks that a terminal is given nothing but text in lines.
func checkPrintable(tb testing.TB, what, out string) {
	tb.Helper()
	for i, r := range out {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			tb.Errorf("%s: control character %U in %q", what, r, out[max(0, i-40):min(len(out), i+40)])
			return
		}
	}
}

// writtenFiles writes a cluster and one of its graphs into files.
func writtenFiles(tb testing.TB, c *viewtest.Cluster) (cluster, node, svg string) {
	tb.Helper()
	list, err := c.List()
	if err != nil {
		tb.Fatal(err)
	}
	graph, err := json.Marshal(c.Topology("v100-0"))
	if err != nil {
		tb.Fatal(err)
	}
	for _, data := range []*[]byte{&list, &graph} { // control characters as YAML takes them, too
		var b bytes.Buffer
		if _, err := (&jsonWriter{out: &b}).Write(*data); err != nil {
			tb.Fatal(err)
		}
		*data = b.Bytes()
	}
	dir := tb.TempDir()
	cluster, node, svg = filepath.Join(dir, "cluster.json"), filepath.Join(dir, "node.json"), filepath.Join(dir, "links.svg")
	if err := errors.Join(os.WriteFile(cluster, list, 0o600), os.WriteFile(node, graph, 0o600)); err != nil {
		tb.Fatal(err)
	}
	return cluster, node, svg
}

// TestHostileTexts: no command prints a control character of a node or a tenant, or a line that one
// of them wrote.
func TestHostileTexts(t *testing.T) {
	cluster, node, svg := writtenFiles(t, hostileCluster(t, hostile))
	shown := 0
	var without []string
	for _, line := range slices.Concat(overCluster, overNode) {
		file := cluster
		if slices.Contains(overNode, line) {
			file = node
		}
		out, data := outputOf(t, strings.NewReplacer("FILE", file, "SVG", svg).Replace(line))
		checkPrintable(t, line, out)
		if !data && strings.Contains(out, "\nFORGED") {
			t.Errorf("%s: a line is a stranger's:\n%s", line, out)
		}
		if strings.Contains(out, "FORGED") {
			shown++
		} else {
			without = append(without, line+": "+out)
		}
	}
	if shown < 20 {
		t.Errorf("%d outputs have the text at all: these were not a test: %s", shown, strings.Join(without, "\n"))
	}
	picture, err := os.ReadFile(svg)
	if err != nil {
		t.Fatal(err)
	}
	checkPrintable(t, "the picture", string(picture))
	if !strings.Contains(string(picture), "FORGED") {
		t.Error("the picture does not have the text at all")
	}
}

// FuzzForeignTexts puts any text wherever a node or a tenant can put one, and looks for control
// characters in the output of the commands.
func FuzzForeignTexts(f *testing.F) {
	f.Add(hostile)
	f.Add("NVIDIA H100 80GB HBM3")
	f.Add("\x1b[31mred\x1b[0m")
	f.Add("\xc2\x9b\xff\x9b\xc2")
	f.Fuzz(func(t *testing.T, text string) {
		cluster, node, svg := writtenFiles(t, hostileCluster(t, text))
		for _, line := range []string{"top -o wide --from FILE", "topology --from FILE", "topology v100-0 --from FILE --svg SVG", "explain waiting --from FILE", "check -o json --from FILE"} {
			out, _ := outputOf(t, strings.NewReplacer("FILE", cluster, "SVG", svg).Replace(line))
			checkPrintable(t, line, out)
		}
		for _, line := range []string{"matrix -f FILE", "export -f FILE"} {
			out, _ := outputOf(t, strings.ReplaceAll(line, "FILE", node))
			checkPrintable(t, line, out)
		}
		if picture, err := os.ReadFile(svg); err == nil { // there is none of what makes no graph
			checkPrintable(t, "the picture", string(picture))
		}
	})
}

// TestHostilePoolTexts: the same for texts of nodes and tenants in pools.
func TestHostilePoolTexts(t *testing.T) {
	record := used("a", "nvidia.com/gpu", hour(2, 0), hour(2, 1))
	record.Spec.Pod, record.Spec.Node, record.Spec.Model, record.Spec.Pool = hostile, hostile, hostile, hostile
	pool := poolv1alpha1.ComputePool{
		ObjectMeta: metav1.ObjectMeta{Name: hostile},
		Status:     poolv1alpha1.ComputePoolStatus{Phase: hostile, Shares: []poolv1alpha1.PoolShare{{Tenant: hostile, Queue: hostile}}},
	}
	invoice := poolv1alpha1.Invoice{Spec: poolv1alpha1.InvoiceSpec{InvoiceID: hostile, Currency: hostile, LineItems: []poolv1alpha1.LineItem{{Resource: hostile, Model: hostile}}}}
	bill := &accounting.Bill{NoPrices: hostile, Wrong: []string{hostile}, Held: []string{hostile}}
	for name, write := range map[string]func(io.Writer) error{
		"pools":    func(w io.Writer) error { return writePools(w, []poolv1alpha1.ComputePool{pool}) },
		"shares":   func(w io.Writer) error { return writeShares(w, []poolv1alpha1.ComputePool{pool}) },
		"sessions": func(w io.Writer) error { return writeSessions(w, []poolv1alpha1.UsageRecord{record}) },
		"invoices": func(w io.Writer) error { return writeInvoices(w, []poolv1alpha1.Invoice{invoice}) },
		"a bill":   func(w io.Writer) error { return writeBill(w, bill) },
	} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkPrintable(t, name, out.String())
		if strings.Contains(out.String(), "\nFORGED") || !strings.Contains(out.String(), "FORGED") {
			t.Errorf("%s: a line is a stranger's, or the text is not there at all:\n%s", name, out.String())
		}
	}
	asJSON := func(w io.Writer) error { return writeJSON(w, []poolv1alpha1.UsageRecord{record}) }
	for name, write := range map[string]func(io.Writer) error{"JSON": asJSON, "YAML": func(w io.Writer) error { return asYAML(w, asJSON) }} {
		var out strings.Builder
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		checkPrintable(t, name, out.String())
		var back []poolv1alpha1.UsageRecord
		if err := yaml.Unmarshal([]byte(out.String()), &back); err != nil || back[0].Spec.Model != hostile {
			t.Errorf("%s: %v, and the text is another one when it is read", name, err)
		}
	}
}

// TestPaintedCells: a coloured text contains no colours from elsewhere.
func TestPaintedCells(t *testing.T) {
	p := palette{on: true}
	var out table
	out.row(p.bad("a\x1b[32mb"), "c\x1b[31md", p.good(""), 7)
	var b strings.Builder
	if err := out.write(&b); err != nil {
		t.Fatal(err)
	}
	printf(&b, "%s|%-5s|%d|%v\n", p.warning("\x1b[0mx"), "\ty", 3, errors.New("z\nz"))
	const want = "\x1b[31ma\ufffd[32mb\x1b[0m  c\ufffd[31md    7\n\x1b[33m\ufffd[0mx\x1b[0m|\ufffdy   |3|z\ufffdz\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

// TestJSONControls: JSON has escapes for the characters that a terminal acts upon, and is the same when it
// is read, however it is cut into pieces.
func TestJSONControls(t *testing.T) {
	const text = "a\x7f\u0080é\u009f\u00a0ÂÂ\u0085\u2028b\x1b"
	data, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	for size := 1; size <= len(data); size++ {
		var out strings.Builder
		w := &jsonWriter{out: &out}
		for rest := data; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := w.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		checkPrintable(t, fmt.Sprint(size, " bytes at a time"), out.String())
		var back string
		if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back != text {
			t.Errorf("%d bytes at a time: %q, %v, want %q", size, back, err, text)
		}
	}
}

// TestPrintingFunctions: texts for people are written by printf and by the rows of tables. The functions
// of fmt would print them unchanged.
func TestPrintingFunctions(t *testing.T) {
	allowed := map[string]string{
		"printable.go": "it is what cleans",
		"svg.go":       "texts in a picture are escaped",
		"check.go":     "YAML escapes control characters", "whatif.go": "YAML escapes control characters",
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	looked := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || allowed[file] != "" {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			s, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !strings.HasPrefix(s.Sel.Name, "Fprint") {
				return true
			}
			looked++
			for _, arg := range call.Args[1:] {
				if _, literal := arg.(*ast.BasicLit); !literal {
					t.Errorf("%s: fmt.%s prints what may be a stranger's: use printf", set.Position(call.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	}
	if looked < 20 {
		t.Errorf("%d calls were looked at: these were not a test", looked)
	}
}
