// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestSchedulerConfig: a configuration with which the scheduler would not start is refused before a cluster is
// started, by the scheduler's last line.
func TestSchedulerConfig(t *testing.T) {
	dir := t.TempDir()
	scheduler, config := filepath.Join(dir, "scheduler"), filepath.Join(dir, "c.yaml")
	script := "#!/bin/sh\n[ \"$1 $3\" = '--check-config -v=5' ] || exit 0\necho a log line\necho \"nvtopo-scheduler: ${2#--config=}: profilez: there is no such field\" >&2\nexit 1\n"
	for path, text := range map[string]string{scheduler: script, config: "profilez: []\n"} {
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	s := settings{kwok: scheduler, scheduler: scheduler, config: config, schedulerArgs: []string{"-v=5"}}
	want := "--scheduler-config: nvtopo-scheduler: " + config + ": profilez: there is no such field"
	if _, err := s.options(t.Context(), io.Discard, io.Discard); err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
