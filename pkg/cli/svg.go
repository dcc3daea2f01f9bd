// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Sizes of the picture in pixels.
const (
	svgSize   = 720 // of the square with the links
	svgRadius = 250 // of the circle that the GPUs are on
	svgGPU    = 34  // of a GPU
	svgLine   = 22  // between two lines of text
)

// linkColours are the colours from the best class of a machine to the worst: dark ones are fast.
var linkColours = [...]string{"#1b5e20", "#66a61e", "#e6ab02", "#d95f02", "#bdbdbd"}

// podColours distinguish pods; there may be more pods than colours.
var podColours = [...]string{"#8dd3c7", "#bebada", "#fb8072", "#80b1d3", "#fdb462", "#b3de69", "#fccde5", "#bc80bd"}

// svg is a picture that is being written.
type svg struct{ bytes.Buffer }

// escaped writes a text from the cluster as XML text.
func (s *svg) escaped(text string) { _ = xml.EscapeText(s, []byte(printable(text))) } // a buffer takes all

func (s *svg) text(x, y int, style, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" %s>`, x, y, style)
	s.escaped(text)
	s.WriteString("</text>\n")
}

// point is the position of a GPU: on a circle, those of one NUMA node beside each other.
type point struct{ x, y int }

// drawLinks draws the link graph of a node: GPUs in the colours of their pods, and links in the colours of
// their classes, the worst first, so that the fast ones are on top.
func drawLinks(n *clusterview.Node) []byte {
	g := n.Graph()
	classes := linkClasses(g)
	s := &svg{}
	height := svgSize + svgLine*(len(classes)+len(n.Pods)+2)
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="14">`+"\n", svgSize, height)
	fmt.Fprintf(s, `<rect width="%d" height="%d" fill="white"/>`+"\n", svgSize, height)
	s.text(16, 28, `font-size="18"`, n.Name+", "+cmp.Or(n.Model, "model unknown"))
	at := places(g)
	for rank := len(classes) - 1; rank >= 0; rank-- {
		for i := range g.Len() {
			for j := range i {
				if g.Link(i, j).Class != classes[rank] {
					continue
				}
				fmt.Fprintf(s, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="%d"/>`+"\n",
					at[i].x, at[i].y, at[j].x, at[j].y, linkColour(rank), max(1, 4-rank))
			}
		}
	}
	colours := podColoursOf(n)
	for i := range n.GPUs {
		s.gpu(&n.GPUs[i], at[i], colours)
	}
	s.legend(g, n, classes, colours)
	s.WriteString("</svg>\n")
	return s.Bytes()
}

func (s *svg) gpu(d *clusterview.GPU, at point, colours map[string]string) {
	fill, stroke := "white", "black"
	switch {
	case d.State == clusterview.Unhealthy:
		fill, stroke = "#eeeeee", "#d50000"
	case len(d.Pods) > 0:
		fill = colours[d.Pods[0]]
	}
	fmt.Fprintf(s, `<circle cx="%d" cy="%d" r="%d" fill="%s" stroke="%s" stroke-width="2">`, at.x, at.y, svgGPU, fill, stroke)
	s.WriteString("<title>")
	s.escaped(fmt.Sprintf("%s, %s %s", d.UUID, d.State, d.Reason))
	s.WriteString("</title></circle>\n")
	s.text(at.x, at.y, `text-anchor="middle"`, fmt.Sprintf("GPU%d", d.Index))
	s.text(at.x, at.y+16, `text-anchor="middle" font-size="11"`, "NUMA "+numaName(d.NUMANode))
}

func (s *svg) legend(g *nvtopo.Graph, n *clusterview.Node, classes []nvtopo.Class, colours map[string]string) {
	y := svgSize
	for rank, c := range classes {
		fmt.Fprintf(s, `<line x1="16" y1="%d" x2="48" y2="%d" stroke="%s" stroke-width="%d"/>`+"\n", y-5, y-5, linkColour(rank), max(1, 4-rank))
		s.text(60, y, "", fmt.Sprintf("%s, %s GB/s", c, nvtopo.FormatGBps(bandwidthOf(g, c))))
		y += svgLine
	}
	for i := range n.Pods {
		pod := &n.Pods[i]
		fmt.Fprintf(s, `<circle cx="32" cy="%d" r="8" fill="%s" stroke="black"/>`+"\n", y-5, colours[pod.FullName()])
		s.text(60, y, "", podAndGPUs(pod))
		y += svgLine
	}
}

// places returns the positions of the GPUs on a circle in the order of their NUMA nodes, from the top on.
func places(g *nvtopo.Graph) []point {
	order := make([]int, g.Len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(g.GPUs[a].NUMANode, g.GPUs[b].NUMANode) })
	out := make([]point, g.Len())
	for k, i := range order {
		angle := 2*math.Pi*(float64(k)+0.5)/float64(g.Len()) - math.Pi/2
		out[i] = point{svgSize/2 + int(math.Round(svgRadius*math.Cos(angle))), svgSize/2 + int(math.Round(svgRadius*math.Sin(angle)))}
	}
	return out
}

// linkClasses are the classes of a graph's links, best first.
func linkClasses(g *nvtopo.Graph) []nvtopo.Class {
	all := map[nvtopo.Class]bool{}
	for i := range g.Len() {
		for j := range i {
			all[g.Link(i, j).Class] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b nvtopo.Class) int {
		switch {
		case a == b:
			return 0
		case a.AtLeast(b):
			return -1
		}
		return 1
	})
}

// bandwidthOf is the bandwidth of the links of a class; the least if they differ.
func bandwidthOf(g *nvtopo.Graph, c nvtopo.Class) int64 {
	least := int64(math.MaxInt64)
	for i := range g.Len() {
		for j := range i {
			if l := g.Link(i, j); l.Class == c {
				least = min(least, l.Bandwidth)
			}
		}
	}
	return least
}

func linkColour(rank int) string { return linkColours[min(rank, len(linkColours)-1)] }

func podColoursOf(n *clusterview.Node) map[string]string {
	out := map[string]string{}
	for i := range n.Pods {
		out[n.Pods[i].FullName()] = podColours[i%len(podColours)]
	}
	return out
}
