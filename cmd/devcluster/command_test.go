// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/scheduler/controller"
)

// TestFaultTimes: what fail says of an exporter is how long the Lease may still last, and how long the
// scheduler takes after that to write the condition. What heal says is how long that takes it at most.
func TestFaultTimes(t *testing.T) {
	ends := fmt.Sprintf("STALE True for %.0f s more at most, or %.0f s where it has just become so", controller.StaleWithin.Seconds(), controller.FreshWithin.Seconds())
	for where, text := range map[string]string{
		"heal exporter": follows[devcluster.FaultExporter][1], "heal node": follows[devcluster.FaultNode][1], "heal --help": failCommand(false).Long,
	} {
		if !strings.Contains(text, ends) {
			t.Errorf("%s says\n%s\nwant in it\n%s", where, text, ends)
		}
	}
	want := fmt.Sprintf("its exporter has ended. 'kubectl get ngt' shows STALE True in %.0f s at most: its Lease runs out within %.0f s, and the scheduler says so within %.0f s after that",
		(nodelease.Duration + controller.StaleWithin).Seconds(), nodelease.Duration.Seconds(), controller.StaleWithin.Seconds())
	if got := follows[devcluster.FaultExporter][0]; got != want {
		t.Errorf("fail exporter says\n%s\nwant\n%s", got, want)
	}
}

// TestFailHelp: the help says that pods of what has failed show Running, and what shows that it has failed.
func TestFailHelp(t *testing.T) {
	for _, want := range []string{
		"still shows Running", fmt.Sprintf("%.0f s later at most", nodelease.Duration.Seconds()), check.StaleExporter, check.StaleAgent, `"nvtopo top"`,
		"kubectl -n nvtopo-system get leases -o custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime",
	} {
		if help := failCommand(true).Long; !strings.Contains(help, want) {
			t.Errorf("want %q in the help\n%s", want, help)
		}
	}
}

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
