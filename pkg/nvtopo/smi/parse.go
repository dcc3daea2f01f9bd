// SPDX-License-Identifier: Apache-2.0

package smi

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Limits on input from outside. The largest capture known (8 GPUs, 16 NICs) is
// 4 kB; a matrix of 64 GPUs and 64 NICs stays under 128 kB.
const (
	maxBytes   = 1 << 20
	maxDevices = 256
)

// maxLinksPerGPU is the most NVLinks of a GPU without a switch (Hopper and Blackwell have 18).
const maxLinksPerGPU = 18

// fullSwitchGPUs is the number of GPUs from which an all-to-all fabric is taken to be switched: no
// machine joins eight directly with equal links.
const fullSwitchGPUs = 8

// Options hold facts that the text lacks. The zero value is valid.
type Options struct {
	// Model is the product name of all accelerators; it decides the bandwidth of
	// a fabric link.
	Model string
	// PCIeGen is the PCI Express generation of the GPUs' slots, 0 when unknown.
	PCIeGen nvtopo.PCIeGen
	// NUMA lists the machine's NUMA nodes, from ParseNUMA.
	NUMA []nvtopo.NUMANode
	// Cores is the hyper-threads of each core, from ParseCores.
	Cores Cores
}

// SyntaxError is a position at which a text could not be parsed, and the reason. Line and Column start at
// 1; a column is a byte of the line, also for a tab.
type SyntaxError struct {
	Line, Column int
	Msg          string
}

// Error implements error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Msg)
}

// Parse parses the output of one of the tools of this package, with any text around it. Errors in the
// text are *SyntaxError.
func Parse(r io.Reader, opts Options) (*nvtopo.Graph, error) {
	g, _, err := ParseTool(r, opts)
	return g, err
}

// ParseTool is Parse that also returns the tool that printed the text.
func ParseTool(r io.Reader, opts Options) (*nvtopo.Graph, Tool, error) {
	lines, err := readLines(r)
	if err != nil {
		return nil, NVIDIA, err
	}
	tool := toolOf(lines)
	g, err := parseLines(tool, lines, opts)
	if err == nil {
		err = opts.Cores.place(g.NUMANodes) // the graph is not shared yet
	}
	if err != nil {
		return nil, tool, err
	}
	return g, tool, nil
}

func parseLines(tool Tool, lines []line, opts Options) (*nvtopo.Graph, error) {
	if tool == AMD {
		return parseROCm(lines, opts)
	}
	read := readMatrix
	if tool == Ascend {
		read = readNPUMatrix
	}
	m, err := read(lines)
	if err != nil {
		return nil, err
	}
	return m.graph(opts)
}

// graph converts a complete matrix into a link graph.
func (m *matrix) graph(opts Options) (*nvtopo.Graph, error) {
	if err := m.checkSymmetric(); err != nil {
		return nil, err
	}
	n := m.gpus
	gpus := make([]nvtopo.GPU, n)
	for i := range gpus {
		n := m.numbers[i]
		gpus[i] = nvtopo.GPU{UUID: m.dialect.prefix + strconv.Itoa(n), Index: n, Model: opts.Model, NUMANode: nvtopo.UnknownNUMA}
	}
	nodes, err := m.placeGPUs(gpus, opts.NUMA)
	if err != nil {
		return nil, err
	}
	switched := m.switched()
	links := make(map[[2]int]nvtopo.Link, n*(n-1)/2)
	for i := range n {
		for j := i + 1; j < n; j++ {
			c := m.rows[i].cells[j]
			perLink := nvtopo.FabricPerLink(c.class.Kind, opts.Model)
			links[[2]int{i, j}] = nvtopo.NewLink(c.class, nvtopo.PCIeUnknown, opts.PCIeGen, perLink, switched || c.switched)
		}
	}
	g, err := nvtopo.NewGraph(gpus, nodes, m.nics(), links)
	if err != nil {
		return nil, fmt.Errorf("building the graph: %w", err)
	}
	return g, nil
}

// checkSymmetric compares both values of each pair, adapters included. The
// position reported is that of the later one.
func (m *matrix) checkSymmetric() error {
	for j := range m.rows {
		for i := range j {
			a, b := m.rows[i].cells[j], m.rows[j].cells[i]
			if a.class != b.class || a.switched != b.switched {
				return m.rows[j].line.errorf(b.at, "%s to %s is %s, but %s to %s is %s: the matrix is not symmetric",
					m.names[j], m.names[i], b.class, m.names[i], m.names[j], a.class)
			}
		}
	}
	return nil
}

// switched reports whether the fabric goes through switches, by the rule of the package comment.
func (m *matrix) switched() bool {
	if m.gpus < 2 {
		return false
	}
	first := m.rows[0].cells[1].class
	if first.Kind != nvtopo.KindNVLink {
		return false // the other fabrics' tools report it, or there is no fabric
	}
	for i := range m.gpus {
		for j := range i {
			if m.rows[i].cells[j].class != first {
				return false
			}
		}
	}
	return m.gpus >= fullSwitchGPUs || first.Lanes*(m.gpus-1) > maxLinksPerGPU
}

// nics returns the adapters with their PCIe level to each GPU. A name in the legend replaces "NIC0".
func (m *matrix) nics() []nvtopo.NIC {
	var out []nvtopo.NIC
	for k := m.gpus; k < len(m.names); k++ {
		nic := nvtopo.NIC{Name: m.names[k], NUMANode: nvtopo.UnknownNUMA, Levels: make([]nvtopo.PCIeLevel, m.gpus)}
		if name := m.legend[nic.Name]; name != "" {
			nic.Name = name
		}
		for i := range m.gpus {
			nic.Levels[i] = m.rows[k].cells[i].class.PCIe
		}
		out = append(out, nic)
	}
	return out
}

// errorf returns a SyntaxError at byte at of the cleaned line.
func (l *line) errorf(at int, format string, args ...any) error {
	return &SyntaxError{Line: l.no, Column: l.column(at), Msg: shorten(fmt.Sprintf(format, args...), maxMessage)}
}

// maxMessage bounds a message in bytes: messages of other functions may quote
// the whole of a list.
const maxMessage = 240

// shorten cuts s to at most most bytes, at a whole character.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// quote returns a text from outside shortened and quoted, for a message.
func quote(s string) string {
	return strconv.Quote(shorten(strings.TrimSpace(s), 24))
}
