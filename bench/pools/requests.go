// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/nvtopo/nvtopo/bench/internal/report"
)

// requestsTotal is the API server's counter of completed requests.
const requestsTotal = "apiserver_request_total"

// requestsDone returns the numbers of requests that the API server, which is in this process, has
// answered.
func requestsDone() (map[string]float64, error) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() == requestsTotal {
			return byRequest(f.GetMetric()), nil
		}
	}
	return nil, fmt.Errorf("the API server has no metric %s", requestsTotal)
}

// byRequest adds up requests by verb and resource, refused ones separately.
func byRequest(metrics []*dto.Metric) map[string]float64 {
	out := map[string]float64{}
	for _, m := range metrics {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		key := labels["verb"] + " " + labels["resource"]
		if sub := labels["subresource"]; sub != "" {
			key += "/" + sub
		}
		if code := labels["code"]; code >= "400" {
			key += ", refused: " + code
		}
		out[key] += m.GetCounter().GetValue()
	}
	return out
}

// perJob returns the growth of counters, for each job.
func perJob(before, after map[string]float64, jobs int) map[string]float64 {
	out := map[string]float64{}
	for key, n := range after {
		if more := n - before[key]; more > 0 {
			out[key] = more / float64(jobs)
		}
	}
	return out
}

// fewest is the least number of requests per job for a row of the table.
const fewest = 0.1

// requestTable returns a table with a row for each kind of request, the most frequent first:
// medians over repeats.
func requestTable(o *options, cells []Cell) *report.Table {
	t := &report.Table{Title: "Requests that the API server answered, for each job", Header: append([]string{"request"}, o.Profiles...)}
	kinds, most := map[string][]float64{}, map[string]float64{} // by key: the value of each scheduler, and the greatest
	for i := range cells {
		for key := range cells[i].Requests {
			kinds[key] = nil
		}
	}
	for key := range kinds {
		for _, profile := range o.Profiles {
			n := sampleOf(cells, profile)(func(c *Cell) float64 { return c.Requests[key] }).Median()
			kinds[key] = append(kinds[key], n)
			if !math.IsNaN(n) { // no cell of that scheduler
				most[key] = max(most[key], n)
			}
		}
	}
	order := func(a, b string) int { return cmp.Or(cmp.Compare(most[b], most[a]), cmp.Compare(a, b)) }
	for _, key := range slices.SortedFunc(maps.Keys(kinds), order) {
		if most[key] < fewest {
			break
		}
		row := []string{key}
		for _, n := range kinds[key] {
			row = append(row, report.Number(n, 2))
		}
		t.Add(row...)
	}
	return t
}
