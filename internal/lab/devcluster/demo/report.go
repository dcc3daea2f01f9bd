// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Result is the outcome of one pod.
type Result struct {
	Pod     string `json:"pod"`
	Asked   int    `json:"asked"`            // number of GPUs
	Wishes  string `json:"wishes,omitempty"` // its other requirements, in words
	Node    string `json:"node,omitempty"`
	Machine string `json:"machine,omitempty"` // the node's name in the catalogue
	// GPUs are indices in ascending order, UUIDs in ring order.
	GPUs  []int    `json:"gpus"`
	UUIDs []string `json:"uuids"`
	// LinkClass and RingBandwidthGBps are as the scheduler annotated them;
	// absent for a single GPU.
	LinkClass         string  `json:"linkClass,omitempty"`
	RingBandwidthGBps float64 `json:"ringBandwidthGBps,omitempty"`
	// BestGPUs and BestRingBandwidthGBps are the brute force's best result on that node at that time.
	BestGPUs              []int   `json:"bestGPUs"`
	BestRingBandwidthGBps float64 `json:"bestRingBandwidthGBps,omitempty"`
	// BestNodes are the nodes that the published order allowed at that time, by the brute force.
	BestNodes []string `json:"bestNodes"`
	NUMANodes []int    `json:"numaNodes"`
	CPUs      string   `json:"cpus,omitempty"`
	// Reason is why the scheduler did not place the pod.
	Reason string `json:"reason,omitempty"`
	// Impossible is true if no machine can serve the pod.
	Impossible bool `json:"impossible,omitempty"`
	// Problem is the check's finding; empty if the placement is right.
	Problem string `json:"problem,omitempty"`
}

// Report is the outcome of a demo, pods in the order of the workload.
type Report struct {
	Results []Result
}

// Problems returns the findings of the check, one line each.
func (r *Report) Problems() []string {
	var out []string
	for i := range r.Results {
		if p := r.Results[i].Problem; p != "" {
			out = append(out, "pod "+r.Results[i].Pod+": "+p)
		}
	}
	return out
}

// Placed returns the number of pods with a node, and of those without a finding.
func (r *Report) Placed() (right, all int) {
	for i := range r.Results {
		if p := &r.Results[i]; p.Node != "" {
			all++
			if p.Problem == "" {
				right++
			}
		}
	}
	return right, all
}

// WriteJSON writes one JSON object per pod, each on a line of its own.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false) // ">=NVLINK" is for people
	for i := range r.Results {
		if err := enc.Encode(&r.Results[i]); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// WriteTable writes the placed pods as a table, and under it the others with
// the scheduler's reason.
func (r *Report) WriteTable(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tASKED\tNODE\tGPUS\tLINK\tGB/S\tBEST\tNUMA\tCPUS\t")
	for i := range r.Results {
		p := &r.Results[i]
		if p.Node == "" {
			continue
		}
		mark := ""
		if p.Problem != "" {
			mark = "WRONG"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", p.Pod, p.asked(), p.Node, join(p.GPUs), dash(p.LinkClass),
			gbps(p.RingBandwidthGBps), gbps(p.BestRingBandwidthGBps), join(p.NUMANodes), dash(p.CPUs), mark)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	for i := range r.Results {
		p := &r.Results[i]
		if p.Node != "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "\n%s (%s) was not placed: %s\n", p.Pod, p.asked(), p.Reason); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

func (p *Result) asked() string {
	if p.Wishes == "" {
		return strconv.Itoa(p.Asked)
	}
	return strconv.Itoa(p.Asked) + ": " + p.Wishes
}

func join(v []int) string {
	s := make([]string, len(v))
	for i, x := range v {
		s[i] = strconv.Itoa(x)
	}
	return dash(strings.Join(s, ","))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func gbps(v float64) string {
	if v == 0 {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}
