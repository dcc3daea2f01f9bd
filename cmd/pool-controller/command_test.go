// SPDX-License-Identifier: Apache-2.0

package main

import (
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
