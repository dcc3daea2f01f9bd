// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
)

const requestsName = "apiserver_request_total"

// writes counts the API server's writes of pods and events so far.
func (c *cluster) writes(ctx context.Context) (map[string]float64, error) {
	body, err := c.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	f, err := parseMetrics(bytes.NewReader(body), requestsName)
	if err != nil {
		return nil, err
	}
	return f.sums(requestsName, writeKey), nil
}

// writeKey names a write of a pod, of one of its subresources or of an event.
func writeKey(labels map[string]string) (string, bool) {
	resource, verb := labels["resource"], labels["verb"]
	switch verb {
	case "POST", "PUT", "PATCH", "APPLY":
	default:
		return "", false
	}
	if sub := labels["subresource"]; sub != "" && resource == "pods" {
		resource += "/" + sub
	}
	return verb + " " + resource + " " + labels["code"], resource == "events" || strings.HasPrefix(resource, "pods")
}

// countWrites sets what was written since before.
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
		case strings.Contains(key, " events "):
			out.EventsPerPod += n / float64(out.Pods)
		case !strings.Contains(key, " 2"):
			out.RefusedPerPod += n / float64(out.Pods)
		default:
			out.WritesPerPod += n / float64(out.Pods)
		}
		out.Writes[key] = n
	}
	return nil
}
