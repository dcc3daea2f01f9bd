// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestFolderRemoval: folders are removed from the leaves up.
func TestFolderRemoval(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	for _, p := range []string{"a/b/c", "a/d", "e"} {
		if err := os.MkdirAll(filepath.Join(root, p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeFolders(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", root, err)
	}
	if err := removeFolders(root); err != nil {
		t.Errorf("remove what is gone: %v", err)
	}
}

// TestAbandonedCgroups: only cgroups of ended owners are abandoned.
func TestAbandonedCgroups(t *testing.T) {
	mine := fmt.Sprintf("%s%d-1", cgroupPrefix, os.Getpid())
	if abandoned(mine) {
		t.Errorf("%s is said to be abandoned by this process", mine)
	}
	// Above the greatest number that Linux gives a process (proc(5), pid_max).
	if gone := cgroupPrefix + "4194305-1"; !abandoned(gone) {
		t.Errorf("%s is not said to be abandoned", gone)
	}
}
