// SPDX-License-Identifier: Apache-2.0

package pinning

import (
	"os"
	"path/filepath"
	"testing"
)

// TestHostFromSysfs: the host is read from sysfs.
func TestHostFromSysfs(t *testing.T) {
	h := host{root: sysfs(t, "0-3,8-11", "0,2")}
	isolated := filepath.Join(h.root, "devices/system/cpu/isolated")
	for name, tc := range map[string]struct {
		isolated *string
		want     string
	}{
		"no CPU can be isolated": {want: "0-3,8-11"},
		"none is":                {isolated: new("\n"), want: "0-3,8-11"},
		"some are":               {isolated: new("3,10-12\n"), want: "0-2,8-9"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.isolated != nil {
				if err := os.WriteFile(isolated, []byte(*tc.isolated), 0o600); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(isolated)
			}
			if got, err := h.online(); err != nil || got.String() != tc.want {
				t.Errorf("CPUs %s, %v, want %s", got, err, tc.want)
			}
		})
	}
	if got, err := h.memory(); err != nil || got.String() != "0,2" {
		t.Errorf("NUMA nodes with memory %s, %v, want 0,2", got, err)
	}
	for file, read := range map[string]func() error{
		"devices/system/cpu/online":      func() error { _, err := h.online(); return err },
		"devices/system/node/has_memory": func() error { _, err := h.memory(); return err },
	} {
		if err := os.WriteFile(filepath.Join(h.root, file), []byte("all of them"), 0o600); err != nil {
			t.Fatal(err)
		}
		if read() == nil {
			t.Errorf("%s: nonsense is no error", file)
		}
		if err := os.Remove(filepath.Join(h.root, file)); err != nil {
			t.Fatal(err)
		}
		if read() == nil {
			t.Errorf("%s: a missing file is no error", file)
		}
	}
}
