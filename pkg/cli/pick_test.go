// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nvtopo/nvtopo/internal/fixtures"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/oracle"
)

// pickJSON matches the whole output: these keys, in this order, on one line.
var pickJSON = regexp.MustCompile(`^\{"gpus":\[[0-9,]+\],"ring":\[[0-9,]+\],"ringBandwidthGBps":[0-9.]+,"linkClass":"[A-Z0-9]*",` +
	`"numaNodes":\[[-0-9,]+\],"residual":[0-9.]+,"pairSumGBps":[0-9.]+\}\n$`)

// TestPickBruteForce compares the output with the oracle, field by field, on every machine of the
// catalogue with up to eight GPUs.
func TestPickBruteForce(t *testing.T) {
	for _, name := range machine.Names() {
		m, err := machine.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		g, err := m.Graph()
		if err != nil {
			t.Fatal(err)
		}
		if g.Len() > 8 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := oracle.New(g)
			all := nvtopo.FullMask(g.Len())
			for _, free := range []nvtopo.Mask{all, all &^ 0b10, all &^ 0b1001} {
				for k := 1; k <= free.Len(); k++ {
					list := join(free.Positions()) // the catalogue's indices are positions
					out := mustRun(t, "", "pick", "--machine", name, "-n", strconv.Itoa(k), "--free", list, "-o", "json")
					if !pickJSON.MatchString(out) {
						t.Fatalf("not the documented object: %s", out)
					}
					checkPick(t, g, o, free, k, out)
				}
			}
		})
	}
}

func checkPick(t *testing.T, g *nvtopo.Graph, o *oracle.Oracle, free nvtopo.Mask, k int, out string) {
	t.Helper()
	var got picked
	d := json.NewDecoder(bytes.NewReader([]byte(out)))
	d.DisallowUnknownFields()
	if err := d.Decode(&got); err != nil {
		t.Fatal(err)
	}
	set, _ := o.Best(free, free, k, nvtopo.Constraint{})
	_, kBps := o.Ring(set)
	want := picked{
		GPUs: set.Positions(), Ring: got.Ring, RingBandwidthGBps: float64(kBps) / 1e6,
		LinkClass: oracle.Bottleneck(g, got.Ring).Class.String(), NUMANodes: g.NUMAOf(set), Residual: got.Residual,
	}
	for i := range set.All() {
		for j := range set.All() {
			if i < j {
				want.PairSumGBps += float64(g.Link(i, j).Bandwidth) / 1e6
			}
		}
	}
	same := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-6 && b-a < 1e-6 })
	if diff := cmp.Diff(want, got, same); diff != "" {
		t.Errorf("%d of %b (-want,+got):\n%s", k, free, diff)
	}
	if nvtopo.MaskOf(got.Ring...) != set || len(got.Ring) != k {
		t.Errorf("%d of %b: ring %v is not an order of %v", k, free, got.Ring, got.GPUs)
	}
	if k > 1 && float64(oracle.Bottleneck(g, got.Ring).Bandwidth)/1e6 != got.RingBandwidthGBps {
		t.Errorf("%d of %b: ring %v does not have %v GB/s", k, free, got.Ring, got.RingBandwidthGBps)
	}
	exact, _ := o.Residual(free &^ set).Float64()
	// The library truncates below 10^-6 kB/s.
	if residual := exact / 1e6; residual-got.Residual > 1e-9 || got.Residual-residual > 1e-9 {
		t.Errorf("%d of %b: residual %v, want %v", k, free, got.Residual, residual)
	}
}

// TestSourceAgreement: all kinds of input of one machine give the same result.
func TestSourceAgreement(t *testing.T) {
	want := mustRun(t, "", "pick", "-n", "3", "--machine", "dgx1-v100", "-o", "json")
	yamlText := mustRun(t, "", "export", "--machine", "dgx1-v100")
	if got := mustRun(t, yamlText, "pick", "-n", "3", "-f", "-", "-o", "json"); got != want {
		t.Errorf("YAML: got %s, want %s", got, want)
	}
	obj, err := decodeObject([]byte(yamlText))
	if err != nil {
		t.Fatal(err)
	}
	jsonText, err := json.MarshalIndent(obj, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if got := mustRun(t, string(jsonText), "pick", "-n", "3", "-f", "-", "-o", "json"); got != want {
		t.Errorf("JSON: got %s, want %s", got, want)
	}
	if got := mustRun(t, "\ufeff---\n"+yamlText, "export", "-f", "-"); got != yamlText {
		t.Errorf("export of an export differs:\n%s", cmp.Diff(yamlText, got))
	}
}

// TestMatrixRoundTrip: a printed matrix can be read again.
func TestMatrixRoundTrip(t *testing.T) {
	for _, name := range machine.Names() {
		text := mustRun(t, "", "matrix", "--machine", name)
		want := cells(text)
		if got := cells(mustRun(t, text, "matrix", "-f", "-")); got != want || want == "" {
			t.Errorf("%s: matrix changed:\n%s", name, cmp.Diff(want, got))
		}
	}
}

// cells is the part of a matrix above its first empty line.
func cells(text string) string {
	head, _, _ := strings.Cut(text, "\n\n")
	return head
}

// TestCaptureMatrix: real captures are equal to the captures that matrix prints of them.
func TestCaptureMatrix(t *testing.T) {
	dir := fixtures.Dir(t)
	files, err := filepath.Glob(filepath.Join(dir, "topo", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captures in %s: %v", dir, err)
	}
	for _, file := range files {
		if base := filepath.Base(file); strings.Contains(base, "--") || strings.Contains(base, "TRUNCATED") {
			continue
		}
		text := mustRun(t, "", "matrix", "-f", file)
		if got, want := cells(mustRun(t, text, "matrix", "-f", "-")), cells(text); got != want {
			t.Errorf("%s: matrix changed:\n%s", filepath.Base(file), cmp.Diff(want, got))
		}
		mustRun(t, "", "pick", "-n", "1", "-f", file, "-o", "json")
	}
}

func TestSizes(t *testing.T) {
	cases := map[string]struct {
		text   string
		binary bool
		want   float64
	}{
		"plain bytes":                        {text: "4096", want: 4096},
		"SI without a unit":                  {text: "100M", want: 1e8},
		"SI with a blank":                    {text: "1.5 GB", want: 1.5e9},
		"a small k":                          {text: "2kB", want: 2000},
		"lower case":                         {text: "16g", want: 16e9},
		"lower case with a unit":             {text: "64mib", want: 64 << 20},
		"IEC":                                {text: "64MiB", want: 64 << 20},
		"IEC without a unit":                 {text: "1Ti", want: 1 << 40},
		"binary units keep a GB":             {text: "1GB", binary: true, want: 1e9},
		"binary units divide a GB by 1024":   {text: "100MB", binary: true, want: 1e9 * 100 / 1024},
		"binary units of bytes":              {text: "1073741824B", binary: true, want: 1e9},
		"binary units multiply a GB by 1024": {text: "1TB", binary: true, want: 1024e9},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseSize(tc.text, tc.binary)
			if err != nil || got != tc.want {
				t.Errorf("%q: got %v, %v, want %v", tc.text, got, err, tc.want)
			}
		})
	}
	for _, bad := range []string{"", "0", "-1MB", "1XB", "1iB", "MB", "1e9", "2000TB", "1 0MB", "1\u212aB"} {
		if got, err := parseSize(bad, false); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}
