// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// AnnotationFails on a Node lists its faults, in the form of [Faults]. `nvtopo-devcluster up` carries
// each change out.
const AnnotationFails = "devcluster.nvtopo.dev/fails"

// Kinds of faults.
const (
	FaultExporter = "exporter" // the exporter has ended: the graph goes stale when its Lease runs out
	FaultAgent    = "agent"    // the node agent has ended: its Lease runs out
	FaultNode     = "node"     // kubelet has ended, and all that runs on the node with it
	FaultGPU      = "gpu"      // a GPU is not healthy
)

// Faults is the set of a node's faults.
type Faults struct {
	Exporter, Agent, Node bool
	GPUs                  map[int]bool // by their positions
}

// String returns the faults in the annotation's form: "agent,gpu-3".
func (f *Faults) String() string {
	var out []string
	for _, k := range []struct {
		name string
		is   bool
	}{{FaultAgent, f.Agent}, {FaultExporter, f.Exporter}, {FaultNode, f.Node}} {
		if k.is {
			out = append(out, k.name)
		}
	}
	for _, gpu := range slices.Sorted(maps.Keys(f.GPUs)) {
		out = append(out, FaultGPU+"-"+strconv.Itoa(gpu))
	}
	return strings.Join(out, ",")
}

// ParseFaults parses the annotation's form. An empty text is a healthy node.
func ParseFaults(text string) (*Faults, error) {
	f := &Faults{GPUs: map[int]bool{}}
	if text == "" {
		return f, nil
	}
	for word := range strings.SplitSeq(text, ",") {
		if err := f.Set(word, true); err != nil {
			return nil, fmt.Errorf("annotation %s %q: %w", AnnotationFails, text, err)
		}
	}
	return f, nil
}

// Set adds one fault, or removes it.
func (f *Faults) Set(word string, fails bool) error {
	switch word {
	case FaultExporter:
		f.Exporter = fails
	case FaultAgent:
		f.Agent = fails
	case FaultNode:
		f.Node = fails
	default:
		number, ok := strings.CutPrefix(word, FaultGPU+"-")
		gpu, err := strconv.Atoi(number)
		if !ok || err != nil || gpu < 0 {
			return fmt.Errorf("%q: want %s, %s, %s or %s-NUMBER", word, FaultExporter, FaultAgent, FaultNode, FaultGPU)
		}
		if fails {
			f.GPUs[gpu] = true
		} else {
			delete(f.GPUs, gpu)
		}
	}
	return nil
}
