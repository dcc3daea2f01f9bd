// SPDX-License-Identifier: Apache-2.0

package kubeletconf

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// maxStateBytes limits the state file of a manager; kubelet's files have some hundred bytes per pod.
const maxStateBytes = 8 << 20

// CPUState holds the assignments of kubelet's CPU manager.
type CPUState struct {
	Policy    string
	Shared    nvtopo.CPUSet // CPUs without an exclusive owner
	Exclusive map[types.UID]map[string]nvtopo.CPUSet
}

// cpuAssignments is the content of cpu_manager_state.
type cpuAssignments struct {
	PolicyName    string                       `json:"policyName"`
	DefaultCPUSet string                       `json:"defaultCpuSet"`
	Entries       map[string]map[string]string `json:"entries"`
	PodEntries    podEntries                   `json:"podEntries"`
	Baselines     any                          `json:"baselines"` // parts of Entries: CPUs that containers had before a resize
}

// podEntries holds the resources of whole pods, which kubelet writes since 1.36 with the feature gate
// PodLevelResourceManagers.
type podEntries map[string]any

func (p podEntries) refuse() error {
	if len(p) == 0 {
		return nil
	}
	// The first by name, so that the same state gives the same error.
	return fmt.Errorf("podEntries: pod %q has a share of its own (feature gate PodLevelResourceManagers), which is not understood; turn the gate off",
		slices.Min(slices.Collect(maps.Keys(p))))
}

// embedded is a copy of the state as text, which kubelet writes since 1.37 and reads instead of the
// other fields.
type embedded struct {
	Data         string `json:"data"`
	DataChecksum uint64 `json:"dataChecksum"`
}

// ParseCPUState parses cpu_manager_state of kubelet 1.18 to 1.37. Unknown fields are errors: a newer
// kubelet may keep CPUs in them, and those would be treated as free. The file's checksums are not
// verified: kubelet replaces the file as a whole, so a half-written file is never seen.
func ParseCPUState(data []byte) (*CPUState, error) {
	var whole struct {
		cpuAssignments
		embedded
		Checksum uint64 `json:"checksum"`
	}
	err := strictJSON(data, &whole)
	file := whole.cpuAssignments
	if err == nil && whole.Data != "" {
		file = cpuAssignments{}
		if err = strictJSON([]byte(whole.Data), &file); err != nil {
			err = fmt.Errorf("data: %w", err)
		}
	}
	if err = cmp.Or(err, file.PodEntries.refuse()); err != nil {
		return nil, fmt.Errorf("CPU manager state: %w", err)
	}
	if file.PolicyName == "" {
		return nil, errors.New("CPU manager state: policyName is empty")
	}
	shared, err := nvtopo.ParseCPUList(file.DefaultCPUSet)
	if err != nil {
		return nil, fmt.Errorf("CPU manager state: defaultCpuSet: %w", err)
	}
	s := &CPUState{Policy: file.PolicyName, Shared: shared, Exclusive: map[types.UID]map[string]nvtopo.CPUSet{}}
	for uid, containers := range file.Entries {
		of := make(map[string]nvtopo.CPUSet, len(containers))
		for name, list := range containers {
			cpus, err := nvtopo.ParseCPUList(list)
			if err != nil {
				return nil, fmt.Errorf("CPU manager state: pod %s, container %q: %w", uid, name, err)
			}
			if uid == "" || name == "" || len(cpus) == 0 {
				return nil, fmt.Errorf("CPU manager state: pod %q, container %q: want a pod, a container and CPUs", uid, name)
			}
			of[name] = cpus
		}
		s.Exclusive[types.UID(uid)] = of
	}
	return s, nil
}

// All returns the exclusive CPUs of all containers. An init container's CPUs may be reused by a later
// container.
func (s *CPUState) All() nvtopo.CPUSet {
	var all []int
	for _, containers := range s.Exclusive {
		for _, cpus := range containers {
			all = append(all, cpus...)
		}
	}
	return nvtopo.NewCPUSet(all...)
}

func strictJSON(data []byte, into any) error {
	if len(data) > maxStateBytes {
		return fmt.Errorf("%d bytes, at most %d are read", len(data), maxStateBytes)
	}
	strict, err := kjson.UnmarshalStrict(data, into)
	return errors.Join(append(strict, err)...)
}
