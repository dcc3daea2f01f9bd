// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// families are metrics by name.
type families map[string]*dto.MetricFamily

// parseMetrics reads the named families out of a text exposition. The API
// server's has megabytes of others.
func parseMetrics(r io.Reader, names ...string) (families, error) {
	var kept bytes.Buffer
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if wantedLine(line, names) {
			kept.WriteString(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	out, err := parser.TextToMetricFamilies(&kept)
	if err != nil {
		return nil, fmt.Errorf("decode metrics: %w", err)
	}
	return out, nil
}

// wantedLine may keep lines of other families that begin with a name; they do no harm.
func wantedLine(line string, names []string) bool {
	line = strings.TrimPrefix(line, "# TYPE ")
	for _, n := range names {
		if strings.HasPrefix(line, n) {
			return true
		}
	}
	return false
}

// sums adds a counter family up by one label's value, of the metrics for which keep says yes.
func (f families) sums(name string, key func(labels map[string]string) (string, bool)) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f[name].GetMetric() {
		if k, ok := key(labelsOf(m)); ok {
			out[k] += m.GetCounter().GetValue()
		}
	}
	return out
}

func labelsOf(m *dto.Metric) map[string]string {
	out := make(map[string]string, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		out[l.GetName()] = l.GetValue()
	}
	return out
}

// byLabel is a key of sums.
func byLabel(name string) func(map[string]string) (string, bool) {
	return func(labels map[string]string) (string, bool) { return labels[name], true }
}

// histogram is the sum of histograms with equal buckets.
type histogram struct {
	bounds []float64 // upper, without +Inf
	counts []float64 // cumulative, one for each bound
	count  float64
	sum    float64
}

// histogram adds a family's histograms up whose labels include these.
func (f families) histogram(name string, labels map[string]string) histogram {
	var h histogram
	for _, m := range f[name].GetMetric() {
		if !includes(labelsOf(m), labels) {
			continue
		}
		h.count += float64(m.GetHistogram().GetSampleCount())
		h.sum += m.GetHistogram().GetSampleSum()
		i := 0
		for _, b := range m.GetHistogram().GetBucket() {
			if math.IsInf(b.GetUpperBound(), 1) {
				continue
			}
			if i == len(h.bounds) {
				h.bounds, h.counts = append(h.bounds, b.GetUpperBound()), append(h.counts, 0)
			}
			h.counts[i] += float64(b.GetCumulativeCount())
			i++
		}
	}
	return h
}

func includes(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// quantile is the value that a share q of the samples does not exceed, on the
// straight line inside a bucket, as Prometheus has it; NaN without samples. A
// quantile above the last bound is that bound.
func (h *histogram) quantile(q float64) float64 {
	if h.count == 0 || len(h.bounds) == 0 {
		return math.NaN()
	}
	rank := q * h.count
	lower, below := 0.0, 0.0
	for i, bound := range h.bounds {
		if h.counts[i] >= rank && h.counts[i] > below {
			return lower + (bound-lower)*(rank-below)/(h.counts[i]-below)
		}
		lower, below = bound, h.counts[i]
	}
	return lower
}

func (h *histogram) mean() float64 { return h.sum / h.count }
