// SPDX-License-Identifier: Apache-2.0

package kubeletadmission

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// The CPU manager's options.
const (
	fullCores     = "full-pcpus-only"
	distribute    = "distribute-cpus-across-numa"
	alignBySocket = "align-by-socket"
	spreadCores   = "distribute-cpus-across-cores"
	strictReserve = "strict-cpu-reservation"
	byCache       = "prefer-align-cpus-by-uncorecache"
)

// layout is the machine's CPUs under a static CPU manager.
type layout struct {
	all, reserved cpuSet
	// wholeCores are the CPUs of cores without a reserved CPU.
	wholeCores cpuSet
	nodes      [MaxNodes]cpuSet
	nodeSize   [MaxNodes]int
	with       NodeSet // nodes that have CPUs
	sockets    []NodeSet
	socketOf   [MaxNodes]int
	cores      []core // by node, then by lowest CPU
	ofNode     [MaxNodes][]core
	threads    int // CPUs of a core, by kubelet's division
	perSocket  int

	fullCores, distribute, bySocket, spread bool
}

// core is one physical core; its CPUs ascend.
type core struct{ cpus []int16 }

func newLayout(nodes []Node, reserved nvtopo.CPUSet, options map[string]string) (*layout, error) {
	l := &layout{reserved: toCPUSet(reserved)}
	if err := l.readOptions(options); err != nil {
		return nil, err
	}
	numbers := map[int]int{} // socket number -> index in sockets
	total := 0
	for i := range nodes {
		n := &nodes[i]
		if len(n.CPUs) == 0 {
			continue
		}
		if last := n.CPUs[len(n.CPUs)-1]; last >= maxCPUs {
			return nil, fmt.Errorf("CPU %d: only numbers below %d are predicted", last, maxCPUs)
		}
		l.with |= 1 << i
		l.nodes[i], l.nodeSize[i] = toCPUSet(n.CPUs), len(n.CPUs)
		l.all = l.all.or(l.nodes[i])
		total += len(n.CPUs)
		at, ok := numbers[n.Socket]
		if !ok {
			at = len(l.sockets)
			numbers[n.Socket] = at
			l.sockets = append(l.sockets, 0)
		}
		l.sockets[at] |= 1 << i
		l.socketOf[i] = at
		l.ofNode[i] = coresOf(n)
		l.cores = append(l.cores, l.ofNode[i]...)
	}
	if total == 0 {
		return nil, fmt.Errorf("no NUMA node has CPUs") //nolint:perfsprint // as the others here
	}
	l.threads, l.perSocket = max(1, total/len(l.cores)), total/len(l.sockets)
	for _, c := range l.cores {
		set := c.set()
		if set.common(&l.reserved) == 0 {
			l.wholeCores = l.wholeCores.or(set)
		}
	}
	return l, nil
}

func (l *layout) readOptions(options map[string]string) error {
	for name, value := range options {
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("CPU manager option %s=%q: want true or false", name, value)
		}
		switch name {
		case fullCores:
			l.fullCores = on
		case distribute:
			l.distribute = on
		case alignBySocket:
			l.bySocket = on
		case spreadCores:
			l.spread = on
		case strictReserve, byCache:
			// Reserved CPUs are never allocated either way. Caches decide which CPUs of a node are taken, hardly
			// ever of which node.
		default:
			return fmt.Errorf("unknown CPU manager option %s", name)
		}
	}
	return nil
}

// coresOf returns a node's cores by their lowest CPU.
func coresOf(n *Node) []core {
	var out []core
	known := map[int]bool{}
	add := func(cpus []int) {
		var c core
		for _, cpu := range cpus {
			if n.CPUs.Has(cpu) && !known[cpu] {
				known[cpu] = true
				c.cpus = append(c.cpus, int16(cpu))
			}
		}
		if len(c.cpus) > 0 {
			out = append(out, c)
		}
	}
	for _, siblings := range n.Siblings {
		add(siblings)
	}
	for _, cpu := range n.CPUs {
		add([]int{cpu})
	}
	slices.SortFunc(out, func(a, b core) int { return cmp.Compare(a.cpus[0], b.cpus[0]) })
	return out
}

func (c *core) set() (s cpuSet) {
	for _, cpu := range c.cpus {
		s.add(int(cpu))
	}
	return s
}

// free returns how many of the core's CPUs are in a set.
func (c *core) free(s *cpuSet) int {
	n := 0
	for _, cpu := range c.cpus {
		if s.has(int(cpu)) {
			n++
		}
	}
	return n
}
