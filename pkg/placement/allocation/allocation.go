// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// Version is the version of the allocation annotation that this package writes, and the only one that it
// reads. A field that may be ignored can be added to it; a change to the meaning of other fields needs the
// next version.
const Version = 1

// ErrNewerVersion is returned for an allocation annotation that a later release wrote, in a version that
// this one must not guess at.
var ErrNewerVersion = errors.New("written by a later release")

// Limits of an allocation annotation that is read, against absurd input.
const (
	maxAllocationBytes      = 64 << 10
	maxAllocationContainers = 256
)

// Allocation is the set of devices chosen for one pod: the value of Key. Treat it as immutable once made.
type Allocation struct {
	Version     int         `json:"version"`
	Node        string      `json:"node"`
	PodUID      types.UID   `json:"podUID"`
	Assumed     time.Time   `json:"assumed"`
	Enforced    bool        `json:"enforced"`
	Unconfirmed bool        `json:"unconfirmed,omitempty"` // the node had untracked devices
	NUMANodes   []int       `json:"numaNodes,omitempty"`
	CPUSet      string      `json:"cpuset,omitempty"`
	Containers  []Container `json:"containers,omitempty"`

	// Ring is the ring of the set when it was chosen. It is nil if the allocation was read, or has no ring.
	// It is not written itself.
	Ring *Ring `json:"-"`

	cpus nvtopo.CPUSet
	memo atomic.Pointer[maskMemo] // the last graph passed to Mask
}

// Container is the set of devices of one container and resource.
type Container struct {
	Name      string   `json:"name"`
	Resource  string   `json:"resource"`
	Init      bool     `json:"init,omitempty"` // reuses GPUs that later containers get
	GPUs      []string `json:"gpus"`           // UUIDs in ring order
	NUMANodes []int    `json:"numaNodes,omitempty"`
}

// Ring is the ring that the links of a set form.
type Ring struct {
	Class     nvtopo.Class // of the weakest link
	Bandwidth int64        // in kB/s
}

type maskMemo struct {
	resource string
	graph    *nvtopo.Graph
	mask     nvtopo.Mask
}

// Parse reads an allocation annotation: another version, repeated or empty device ids and trailing text
// are errors. Unknown fields are ignored, since a later release may add some within the version, and
// Encode does not return them: an allocation that is written again must not keep the old one's fields.
func Parse(s string) (*Allocation, error) {
	if len(s) > maxAllocationBytes {
		return nil, fmt.Errorf("%s: %d bytes, at most %d are read", Key, len(s), maxAllocationBytes)
	}
	dec := json.NewDecoder(strings.NewReader(s))
	a := &Allocation{}
	if err := dec.Decode(a); err != nil {
		// In a later version a field may have another type.
		if later := laterVersion(s); later != nil {
			err = later
		}
		return nil, fmt.Errorf("%s: %w", Key, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: text after the object", Key)
	}
	if err := a.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", Key, err)
	}
	return a, nil
}

// laterVersion returns an ErrNewerVersion if the text has the version of a later release; its other fields
// do not matter.
func laterVersion(s string) error {
	var only struct {
		Version int `json:"version"`
	}
	if json.Unmarshal([]byte(s), &only) == nil && only.Version > Version {
		return newerVersion(only.Version)
	}
	return nil
}

func newerVersion(v int) error {
	return fmt.Errorf("version %d, at most %d is read: %w", v, Version, ErrNewerVersion)
}

func (a *Allocation) validate() error {
	switch {
	case a.Version > Version:
		return newerVersion(a.Version)
	case a.Version != Version:
		return fmt.Errorf("version %d, want %d", a.Version, Version)
	case a.Node == "":
		return errors.New("node is empty")
	case a.PodUID == "":
		return errors.New("podUID is empty")
	case len(a.Containers) > maxAllocationContainers:
		return fmt.Errorf("containers: %d, at most %d", len(a.Containers), maxAllocationContainers)
	}
	cpus, err := nvtopo.ParseCPUList(a.CPUSet)
	if err != nil {
		return fmt.Errorf("cpuset: %w", err)
	}
	a.cpus = cpus
	for i, c := range a.Containers {
		if c.Name == "" || c.Resource == "" || len(c.GPUs) == 0 || len(c.GPUs) > nvtopo.MaxGPUs {
			return fmt.Errorf("containers[%d]: want a name, a resource and 1 to %d gpus", i, nvtopo.MaxGPUs)
		}
		ids := slices.Clone(c.GPUs)
		slices.Sort(ids)
		if ids[0] == "" || len(slices.Compact(ids)) != len(c.GPUs) {
			return fmt.Errorf("containers[%d].gpus: empty or repeated id in %q", i, c.GPUs)
		}
	}
	return nil
}

// Encode returns the annotation's value.
func (a *Allocation) Encode() (string, error) {
	b, err := json.Marshal(a)
	if err != nil {
		return "", fmt.Errorf("encoding the allocation of pod %s: %w", a.PodUID, err)
	}
	return string(b), nil
}

// Equal reports whether both give the same devices, NUMA nodes and CPUs on the
// same node to the same pod; the time it was assumed does not matter.
func (a *Allocation) Equal(b *Allocation) bool {
	return a.Node == b.Node && a.PodUID == b.PodUID && a.CPUSet == b.CPUSet && slices.Equal(a.NUMANodes, b.NUMANodes) &&
		slices.EqualFunc(a.Containers, b.Containers, func(x, y Container) bool {
			return x.Name == y.Name && x.Resource == y.Resource && x.Init == y.Init && slices.Equal(x.GPUs, y.GPUs) &&
				slices.Equal(x.NUMANodes, y.NUMANodes)
		})
}

// GPUs returns the distinct UUIDs of one resource over all containers, in the
// order in which they first appear.
func (a *Allocation) GPUs(resource string) []string {
	var out []string
	for _, c := range a.Containers {
		if c.Resource != resource {
			continue
		}
		for _, id := range c.GPUs {
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// Count returns how many GPUs of a resource the containers name in all; 0 for no allocation.
func (a *Allocation) Count(resource string) int {
	if a == nil {
		return 0
	}
	n := 0
	for i := range a.Containers {
		if a.Containers[i].Resource == resource {
			n += len(a.Containers[i].GPUs)
		}
	}
	return n
}

// Mask returns the positions on a graph of the GPUs of a resource. GPUs that the graph no longer has are
// left out. The last result is cached.
func (a *Allocation) Mask(resource string, g *nvtopo.Graph) nvtopo.Mask {
	if m := a.memo.Load(); m != nil && m.graph == g && m.resource == resource {
		return m.mask
	}
	found, _ := g.Positions(a.GPUs(resource))
	a.memo.Store(&maskMemo{resource: resource, graph: g, mask: found})
	return found
}

// CPUs returns CPUSet as a set. It is empty for an allocation that was neither read nor
// given its CPUs with SetCPUs.
func (a *Allocation) CPUs() nvtopo.CPUSet { return a.cpus }

// SetCPUs sets the CPUs of an allocation that is being made.
func (a *Allocation) SetCPUs(cpus nvtopo.CPUSet) { a.cpus, a.CPUSet = cpus, cpus.String() }
