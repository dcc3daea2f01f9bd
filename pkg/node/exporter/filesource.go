// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
)

// Open returns the source for spec: "machine:NAME" is a machine of the catalogue, "file:PATH" a captured
// text or a NodeGPUTopology. opts supplies properties that a captured text does not contain.
func Open(spec, nodeName, resource string, opts smi.Options) (Source, error) {
	kind, arg, _ := strings.Cut(spec, ":")
	switch {
	case kind == "machine" && arg != "":
		m, err := machine.Lookup(arg)
		if err != nil {
			return nil, err
		}
		g, err := m.GraphFor(nodeName)
		if err != nil {
			return nil, fmt.Errorf("machine %s: %w", arg, err)
		}
		return Static(g), nil
	case kind == "file" && arg != "":
		return fileSource{path: arg, resource: cmp.Or(resource, v1alpha1.DefaultResource), opts: opts}, nil
	}
	return nil, fmt.Errorf("source %q is not nvml, machine:NAME or file:PATH", spec)
}

// fileSource reads its file each time, so an edit has the effect of a hardware change.
type fileSource struct {
	path     string
	resource string
	opts     smi.Options
}

func (fileSource) Events(context.Context) <-chan Event { return nil }

func (s fileSource) Graph(context.Context) (*nvtopo.Graph, []Problem, error) {
	b, err := os.ReadFile(s.path)
	if err != nil {
		return nil, nil, err
	}
	g, err := s.parse(b)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", s.path, err)
	}
	return g, nil, nil
}

// manifest matches the text of an API object: no captured matrix has a line that starts like this.
var manifest = regexp.MustCompile(`\A\s*\{|(?m:^(apiVersion|kind)\s*:)`)

func (s fileSource) parse(b []byte) (*nvtopo.Graph, error) {
	if !manifest.Match(b) {
		return s.parseText(b)
	}
	var t v1alpha1.NodeGPUTopology
	if err := yaml.UnmarshalStrict(b, &t); err != nil {
		return nil, err
	}
	if t.Kind != v1alpha1.Kind {
		return nil, fmt.Errorf("kind is %q, want %s", t.Kind, v1alpha1.Kind)
	}
	graphs, err := t.Graphs()
	if err != nil {
		return nil, err
	}
	g, ok := graphs[s.resource]
	if !ok {
		return nil, fmt.Errorf("no GPUs of resource %s", s.resource)
	}
	return g, nil
}

// parseText parses a captured text. It refuses another vendor's accelerators under NVIDIA's resource:
// they would be allocated to pods that cannot use them.
func (s fileSource) parseText(b []byte) (*nvtopo.Graph, error) {
	g, tool, err := smi.ParseTool(bytes.NewReader(b), s.opts)
	if err == nil && tool != smi.NVIDIA && s.resource == v1alpha1.DefaultResource {
		return nil, fmt.Errorf("this is text of %q, but the resource is %s: set --resource, for example to %s", tool, s.resource, tool.Resource())
	}
	return g, err
}
