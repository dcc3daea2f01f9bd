// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetrics: the metrics follow readings and writes.
func TestMetrics(t *testing.T) {
	r := newTestEnv(t, Config{})
	sick := uniform(t, 6, "NVIDIA H200", "NV18")
	sick.GPUs[2].Unhealthy = "Xid 79"
	sick.GPUs[3].Degraded = "NVLink error"
	sick.GPUs[4].MIG = true
	sick.GPUs[5].MIG, sick.GPUs[5].Unhealthy = true, "Xid 79"
	r.src.graph, r.src.problems = sick, []Problem{{GPU: "GPU-2", Text: "x"}}
	r.publish(t)
	r.src.err = errors.New("no answer")
	if err := r.exporter.PublishOnce(t.Context()); err == nil {
		t.Fatal("no error")
	}
	const want = `
# HELP nvtopo_exporter_fabric_links NVLinks, or the like of other vendors, added up over the pairs of GPUs in the last good graph.
# TYPE nvtopo_exporter_fabric_links gauge
nvtopo_exporter_fabric_links 270
# HELP nvtopo_exporter_gpus GPUs in the last good graph.
# TYPE nvtopo_exporter_gpus gauge
nvtopo_exporter_gpus 6
# HELP nvtopo_exporter_gpus_degraded GPUs of the healthy ones that may be used only alone, never with others.
# TYPE nvtopo_exporter_gpus_degraded gauge
nvtopo_exporter_gpus_degraded 1
# HELP nvtopo_exporter_gpus_healthy GPUs in the last good graph that can be given out whole.
# TYPE nvtopo_exporter_gpus_healthy gauge
nvtopo_exporter_gpus_healthy 3
# HELP nvtopo_exporter_gpus_partitioned Healthy GPUs in the last good graph that are divided into slices (MIG), and so not given out whole.
# TYPE nvtopo_exporter_gpus_partitioned gauge
nvtopo_exporter_gpus_partitioned 1
# HELP nvtopo_exporter_last_success_timestamp_seconds Unix time at which the published objects last agreed with a reading.
# TYPE nvtopo_exporter_last_success_timestamp_seconds gauge
nvtopo_exporter_last_success_timestamp_seconds 1.7e+09
# HELP nvtopo_exporter_links Pairs of GPUs in the last good graph by link class.
# TYPE nvtopo_exporter_links gauge
nvtopo_exporter_links{class="NV18"} 15
# HELP nvtopo_exporter_problems Things the last good reading had to do without.
# TYPE nvtopo_exporter_problems gauge
nvtopo_exporter_problems 1
# HELP nvtopo_exporter_read_errors_total Readings that gave no graph.
# TYPE nvtopo_exporter_read_errors_total counter
nvtopo_exporter_read_errors_total 1
# HELP nvtopo_exporter_write_errors_total Failed writes to the API server by object.
# TYPE nvtopo_exporter_write_errors_total counter
nvtopo_exporter_write_errors_total{object="labels"} 0
nvtopo_exporter_write_errors_total{object="lease"} 0
nvtopo_exporter_write_errors_total{object="spec"} 0
nvtopo_exporter_write_errors_total{object="status"} 0
# HELP nvtopo_exporter_writes_total Writes to the API server by object: spec, status, labels, lease.
# TYPE nvtopo_exporter_writes_total counter
nvtopo_exporter_writes_total{object="labels"} 2
nvtopo_exporter_writes_total{object="lease"} 2
nvtopo_exporter_writes_total{object="spec"} 1
nvtopo_exporter_writes_total{object="status"} 2
`
	names := []string{
		"nvtopo_exporter_gpus", "nvtopo_exporter_gpus_healthy", "nvtopo_exporter_gpus_partitioned", "nvtopo_exporter_gpus_degraded", "nvtopo_exporter_links", "nvtopo_exporter_fabric_links", "nvtopo_exporter_problems",
		"nvtopo_exporter_read_errors_total", "nvtopo_exporter_write_errors_total", "nvtopo_exporter_writes_total",
		"nvtopo_exporter_last_success_timestamp_seconds",
	}
	if err := testutil.GatherAndCompare(r.exporter.Gatherer(), strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	if n, err := testutil.GatherAndCount(r.exporter.Gatherer(), "nvtopo_exporter_read_duration_seconds"); err != nil || n != 1 {
		t.Errorf("read_duration_seconds: %d series, error %v", n, err)
	}
}
