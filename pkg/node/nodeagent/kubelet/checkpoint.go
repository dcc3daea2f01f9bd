// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// CheckpointName is the file's name in kubelet's device plugin directory.
const CheckpointName = "kubelet_internal_checkpoint"

// Limits against an absurd file. A node has some hundred pods at most. An entry is mostly the plugin's
// response, a few hundred bytes.
const (
	maxCheckpointBytes   = 64 << 20
	maxCheckpointEntries = 1 << 16
	maxDevicesPerEntry   = 1 << 16
	maxNameBytes         = 1024
)

// Record is kubelet's device record of one container and resource.
type Record struct {
	PodUID    types.UID // a static pod's own UID, not its mirror pod's
	Container string
	Resource  string
	IDs       []string // sorted, each once
}

// checkpointFile is the V2 format of the checkpoint. Kubelet's own type has unexported parts and accepts
// unknown fields. So this type reads the fields, and kubelet's code verifies the checksum.
type checkpointFile struct {
	Data *struct {
		PodDeviceEntries  []checkpoint.PodDevicesEntry
		RegisteredDevices map[string][]string
	}
	Checksum *uint64
}

// ReadCheckpoint reads the checkpoint at path; see ParseCheckpoint. The error wraps fs.ErrNotExist if the
// file does not exist.
func ReadCheckpoint(path string) ([]Record, error) {
	data, err := readLimited(path)
	if err != nil {
		return nil, fmt.Errorf("kubelet's checkpoint: %w", err)
	}
	records, err := ParseCheckpoint(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return records, nil
}

func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxCheckpointBytes+1))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxCheckpointBytes {
		return nil, fmt.Errorf("%s: more than %d bytes", path, maxCheckpointBytes)
	}
	return data, nil
}

// ParseCheckpoint parses the device manager's checkpoint (the V2 format, Kubernetes 1.20 and later) and
// sorts the records by pod, container and resource. It is strict. These are errors: an unknown field,
// text after the object, a duplicate record or one without a name, and a wrong checksum. A future
// kubelet's file with more fields is an error too; its checksum could not be computed anyway.
func ParseCheckpoint(data []byte) ([]Record, error) {
	var f checkpointFile
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&f); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("kubelet's checkpoint ends early, after %d bytes: %w", len(data), err)
		}
		return nil, fmt.Errorf("kubelet's checkpoint: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("kubelet's checkpoint: text after the object")
	}
	switch {
	case f.Data == nil:
		return nil, errors.New("kubelet's checkpoint: Data is missing")
	case f.Checksum == nil:
		return nil, errors.New("kubelet's checkpoint: Checksum is missing")
	case len(f.Data.PodDeviceEntries) > maxCheckpointEntries:
		return nil, fmt.Errorf("kubelet's checkpoint: Data.PodDeviceEntries: %d, at most %d are read",
			len(f.Data.PodDeviceEntries), maxCheckpointEntries)
	}
	records, err := parseEntries(f.Data.PodDeviceEntries)
	if err != nil {
		return nil, fmt.Errorf("kubelet's checkpoint: Data.%w", err)
	}
	if err := verifyChecksum(data); err != nil {
		return nil, err
	}
	return records, nil
}

// verifyChecksum decodes the file with kubelet's own type and verifies its checksum.
func verifyChecksum(data []byte) error {
	cp := checkpoint.New(nil, nil)
	if err := cp.UnmarshalCheckpoint(data); err != nil {
		return fmt.Errorf("kubelet's checkpoint: %w", err)
	}
	if err := cp.VerifyChecksum(); err != nil {
		return fmt.Errorf("kubelet's checkpoint: Checksum: %w", err)
	}
	return nil
}

func parseEntries(entries []checkpoint.PodDevicesEntry) ([]Record, error) {
	records := make([]Record, 0, len(entries))
	for i := range entries {
		r, err := parseEntry(&entries[i])
		if err != nil {
			return nil, fmt.Errorf("PodDeviceEntries[%d].%w", i, err)
		}
		records = append(records, r)
	}
	slices.SortFunc(records, compareRecords)
	for i := 1; i < len(records); i++ {
		if compareRecords(records[i-1], records[i]) == 0 {
			r := &records[i]
			return nil, fmt.Errorf("PodDeviceEntries: pod %s, container %s, resource %s appears twice", r.PodUID, r.Container, r.Resource)
		}
	}
	return records, nil
}

func parseEntry(e *checkpoint.PodDevicesEntry) (Record, error) {
	for _, f := range []struct{ name, value string }{
		{"PodUID", e.PodUID}, {"ContainerName", e.ContainerName}, {"ResourceName", e.ResourceName},
	} {
		if f.value == "" || len(f.value) > maxNameBytes {
			return Record{}, fmt.Errorf("%s: %d bytes, want 1 to %d", f.name, len(f.value), maxNameBytes)
		}
	}
	r := Record{PodUID: types.UID(e.PodUID), Container: e.ContainerName, Resource: e.ResourceName}
	for numa, ids := range e.DeviceIDs {
		// -1 is the entry of devices without a NUMA node.
		if numa < -1 || numa > math.MaxInt32 {
			return Record{}, fmt.Errorf("DeviceIDs: NUMA node %d", numa)
		}
		if len(r.IDs)+len(ids) > maxDevicesPerEntry {
			return Record{}, fmt.Errorf("DeviceIDs: more than %d devices", maxDevicesPerEntry)
		}
		for _, id := range ids {
			if id == "" || len(id) > maxNameBytes {
				return Record{}, fmt.Errorf("DeviceIDs[%d]: an id of %d bytes, want 1 to %d", numa, len(id), maxNameBytes)
			}
		}
		r.IDs = append(r.IDs, ids...)
	}
	if len(r.IDs) == 0 {
		return Record{}, errors.New("DeviceIDs: no devices")
	}
	// A device on several NUMA nodes is listed under each.
	slices.Sort(r.IDs)
	r.IDs = slices.Compact(r.IDs)
	return r, nil
}

func compareRecords(a, b Record) int {
	if c := strings.Compare(string(a.PodUID), string(b.PodUID)); c != 0 {
		return c
	}
	if c := strings.Compare(a.Container, b.Container); c != 0 {
		return c
	}
	return strings.Compare(a.Resource, b.Resource)
}
