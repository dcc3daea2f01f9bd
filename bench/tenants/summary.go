// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// mostRatio is the greatest ratio of the median latency to that without load.
const mostRatio = 2

// alone is the name of the rows without another tenant's load.
const alone = "alone"

// row is the pods measured beside one load.
type row struct {
	Beside string        `json:"beside"`
	Millis report.Sample `json:"millis"` // from creation to binding
	// Load is the load's own description: requests, answers.
	Load string `json:"load,omitempty"`
}

// own returns the latencies without load, of all rows that have none.
func own(rows []row) report.Sample {
	var s report.Sample
	for i := range rows {
		if rows[i].Beside == alone {
			s = append(s, rows[i].Millis...)
		}
	}
	return s
}

func judge(rows []row) []string {
	var missed []string
	base := own(rows).Median()
	for i := range rows {
		if r := rows[i].Millis.Median() / base; rows[i].Beside != alone && r > mostRatio {
			missed = append(missed, fmt.Sprintf("%s: %.1f times as long as alone, want at most %d", rows[i].Beside, r, mostRatio))
		}
	}
	return missed
}

func table(o *options, rows []row) *report.Table {
	t := &report.Table{
		Title:  fmt.Sprintf("A pod of one GPU from creation to binding, in ms (%d pods a row, %d nodes):", o.Pods, o.Nodes),
		Header: []string{"beside", "p50", "p99", "p50 by alone", "p99 by alone", "load"},
	}
	base := own(rows)
	for i := range rows {
		s := rows[i].Millis
		p50, p99 := s.Median(), s.Quantile(0.99)
		t.Add(rows[i].Beside, fmt.Sprintf("%.1f", p50), fmt.Sprintf("%.1f", p99),
			fmt.Sprintf("%.2f", p50/base.Median()), fmt.Sprintf("%.2f", p99/base.Quantile(0.99)), rows[i].Load)
	}
	return t
}
