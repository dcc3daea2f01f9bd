// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	recorded "github.com/nvtopo/nvtopo/internal/transcript"
	"github.com/nvtopo/nvtopo/manifests"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/cli"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview/viewtest"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/nodeindex"
)

// TestConceptPictures compares the pictures of concepts.md with what the code says today,
// or writes them.
func TestConceptPictures(t *testing.T) {
	saved := sampleCluster(t)
	links := filepath.Join(t.TempDir(), "links.svg")
	runCommand(t, "topology", "v100-0", "--svg", links, "--from", saved)
	text, err := os.ReadFile(links)
	if err != nil {
		t.Fatal(err)
	}
	var view clusterview.View
	if err := json.Unmarshal(runCommand(t, "top", "-o", "json", "--from", saved), &view); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]string{
		"links": string(text), "bands": drawBands(t, "dgx1-v100"), "fabric": drawFabric(&view), "cycle": drawCycle(), "pool": drawPool(t),
	} {
		page := filepath.Join("pictures", name+".svg")
		if os.Getenv(recorded.Variable) == "write" {
			if err := os.WriteFile(page, []byte(got), 0o644); err != nil { //nolint:gosec // a page is for everybody
				t.Fatal(err)
			}
		}
		if want, err := os.ReadFile(page); err != nil || string(want) != got {
			t.Errorf("%s is not what the code draws (%v); %s=write writes it", page, err, recorded.Variable)
		}
	}
}

// sampleCluster is a file with the objects of a cluster of six machines.
func sampleCluster(t *testing.T) string {
	t.Helper()
	c, err := viewtest.Sample()
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.List()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "cluster.json")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func runCommand(t *testing.T, args ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	cmd := cli.New("nvtopo")
	cmd.SetOut(&out)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// drawing is an SVG in the making; coordinates are pixels.
type drawing struct{ strings.Builder }

func newDrawing(width, height int) *drawing {
	d := &drawing{}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	d.box(0, 0, width, height, "white", "none")
	return d
}

func (d *drawing) box(x, y, width, height int, fill, stroke string) {
	fmt.Fprintf(d, `<rect x="%d" y="%d" width="%d" height="%d" fill="%s" stroke="%s"/>`+"\n", x, y, width, height, fill, stroke)
}

func (d *drawing) text(x, y int, style, text string) {
	fmt.Fprintf(d, `<text x="%d" y="%d" %s>`, x, y, style)
	_ = xml.EscapeText(d, []byte(text)) // a builder takes all
	d.WriteString("</text>\n")
}

func (d *drawing) done() string {
	d.WriteString("</svg>\n")
	return d.String()
}

// bandColours are from the best band to the worst.
var bandColours = [...]string{"#1b5e20", "#66a61e", "#e6ab02", "#d95f02", "#868e96"}

// drawBands draws for each size of a set how many of all sets of a machine are in which band.
func drawBands(t *testing.T, name string) string {
	t.Helper()
	m, err := machine.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Graph()
	if err != nil {
		t.Fatal(err)
	}
	const left, bar, wide = 110, 26, 520
	tables := nvtopo.NewTables(g, nvtopo.DefaultWeights())
	d := newDrawing(760, bar*(g.Len()+3))
	for k := 2; k <= g.Len(); k++ {
		counts, best := bandsOf(tables, k)
		all := 0
		for _, n := range counts {
			all += n
		}
		y, from := bar*(k-1), 0
		d.text(left-10, y+17, `text-anchor="end"`, fmt.Sprintf("sets of %d", k))
		for band, n := range counts {
			if n == 0 {
				continue
			}
			width := wide * n / all
			d.box(left+from, y, width, bar-6, bandColours[band], "white")
			if width > 20 {
				d.text(left+from+width/2, y+15, `text-anchor="middle" fill="white"`, strconv.Itoa(n))
			}
			from += width
		}
		d.text(left+wide+10, y+17, "", fmt.Sprintf("best %g GB/s", nvtopo.GBps(best)))
	}
	for band, text := range []string{"the best ring", "¾ of it or more", "½", "¼", "less"} {
		x := left + []int{0, 125, 265, 325, 385}[band]
		d.box(x, bar*(g.Len()+1)+4, 14, 14, bandColours[band], "none")
		d.text(x+20, bar*(g.Len()+1)+16, "", text)
	}
	return d.done()
}

// bandsOf counts the sets of k GPUs by their band, and has the ring of the best.
func bandsOf(tables *nvtopo.Tables, k int) (counts [len(bandColours)]int, best int64) {
	var rings []int64
	for set := nvtopo.Mask(0); set <= nvtopo.FullMask(tables.Graph().Len()); set++ {
		if bits.OnesCount64(uint64(set)) == k {
			rings = append(rings, tables.Ring(set))
			best = max(best, rings[len(rings)-1])
		}
	}
	for _, ring := range rings {
		counts[nodeindex.BandOfRing(ring, best)]++
	}
	return counts, best
}

// drawFabric draws the domains of a cluster of two levels around its nodes, with the pods on their
// GPUs, and the slots of each node.
func drawFabric(v *clusterview.View) string {
	const nodeWidth, gpu = 126, 24
	d := newDrawing(nodeWidth*len(v.Nodes)+40, 232)
	d.text(20, 20, "", "cluster")
	colours := map[string]string{}
	for level, label := range v.Levels {
		y := 28 + 28*level
		for i := 0; i < len(v.Nodes); {
			end := i
			for end < len(v.Nodes) && strings.Join(v.Nodes[end].Domains[:level+1], "/") == strings.Join(v.Nodes[i].Domains[:level+1], "/") {
				end++
			}
			d.box(20+nodeWidth*i+4*level, y, nodeWidth*(end-i)-8-8*level, 190-36*level, []string{"#f1f3f5", "#e3e7eb"}[level%2], "#868e96")
			d.text(28+nodeWidth*i+4*level, y+18, "", label+" "+v.Nodes[i].Domains[level])
			i = end
		}
	}
	for i, n := range v.Nodes {
		x, y := 34+nodeWidth*i, 112
		d.text(x, y-6, `font-weight="bold"`, n.Name)
		for at := range n.GPUs {
			d.gpu(x+gpu*(at%4), y+gpu*(at/4), gpu-4, &n.GPUs[at], colours)
		}
		for row, s := range n.Supply.Slots {
			d.text(x+48*(row%2), y+2*gpu+16+15*(row/2), `font-size="11"`, fmt.Sprintf("x%d: %d/%d", s.GPUs, s.Free, s.Capacity))
		}
	}
	return d.done()
}

// gpu draws a GPU in the colour of its pod.
func (d *drawing) gpu(x, y, size int, g *clusterview.GPU, colours map[string]string) {
	palette := []string{"#8dd3c7", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5", "#bc80bd"}
	fill, stroke := "white", "#495057"
	switch {
	case g.State == clusterview.Unhealthy:
		fill, stroke = "#dee2e6", "#d50000"
	case len(g.Pods) > 0:
		pod := strings.TrimRight(g.Pods[0], "-0123456789") // of one gang
		if colours[pod] == "" {
			colours[pod] = palette[len(colours)%len(palette)]
		}
		fill = colours[pod]
	}
	d.box(x, y, size, size, fill, stroke)
	d.text(x+size/2, y+size/2+4, `text-anchor="middle" font-size="10"`, strconv.Itoa(g.Index))
}

// drawCycle draws what happens to a pod at the points of a scheduling cycle.
func drawCycle() string {
	steps := []struct{ point, first, second string }{
		{"PreFilter", "read what the pod asks;", "list the best nodes"},
		{"Filter", "is there a set of GPUs", "that will do?"},
		{"Score", "links, then what the", "choice leaves to others"},
		{"Reserve", "choose the GPUs, and", "hold them in memory"},
		{"Permit", "members of a gang", "wait for each other"},
		{"PreBind", "write the choice", "on the pod"},
		{"Bind", "the pod has its node;", "kubelet takes over"},
	}
	const width, gap = 148, 18
	d := newDrawing(len(steps)*(width+gap)+gap, 100)
	for i, s := range steps {
		x := gap + i*(width+gap)
		d.box(x, 16, width, 68, "#e7f0fa", "#1c5d99")
		d.text(x+width/2, 36, `text-anchor="middle" font-weight="bold"`, s.point)
		d.text(x+width/2, 56, `text-anchor="middle" font-size="12"`, s.first)
		d.text(x+width/2, 72, `text-anchor="middle" font-size="12"`, s.second)
		if i > 0 {
			fmt.Fprintf(d, `<path d="M%d 50h%dm-5 -4l5 4l-5 4" fill="none" stroke="#1c5d99"/>`+"\n", x-gap, gap)
		}
	}
	return d.done()
}

// drawPool draws the quotas of the pool in manifests/examples.
func drawPool(t *testing.T) string {
	t.Helper()
	text, err := manifests.FS.ReadFile("examples/pools/training-pool.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var pool poolv1alpha1.ComputePool
	if err := yaml.UnmarshalStrict(text, &pool); err != nil {
		t.Fatal(err)
	}
	const left, wide, bar = 150, 520, 34
	total, reserved := int(pool.Spec.Capacity.Total), int(pool.Spec.Capacity.Reserved)
	scale := func(n int) int { return wide * n / total }
	d := newDrawing(left+wide+60, bar*(len(pool.Spec.Quotas)+3))
	d.text(left-10, 26, `text-anchor="end"`, pool.Name)
	d.box(left, 10, wide, 22, "#e7f0fa", "#1c5d99")
	d.box(left+wide-scale(reserved), 10, scale(reserved), 22, "#ced4da", "#1c5d99")
	d.text(left+8, 26, "", fmt.Sprintf("%d GPUs, %d of them reserved", total, reserved))
	for i := range pool.Spec.Quotas {
		q := &pool.Spec.Quotas[i]
		y := bar*(i+1) + 10
		guaranteed, limit := int(q.Guaranteed), total-reserved
		if q.Limit != nil {
			limit = int(*q.Limit)
		}
		d.text(left-10, y+16, `text-anchor="end"`, q.Tenant)
		d.box(left, y, scale(limit), 22, "#d3f0d6", "#1b5e20")
		d.box(left, y, scale(guaranteed), 22, "#66a61e", "#1b5e20")
		d.text(left+scale(limit)+8, y+16, "", fmt.Sprintf("guaranteed %d, limit %d", guaranteed, limit))
	}
	y := bar*(len(pool.Spec.Quotas)+1) + 10
	d.box(left, y, 14, 14, "#66a61e", "none")
	d.text(left+20, y+12, "", "whenever it asks")
	d.box(left+160, y, 14, 14, "#d3f0d6", "#1b5e20")
	d.text(left+180, y+12, "", "borrowed while others do not need it")
	return d.done()
}
