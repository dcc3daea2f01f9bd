// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/testutil"
)

// Names of metrics.
const (
	attemptsName = "scheduler_schedule_attempts_total"
	attemptName  = "scheduler_scheduling_attempt_duration_seconds"
	batchName    = "scheduler_batch_attempts_total"
	heapName     = "go_memstats_heap_alloc_bytes"
	nodesName    = "scheduler_nvtopo_nodes"
	plansName    = "scheduler_nvtopo_gang_plan_duration_seconds"
	requestsName = "apiserver_request_total" // the API server's
)

const (
	readyPoll = 10 * time.Millisecond
	// readyLimit is ample for reading some thousand nodes.
	readyLimit = 2 * time.Minute
)

// newSchedulerClient returns a client of a scheduler's own HTTPS server with the administrator's
// certificate, which the scheduler accepts because the API server does. The scheduler's own
// certificate is self-signed.
func newSchedulerClient(admin *rest.Config, port int) (rest.Interface, error) {
	config := &rest.Config{
		Host:            "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		TLSClientConfig: rest.TLSClientConfig{CertData: admin.CertData, KeyData: admin.KeyData, Insecure: true}, // loopback, a child of ours
		QPS:             -1,
		ContentConfig:   rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of the scheduler: %w", err)
	}
	return client, nil
}

// get reads a page of a scheduler or of the API server. A starting scheduler refuses requests until
// it has read the authority of clients' certificates, and its caches.
func get(ctx context.Context, c rest.Interface, uri string) ([]byte, error) {
	var body []byte
	var last error
	err := wait.PollUntilContextTimeout(ctx, readyPoll, readyLimit, true, func(ctx context.Context) (bool, error) {
		body, last = c.Get().RequestURI(uri).DoRaw(ctx)
		return last == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for %s: %w", uri, errors.Join(err, last))
	}
	return body, nil
}

// store stores a profile in a file.
func store(ctx context.Context, c rest.Interface, uri, file string) error {
	body, err := get(ctx, c, uri)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the folder of a profile: %w", err)
	}
	if err := os.WriteFile(file, body, 0o644); err != nil {
		return fmt.Errorf("store a profile: %w", err)
	}
	return nil
}

// families are metrics by name; they implement Gatherer, for testutil.
type families map[string]*dto.MetricFamily

// Gather never fails.
func (f families) Gather() ([]*dto.MetricFamily, error) { return slices.Collect(maps.Values(f)), nil }

// scrape reads the named metrics of a scheduler or of the API server.
func scrape(ctx context.Context, c rest.Interface, names ...string) (families, error) {
	body, err := get(ctx, c, "/metrics")
	if err != nil {
		return nil, err
	}
	return parseMetrics(bytes.NewReader(body), names...)
}

// parseMetrics reads the named families out of a text exposition. The API
// server's has megabytes of others.
func parseMetrics(r io.Reader, names ...string) (families, error) {
	var kept bytes.Buffer
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		// This may keep lines of other families that begin with a name; they do no harm.
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(strings.TrimPrefix(line, "# TYPE "), n) }) {
			kept.WriteString(line)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read metrics: %w", err)
		}
	}
	out, err := testutil.TextToMetricFamilies(&kept)
	if err != nil {
		return nil, fmt.Errorf("decode metrics: %w", err)
	}
	return out, nil
}

// sums adds up a counter or gauge by the key of its labels, where key returns true.
func (f families) sums(name string, key func(labels map[string]string) (string, bool)) map[string]float64 {
	out := map[string]float64{}
	for _, m := range f[name].GetMetric() {
		labels := make(map[string]string, len(m.GetLabel()))
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if k, ok := key(labels); ok {
			out[k] += m.GetCounter().GetValue() + m.GetGauge().GetValue() // a metric is either of them
		}
	}
	return out
}

// byLabel returns a key for sums: the value of a label.
func byLabel(name string) func(map[string]string) (string, bool) {
	return func(labels map[string]string) (string, bool) { return labels[name], true }
}

// latencies returns the median and the 99th percentile of a family's histograms whose labels
// include these, in ms, and the number of values; without values all are 0.
func (f families) latencies(name string, labels map[string]string) (p50, p99 float64, n int) {
	h, err := testutil.GetHistogramVecFromGatherer(f, name, labels)
	if err != nil || h.GetAggregatedSampleCount() == 0 {
		return 0, 0, 0
	}
	return ms(h.Quantile(0.5)), ms(h.Quantile(0.99)), int(h.GetAggregatedSampleCount())
}

func ms(seconds float64) float64 { return seconds * 1e3 }

// writeKey returns the key of a write of a pod, of one of its subresources or of an event.
func writeKey(labels map[string]string) (string, bool) {
	resource, verb := labels["resource"], labels["verb"]
	if !slices.Contains([]string{"POST", "PUT", "PATCH", "APPLY"}, verb) {
		return "", false
	}
	if sub := labels["subresource"]; sub != "" && resource == "pods" {
		resource += "/" + sub
	}
	return verb + " " + resource + " " + labels["code"], resource == "events" || strings.HasPrefix(resource, "pods")
}

// writes counts the API server's writes of pods and events so far.
func (c *cluster) writes(ctx context.Context) (map[string]float64, error) {
	f, err := scrape(ctx, c.kube.Discovery().RESTClient(), requestsName)
	return f.sums(requestsName, writeKey), err
}

// countWrites sets the numbers of writes since before.
func (c *cluster) countWrites(ctx context.Context, before map[string]float64, out *Cell) error {
	after, err := c.writes(ctx)
	if err != nil {
		return err
	}
	out.Writes = map[string]float64{}
	for key, n := range after {
		n -= before[key]
		switch {
		case n == 0:
			continue
		case strings.Contains(key, " events "): // not in the sums
		case !strings.Contains(key, " 2"):
			out.RefusedPerPod += n / float64(out.Pods)
		default:
			out.WritesPerPod += n / float64(out.Pods)
		}
		out.Writes[key] = n
	}
	return nil
}

// readMetrics reads the scheduler's metrics once they include every pod: an attempt is observed a
// moment after its binding is seen.
func (out *Cell) readMetrics(ctx context.Context, client rest.Interface) error {
	var f families
	var seen float64
	err := wait.PollUntilContextTimeout(ctx, settlePoll, settleLimit, true, func(ctx context.Context) (_ bool, err error) {
		f, err = scrape(ctx, client, attemptsName, attemptName, batchName, plansName)
		seen = f.sums(attemptsName, byLabel("result"))["scheduled"]
		return seen >= float64(out.Pods), err
	})
	if err != nil {
		return fmt.Errorf("wait for %d scheduled pods in the scheduler's metrics, which have %g: %w", out.Pods, seen, err)
	}
	out.Attempts = f.sums(attemptsName, byLabel("result"))
	for _, n := range out.Attempts {
		out.Unscheduled += n
	}
	out.Unscheduled -= out.Attempts["scheduled"]
	out.Batch = f.sums(batchName, byLabel("result"))
	out.HintUsed = out.Batch["hint_used"]
	var attempts int
	out.AttemptP50Ms, out.AttemptP99Ms, attempts = f.latencies(attemptName, map[string]string{"result": "scheduled"})
	out.PlanP50Ms, out.PlanP99Ms, out.Plans = f.latencies(plansName, map[string]string{"result": "placed"})
	if attempts == 0 {
		return errors.New("the scheduler's metrics have no latencies")
	}
	return nil
}

// readHeap reads the live heap after a collection.
func (out *Cell) readHeap(ctx context.Context, client rest.Interface) error {
	if _, err := get(ctx, client, "/debug/pprof/heap?gc=1"); err != nil {
		return err
	}
	f, err := scrape(ctx, client, heapName)
	out.LiveHeapMiB = f.sums(heapName, byLabel(""))[""] / (1 << 20)
	return err
}

// countGraphs reads the number of nodes with a valid graph as the window begins.
func (out *Cell) countGraphs(ctx context.Context, client rest.Interface) error {
	f, err := scrape(ctx, client, nodesName)
	out.GraphsRead = int(f.sums(nodesName, byLabel("state"))["counted"])
	return err
}
