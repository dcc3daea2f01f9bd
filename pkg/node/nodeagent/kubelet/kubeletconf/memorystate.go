// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// Limits of the NodeGPUTopology's schema.
const (
	maxMemoryNodes = 64
	maxNUMANode    = 1023
)

// MemoryState holds the assignments of kubelet's memory manager.
type MemoryState struct {
	Policy string
	Nodes  []v1alpha1.KubeletMemory // by number
}

type memoryTable struct {
	Total          uint64 `json:"total"`
	SystemReserved uint64 `json:"systemReserved"`
	Allocatable    uint64 `json:"allocatable"`
	Reserved       uint64 `json:"reserved"`
	Free           uint64 `json:"free"`
}

type memoryNode struct {
	NumberOfAssignments int                     `json:"numberOfAssignments"`
	MemoryMap           map[string]*memoryTable `json:"memoryMap"`
	Cells               []int32                 `json:"cells"`
}

type memoryBlock struct {
	NUMAAffinity []int  `json:"numaAffinity"`
	Type         string `json:"type"`
	Size         uint64 `json:"size"`
}

// memoryAssignments is the content of memory_manager_state.
type memoryAssignments struct {
	PolicyName   string                              `json:"policyName"`
	MachineState map[int32]*memoryNode               `json:"machineState"`
	Entries      map[string]map[string][]memoryBlock `json:"entries"`
	PodEntries   podEntries                          `json:"podEntries"`
}

// ParseMemoryState parses memory_manager_state, as strictly as ParseCPUState and for the same reason.
// Huge pages are not published: no scheduler plugin uses them.
func ParseMemoryState(data []byte) (*MemoryState, error) {
	var whole struct {
		memoryAssignments
		embedded
		Checksum uint64 `json:"checksum"`
	}
	err := strictJSON(data, &whole)
	file := whole.memoryAssignments
	if err == nil && whole.Data != "" {
		file = memoryAssignments{}
		if err = strictJSON([]byte(whole.Data), &file); err != nil {
			err = fmt.Errorf("data: %w", err)
		}
	}
	if err = cmp.Or(err, file.PodEntries.refuse()); err != nil {
		return nil, fmt.Errorf("memory manager state: %w", err)
	}
	if file.PolicyName == "" {
		return nil, errors.New("memory manager state: policyName is empty")
	}
	if len(file.MachineState) > maxMemoryNodes {
		return nil, fmt.Errorf("memory manager state: %d NUMA nodes, at most %d", len(file.MachineState), maxMemoryNodes)
	}
	s, cells := &MemoryState{Policy: file.PolicyName}, 0
	for id, n := range file.MachineState {
		m, err := n.published(id)
		if err != nil {
			return nil, fmt.Errorf("memory manager state: NUMA node %d: %w", id, err)
		}
		s.Nodes = append(s.Nodes, m)
		cells += len(m.Cells)
	}
	if cells > v1alpha1.MaxMemoryCells {
		return nil, fmt.Errorf("memory manager state: %d cells in all, at most %d are published", cells, v1alpha1.MaxMemoryCells)
	}
	slices.SortFunc(s.Nodes, func(a, b v1alpha1.KubeletMemory) int { return cmp.Compare(a.NUMANode, b.NUMANode) })
	return s, nil
}

func (n *memoryNode) published(id int32) (v1alpha1.KubeletMemory, error) {
	var none v1alpha1.KubeletMemory
	if id < 0 || id > maxNUMANode {
		return none, fmt.Errorf("number is not within 0 to %d", maxNUMANode)
	}
	if n == nil || n.MemoryMap["memory"] == nil {
		return none, errors.New("no entry for memory")
	}
	t := n.MemoryMap["memory"]
	if t.Allocatable > math.MaxInt64 || t.Free > t.Allocatable {
		return none, fmt.Errorf("allocatable %d and free %d do not fit", t.Allocatable, t.Free)
	}
	m := v1alpha1.KubeletMemory{
		NUMANode:    id,
		Allocatable: *resource.NewQuantity(int64(t.Allocatable), resource.BinarySI),
		Free:        *resource.NewQuantity(int64(t.Free), resource.BinarySI),
	}
	cells := slices.Clone(n.Cells)
	slices.Sort(cells)
	if len(cells) > maxMemoryNodes || len(slices.Compact(slices.Clone(cells))) != len(cells) {
		return none, fmt.Errorf("cells %v repeat or are more than %d", n.Cells, maxMemoryNodes)
	}
	if len(cells) > 0 && (cells[0] < 0 || cells[len(cells)-1] > maxNUMANode || !slices.Contains(cells, id)) {
		return none, fmt.Errorf("cells %v do not name the node itself, or no NUMA node", n.Cells)
	}
	if len(cells) > 1 {
		m.Cells = cells
	}
	return m, nil
}
