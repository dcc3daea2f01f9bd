// SPDX-License-Identifier: Apache-2.0

package nodeverify

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/visible"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

// checkpointPath is the path of kubelet's device record, below the root.
const checkpointPath = "var/lib/kubelet/device-plugins/" + kubelet.CheckpointName

// replicaMark separates, in the id of a share of a GPU, the GPU's UUID from a number.
const replicaMark = "::"

// Container holds the facts about one container. Each unknown part has the reason in the error beside it.
type Container struct {
	Name      string // empty if it is not known
	Processes []*Process
	Machine   Machine

	Choice    *allocation.Allocation // the annotation
	ChoiceErr error

	Resource  string   // the extended resource of Recorded and Graph
	Recorded  []string // kubelet's record of the container: sorted UUIDs
	RecordErr error

	Listed  []nvtopo.GPU // output of `nvidia-smi -L` inside the container
	ListErr error

	Graph    *nvtopo.Graph
	GraphErr error
	// Unidentified is the reason why the GPUs of Graph are known by number only, which replaces the UUID;
	// nil if the UUIDs are known.
	Unidentified error
}

// Machine holds the limits of every process: CPUs and NUMA nodes that exist.
type Machine struct {
	CPUs  nvtopo.CPUSet // online; nil if not known
	Nodes nvtopo.CPUSet // NUMA nodes with memory; nil if not known
}

// ReadMachine reads the machine below root, which has the folder sys. A kernel without NUMA has no nodes.
func ReadMachine(root fs.FS) (Machine, error) {
	var m Machine
	for path, into := range map[string]*nvtopo.CPUSet{
		"sys/devices/system/cpu/online":      &m.CPUs,
		"sys/devices/system/node/has_memory": &m.Nodes,
	} {
		text, err := readText(root, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Machine{}, err
		}
		if *into, err = nvtopo.ParseCPUList(text); err != nil {
			return Machine{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	return m, nil
}

// ReadRecord returns kubelet's record of a pod: for each container the sorted UUIDs of the GPUs of a
// resource. A share of a GPU is reported as the GPU.
func ReadRecord(root fs.FS, uid types.UID, resource string) (map[string][]string, error) {
	text, err := readText(root, checkpointPath)
	if err != nil {
		return nil, err
	}
	records, err := kubelet.ParseCheckpoint([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", checkpointPath, err)
	}
	out := map[string][]string{}
	for i := range records {
		r := &records[i]
		if r.PodUID != uid || r.Resource != resource {
			continue
		}
		var ids []string
		for _, id := range r.IDs {
			gpu, _, _ := strings.Cut(id, replicaMark)
			ids = append(ids, gpu)
		}
		slices.Sort(ids)
		out[r.Container] = slices.Compact(ids)
	}
	return out, nil
}

// Sources of the container's given GPUs.
const (
	byRecord = "kubelet's record"
	byChoice = "the annotation"
	bySight  = "what the container sees"
)

// given returns the container's GPUs and their source: kubelet's record, else the annotation, else the
// GPUs that the container sees.
func (c *Container) given() (ids []string, by string) {
	if c.RecordErr == nil {
		return c.Recorded, byRecord
	}
	if c.ChoiceErr == nil {
		if ids := c.chosen(); len(ids) > 0 {
			return ids, byChoice
		}
	}
	if ids, _, err := c.seen(); err == nil {
		return ids, bySight
	}
	return nil, ""
}

// chosen returns the scheduler's choice for the container, sorted; for all containers if its name is not
// known.
func (c *Container) chosen() []string {
	if c.Name == "" {
		return slices.Sorted(slices.Values(c.Choice.GPUs(c.Resource)))
	}
	ids, _ := c.Choice.Recorded(c.Name, c.Resource, nil)
	return ids
}

// seen returns the GPUs that the container can use, and the source of that knowledge.
func (c *Container) seen() (ids []string, how string, err error) {
	if c.ListErr == nil {
		for i := range c.Listed {
			ids = append(ids, devicesOf(&c.Listed[i])...)
		}
		slices.Sort(ids)
		return ids, "nvidia-smi -L", nil
	}
	if len(c.Processes) == 0 {
		return nil, "", errors.New("no process")
	}
	first := c.Processes[0]
	if first.EnvironmentErr != nil {
		return nil, "", first.EnvironmentErr
	}
	names, how := visible.FromEnvironment(first.Environment)
	if len(names) == 0 {
		return nil, "", fmt.Errorf("%s names no device; they may come by CDI or mounts", how)
	}
	ids, err = c.resolve(names)
	return ids, how, err
}

// resolve returns the devices that the names of NVIDIA_VISIBLE_DEVICES mean.
func (c *Container) resolve(names []string) ([]string, error) {
	known := c.devices()
	var ids []string
	for _, name := range names {
		if name == "all" {
			if len(known) == 0 {
				return nil, fmt.Errorf("%s is all, and the machine's GPUs are not known", visible.VisibleDevices)
			}
			for _, d := range known {
				ids = append(ids, d.ID)
			}
			continue
		}
		found, certain := visible.Resolve(name, known, c.Recorded)
		if !certain {
			return nil, fmt.Errorf("%s: which device %q is, is not known", visible.VisibleDevices, name)
		}
		ids = append(ids, found...)
	}
	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// devices returns the machine's GPUs. Numbers in place of UUIDs are not compared with the UUIDs of a
// record or an annotation.
func (c *Container) devices() []visible.Device {
	if c.Graph == nil || c.Unidentified != nil && (c.RecordErr == nil || c.ChoiceErr == nil) {
		return nil
	}
	all := make([]visible.Device, len(c.Graph.GPUs))
	for i := range c.Graph.GPUs {
		all[i] = visible.Device{ID: c.Graph.GPUs[i].UUID, Index: c.Graph.GPUs[i].Index}
	}
	return all
}

// devicesOf returns the GPU's UUID, or its slices if it is partitioned.
func devicesOf(g *nvtopo.GPU) []string {
	if len(g.Slices) == 0 {
		return []string{g.UUID}
	}
	ids := make([]string, len(g.Slices))
	for i := range g.Slices {
		ids[i] = g.Slices[i].UUID
	}
	return ids
}

// positions returns the GPUs of the graph that have the devices.
func (c *Container) positions(ids []string) (nvtopo.Mask, error) {
	if c.GraphErr != nil {
		return 0, c.GraphErr
	}
	var at nvtopo.Mask
	for _, id := range ids {
		i := slices.IndexFunc(c.Graph.GPUs, func(g nvtopo.GPU) bool {
			return g.UUID == id || slices.ContainsFunc(g.Slices, func(s nvtopo.Slice) bool { return s.UUID == id })
		})
		if i < 0 && c.Unidentified != nil {
			return 0, fmt.Errorf("which GPU of the graph is %s is not known: %w", id, c.Unidentified)
		}
		if i < 0 {
			return 0, fmt.Errorf("the graph of the machine has no %s", id)
		}
		at |= 1 << i
	}
	return at, nil
}
