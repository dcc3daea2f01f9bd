// SPDX-License-Identifier: Apache-2.0

package devicemanager

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	checkpointerrors "k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// Entry is kubelet's record for one container and resource.
type Entry struct {
	PodUID    types.UID
	Container string
	Resource  string
	IDs       []string // sorted
}

// Checkpoint reads kubelet's record from disk with kubelet's own code, in the
// order of pod, container and resource.
func (m *Manager) Checkpoint(tb testing.TB) []Entry {
	tb.Helper()
	out, err := readCheckpoint()
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func readCheckpoint() ([]Entry, error) {
	store, err := checkpointmanager.NewCheckpointManager(PluginDir)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", PluginDir, err)
	}
	data := checkpoint.New(nil, map[string][]string{})
	if err := store.GetCheckpoint("kubelet_internal_checkpoint", data); err != nil {
		if errors.Is(err, checkpointerrors.ErrCheckpointNotFound) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s: %w", CheckpointFile, err)
	}
	entries, _ := data.GetData()
	out := make([]Entry, 0, len(entries))
	for _, e := range entries {
		out = append(out, Entry{
			PodUID:    types.UID(e.PodUID),
			Container: e.ContainerName,
			Resource:  e.ResourceName,
			IDs:       slices.Sorted(slices.Values(e.DeviceIDs.Devices().UnsortedList())),
		})
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.Container, b.Container), cmp.Compare(a.Resource, b.Resource))
	})
	return out, nil
}

// Recorded returns the sorted ids kubelet recorded for a container, over all
// resources; nil if there are none.
func (m *Manager) Recorded(tb testing.TB, uid types.UID, container string) []string {
	tb.Helper()
	var out []string
	for _, e := range m.Checkpoint(tb) {
		if e.PodUID == uid && e.Container == container {
			out = append(out, e.IDs...)
		}
	}
	slices.Sort(out)
	return out
}
