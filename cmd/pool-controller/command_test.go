// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// The program shows controller-runtime's metrics beside those of the process.
func TestMetrics(t *testing.T) {
	process := prometheus.NewRegistry()
	process.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := prometheus.Gatherers{observed{}.Gatherer(), process}.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "process_start_time_seconds" {
			return
		}
	}
	t.Error("the metrics of the process are missing")
}

func TestRefusedFlags(t *testing.T) {
	for name, tc := range map[string]struct {
		args string
		want string
	}{
		"a negative time until batches":   {"--usage-batch-after=-1h", "--usage-batch-after"},
		"a negative limit":                {"--usage-storage-limit=-1Gi", "want 0 or more"},
		"a limit that is no number":       {"--usage-storage-limit=much", "--usage-storage-limit"},
		"a command without a folder":      {"--export-command={}", "and --export-dir"},
		"a command that gets no file":     {"--export-command=true --export-dir=/tmp", "want {} in it"},
		"a command, and a folder, and {}": {"--export-command={} --export-dir=/tmp --kubeconfig=/none", "/none"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := newCommand()
			cmd.SilenceErrors = true
			cmd.SetArgs(strings.Fields(tc.args))
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %q", err, tc.want)
			}
		})
	}
}
