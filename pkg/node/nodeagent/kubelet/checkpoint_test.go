// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// written is a checkpoint as kubelet's own code writes it.
func written(tb testing.TB, entries ...checkpoint.PodDevicesEntry) []byte {
	tb.Helper()
	data, err := checkpoint.New(entries, map[string][]string{"nvidia.com/gpu": {"GPU-0", "GPU-1"}}).MarshalCheckpoint()
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

func entry(uid, container, resource string, ids map[int64][]string) checkpoint.PodDevicesEntry {
	return checkpoint.PodDevicesEntry{
		PodUID: uid, ContainerName: container, ResourceName: resource, DeviceIDs: ids, AllocResp: []byte("answer of the plugin"),
	}
}

// TestParseCheckpoint: ParseCheckpoint reads what kubelet writes.
func TestParseCheckpoint(t *testing.T) {
	data := written(t,
		entry("uid-b", "train", "nvidia.com/gpu", map[int64][]string{1: {"GPU-3", "GPU-2"}, 0: {"GPU-0"}}),
		entry("uid-a", "warm", "rdma/hca", map[int64][]string{-1: {"hca-1"}}),
		entry("uid-a", "warm", "nvidia.com/gpu", map[int64][]string{0: {"GPU-1"}, 1: {"GPU-1"}}), // on two NUMA nodes
		entry("uid-a", "load", "nvidia.com/gpu", map[int64][]string{-1: {"GPU-1"}}),
	)
	got, err := ParseCheckpoint(data)
	if err != nil {
		t.Fatal(err)
	}
	want := []Record{
		{PodUID: "uid-a", Container: "load", Resource: "nvidia.com/gpu", IDs: []string{"GPU-1"}},
		{PodUID: "uid-a", Container: "warm", Resource: "nvidia.com/gpu", IDs: []string{"GPU-1"}},
		{PodUID: "uid-a", Container: "warm", Resource: "rdma/hca", IDs: []string{"hca-1"}},
		{PodUID: "uid-b", Container: "train", Resource: "nvidia.com/gpu", IDs: []string{"GPU-0", "GPU-2", "GPU-3"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
}

func TestParseIdleCheckpoint(t *testing.T) {
	got, err := ParseCheckpoint(written(t))
	if err != nil || len(got) != 0 {
		t.Errorf("got %v, %v; want no records", got, err)
	}
}

// TestParseCheckpointErrors: ParseCheckpoint names what is wrong.
func TestParseCheckpointErrors(t *testing.T) {
	good := entry("uid", "c", "r", map[int64][]string{0: {"id"}})
	with := func(change func(*checkpoint.PodDevicesEntry)) []byte {
		e := good
		change(&e)
		return written(t, e)
	}
	plain := string(written(t, good))
	cases := map[string]struct {
		data []byte
		want string
	}{
		"an empty file":                      {nil, "ends early"},
		"a file cut in the middle":           {[]byte(plain[:len(plain)/2]), "ends early"},
		"text that is no JSON":               {[]byte("\x00\x00"), "invalid character"},
		"another object":                     {[]byte(`{"policyName":"static"}`), `unknown field "policyName"`},
		"no Data":                            {[]byte(`{"Checksum":1}`), "Data is missing"},
		"no Checksum":                        {[]byte(`{"Data":{}}`), "Checksum is missing"},
		"a second object behind":             {[]byte(plain + "{}"), "text after the object"},
		"a device changed by hand":           {[]byte(strings.Replace(plain, `"id"`, `"ix"`, 1)), "Checksum"},
		"the sum changed by hand":            {[]byte(strings.Replace(plain, `"Checksum":`, `"Checksum":1`, 1)), "Checksum"},
		"the format before Kubernetes 1.20":  {[]byte(strings.Replace(plain, `{"0":["id"]}`, `["id"]`, 1)), "DeviceIDs"},
		"a field of a kubelet to come":       {[]byte(strings.Replace(plain, `"PodUID"`, `"Claim":"x","PodUID"`, 1)), `unknown field "Claim"`},
		"an entry without a pod":             {with(func(e *checkpoint.PodDevicesEntry) { e.PodUID = "" }), "PodDeviceEntries[0].PodUID"},
		"an entry without a container":       {with(func(e *checkpoint.PodDevicesEntry) { e.ContainerName = "" }), "PodDeviceEntries[0].ContainerName"},
		"an entry without a resource":        {with(func(e *checkpoint.PodDevicesEntry) { e.ResourceName = "" }), "PodDeviceEntries[0].ResourceName"},
		"a name longer than any":             {with(func(e *checkpoint.PodDevicesEntry) { e.ContainerName = strings.Repeat("x", 1025) }), "1025 bytes"},
		"an entry without devices":           {with(func(e *checkpoint.PodDevicesEntry) { e.DeviceIDs = nil }), "no devices"},
		"a device without a name":            {with(func(e *checkpoint.PodDevicesEntry) { e.DeviceIDs = map[int64][]string{3: {""}} }), "DeviceIDs[3]"},
		"a NUMA node that cannot be":         {with(func(e *checkpoint.PodDevicesEntry) { e.DeviceIDs = map[int64][]string{-2: {"id"}} }), "NUMA node -2"},
		"two entries for one container":      {written(t, good, good), "appears twice"},
		"a number where a name should be":    {[]byte(strings.Replace(plain, `"PodUID":"uid"`, `"PodUID":7`, 1)), "PodUID"},
		"a checksum that is not a number":    {[]byte(`{"Data":{},"Checksum":"x"}`), "Checksum"},
		"a checksum greater than any number": {[]byte(`{"Data":{},"Checksum":99999999999999999999999}`), "Checksum"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseCheckpoint(tc.data)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, error %v; want an error that says %q", got, err, tc.want)
			}
		})
	}
}

func TestReadCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), CheckpointName)
	if _, err := ReadCheckpoint(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v, want fs.ErrNotExist to be visible", err)
	}
	if err := os.WriteFile(path, written(t, entry("uid", "c", "r", map[int64][]string{0: {"id"}})), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ReadCheckpoint(path); err != nil || len(got) != 1 {
		t.Errorf("got %v, %v; want one record", got, err)
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCheckpoint(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a broken file: %v, want an error that names it", err)
	}
}

// FuzzParseCheckpoint: no input makes it panic, and what it takes is well formed.
func FuzzParseCheckpoint(f *testing.F) {
	f.Add(written(f))
	f.Add(written(f, entry("uid", "c", "r", map[int64][]string{0: {"a", "b"}, 1: {"b"}})))
	f.Add([]byte(`{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{}},"Checksum":0}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, err := ParseCheckpoint(data)
		if err != nil {
			return
		}
		var back checkpointFile
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatalf("taken, but no JSON: %v", err)
		}
		if len(records) != len(back.Data.PodDeviceEntries) {
			t.Errorf("%d records of %d entries", len(records), len(back.Data.PodDeviceEntries))
		}
		for i, r := range records {
			if r.PodUID == "" || r.Container == "" || r.Resource == "" || len(r.IDs) == 0 {
				t.Errorf("record %d is not whole: %+v", i, r)
			}
			for j := range r.IDs {
				if r.IDs[j] == "" || j > 0 && r.IDs[j-1] >= r.IDs[j] {
					t.Errorf("record %d: ids not sorted and distinct: %q", i, r.IDs)
				}
			}
		}
	})
}

// FuzzEntry: whatever entries kubelet's code can write with whole names is read back.
func FuzzEntry(f *testing.F) {
	f.Add("uid", "c", "r", "GPU-0", "GPU-1", int64(0))
	f.Add("uid", "c", "r", "GPU-0", "GPU-0", int64(-1))
	f.Fuzz(func(t *testing.T, uid, container, resource, a, b string, numa int64) {
		e := entry(uid, container, resource, map[int64][]string{numa: {a}, 7: {b}})
		got, err := ParseCheckpoint(written(t, e))
		if err != nil {
			return // names that are empty or too long, other NUMA nodes, text that JSON changes
		}
		if len(got) != 1 || string(got[0].PodUID) != uid || got[0].Container != container || got[0].Resource != resource {
			t.Errorf("read back %+v of %+v", got, e)
		}
	})
}

func BenchmarkParseCheckpoint(b *testing.B) {
	var entries []checkpoint.PodDevicesEntry
	for i := range 110 {
		e := entry(fmt.Sprintf("2c1f8a5e-7f7b-4a39-9d5c-%012d", i), "main", "nvidia.com/gpu", map[int64][]string{0: {fmt.Sprintf("GPU-%d", i)}})
		e.AllocResp = make([]byte, 600)
		entries = append(entries, e)
	}
	data := written(b, entries...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseCheckpoint(data); err != nil {
			b.Fatal(err)
		}
	}
}
