// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	v1 "k8s.io/api/core/v1"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// row is one container's GPUs as four sources report them.
type row struct {
	gpunode.Observation

	pod       string
	positions map[string]int // UUID -> index, for a shorter table
}

func rowsOf(g *nvtopo.Graph, pod *v1.Pod, containers []gpunode.Observation) []row {
	positions := map[string]int{}
	for i := range g.GPUs {
		positions[g.GPUs[i].UUID] = g.GPUs[i].Index
	}
	var out []row
	for _, o := range containers {
		out = append(out, row{Observation: o, pod: pod.Name, positions: positions})
	}
	return out
}

// equal reports whether all sources that know the container agree. An init container gets any of its
// pod's GPUs, because kubelet passes them on, and the PodResources API does not report it.
func (r *row) equal() bool {
	if len(r.Environment) != r.Asked || !slices.Equal(r.Checkpoint, r.Environment) {
		return false
	}
	return r.Kind == gpunode.Init || slices.Equal(r.Annotation, r.Checkpoint) && slices.Equal(r.PodResources, r.Checkpoint)
}

// indices returns GPUs as a list of their indices.
func (r *row) indices(ids []string) string {
	var numbers []int
	for _, id := range ids {
		i, known := r.positions[id]
		if !known {
			return strings.Join(ids, ",")
		}
		numbers = append(numbers, i)
	}
	slices.Sort(numbers)
	var out []string
	for _, n := range numbers {
		out = append(out, strconv.Itoa(n))
	}
	if len(out) == 0 {
		return "-"
	}
	return strings.Join(out, ",")
}

// writeRows prints the table.
func writeRows(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POD\tCONTAINER\tKIND\tASKED\tANNOTATION\tCHECKPOINT\tPODRESOURCES\tENVIRONMENT\tCPUS\tEQUAL\t")
	for i := range rows {
		r := &rows[i]
		verdict := "yes"
		if !r.equal() {
			verdict = "NO"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.pod, r.Container, r.Kind, r.Asked, r.indices(r.Annotation),
			r.indices(r.Checkpoint), r.indices(r.PodResources), r.indices(r.Environment), r.Report.CPUs, verdict)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	return nil
}
