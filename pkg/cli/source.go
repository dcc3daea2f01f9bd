// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
)

// stdin is the file name that means standard input.
const stdin = "-"

// maxFile bounds the size of one file; a NodeGPUTopology of 64 GPUs is about 400 kB.
const maxFile = 8 << 20

// maxCluster bounds the size of one file with a cluster's objects.
const maxCluster = 1 << 30

// source has the flags that select a machine.
type source struct {
	file, machine, node string

	numactl, lscpu, gpuModel string // values that captured text lacks
	pcieGen, threadsPerCore  uint8

	resource            string // which of the object's resources
	kubeconfig, context string // for --node: the cluster that has the node
}

// input is one machine, as read.
type input struct {
	name     string // name of the node, the machine or the file
	resource string
	graph    *nvtopo.Graph
	used     nvtopo.Mask               // GPUs that pods hold
	object   *v1alpha1.NodeGPUTopology // nil unless the input was one, or the ConfigMap of one
}

// bind adds these flags to a command.
func (s *source) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&s.file, "file", "f", "", `file with the text of "nvidia-smi topo -m", "npu-smi info -t topo" or "rocm-smi --showtopo", a NodeGPUTopology, or the ConfigMap that export makes of one (YAML or JSON); "-" is standard input`)
	f.StringVar(&s.machine, "machine", "", "machine of the built-in catalogue")
	f.StringVar(&s.node, "node", "", "node of a cluster whose NodeGPUTopology is read")
	f.StringVar(&s.numactl, "numactl", "", `with such text: file with the output of "numactl --hardware" of that machine`)
	f.StringVar(&s.lscpu, "lscpu", "", `with such text: file with the output of "lscpu -e", "lscpu -p" or "lscpu" of that machine, which tells the hyper-threads of each core`)
	f.Uint8Var(&s.threadsPerCore, "threads-per-core", 0, "with such text and without --lscpu: hyper-threads of each core (unknown counts as 1)")
	f.StringVar(&s.gpuModel, "gpu-model", "", "with such text: product name of the GPUs, which decides the bandwidth of a fabric link")
	f.Uint8Var(&s.pcieGen, "pcie-gen", 0, "with such text: PCI Express generation of the GPUs, 3 to 5 (unknown counts as 4)")
	f.StringVar(&s.resource, "resource", "", "extended resource the GPUs count under; selects one if a NodeGPUTopology has several (default: the only one, else the vendor's)")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "with --node: kubeconfig file (default: KUBECONFIG, then ~/.kube/config)")
	f.StringVar(&s.context, "context", "", "with --node: context of the kubeconfig")
	suggest(cmd, "machine", cobra.FixedCompletions(machine.Names(), cobra.ShellCompDirectiveNoFileComp))
	suggest(cmd, "node", func(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
		cluster := clusterFlags{s.kubeconfig, s.context}
		return cluster.suggestNodes(cmd.Context(), nil, toComplete)
	})
}

// given reports whether the flags name a machine.
func (s *source) given() bool { return s.file != "" || s.machine != "" || s.node != "" }

// load reads the machine.
func (s *source) load(cmd *cobra.Command) (*input, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	switch {
	case s.machine != "":
		m, err := machine.Lookup(s.machine)
		if err != nil {
			return nil, usagef("--machine: %w", err)
		}
		g, err := m.Graph()
		if err != nil {
			return nil, inputf("--machine: %w", err)
		}
		return s.fromGraph(s.machine, m.Resource, g), nil
	case s.node != "":
		return s.fetch(cmd)
	}
	return s.loadFile(cmd)
}

func (s *source) loadFile(cmd *cobra.Command) (*input, error) {
	data, err := readFile(cmd, s.file)
	if err != nil {
		return nil, err
	}
	shown := shownName(s.file)
	if looksLikeObject(data) {
		return s.readObject(data, shown)
	}
	opts, err := s.textOptions(cmd)
	if err != nil {
		return nil, err
	}
	g, tool, err := smi.ParseTool(bytes.NewReader(data), opts)
	if err != nil {
		return nil, inputf("%s: %w", shown, err)
	}
	name := "stdin"
	if s.file != stdin {
		name = strings.TrimSuffix(filepath.Base(s.file), filepath.Ext(s.file))
	}
	return s.fromGraph(name, tool.Resource(), g), nil
}

// textOptions returns the values that captured text lacks.
func (s *source) textOptions(cmd *cobra.Command) (smi.Options, error) {
	opts := smi.Options{Model: s.gpuModel, PCIeGen: nvtopo.PCIeGen(s.pcieGen), Cores: smi.Cores{PerCore: int(s.threadsPerCore)}}
	for _, f := range []struct {
		name string
		read func(text io.Reader) error
	}{
		{s.numactl, func(text io.Reader) (err error) { opts.NUMA, err = smi.ParseNUMA(text); return err }},
		{s.lscpu, func(text io.Reader) (err error) { opts.Cores, err = smi.ParseCores(text); return err }},
	} {
		if f.name == "" {
			continue
		}
		text, err := readFile(cmd, f.name)
		if err != nil {
			return opts, err
		}
		if err := f.read(bytes.NewReader(text)); err != nil {
			return opts, inputf("%s: %w", shownName(f.name), err)
		}
	}
	return opts, nil
}

// readObject reads a NodeGPUTopology, or the ConfigMap that export writes of one.
func (s *source) readObject(data []byte, shown string) (*input, error) {
	kind := cmp.Or(kindOf(data), v1alpha1.Kind)
	if err := s.refuseTextFlags(shown + " is a " + kind); err != nil {
		return nil, err
	}
	var obj *v1alpha1.NodeGPUTopology
	var err error
	if kind == configMapKind {
		obj, err = decodeConfigMap(data)
	} else {
		obj, err = decodeObject(data)
	}
	if err != nil {
		return nil, inputf("%s: %w", shown, err)
	}
	return s.fromObject(obj, shown)
}

// fromGraph returns the input of a graph; vendors is the resource unless the user gives one.
func (s *source) fromGraph(name, vendors string, g *nvtopo.Graph) *input {
	return &input{name: name, resource: cmp.Or(s.resource, vendors, v1alpha1.DefaultResource), graph: g}
}

// refuseTextFlags refuses flags that complete captured text if there is no such text. Ignoring them would
// mislead the user.
func (s *source) refuseTextFlags(because string) error {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"--numactl", s.numactl != ""},
		{"--lscpu", s.lscpu != ""},
		{"--threads-per-core", s.threadsPerCore != 0},
		{"--gpu-model", s.gpuModel != ""},
		{"--pcie-gen", s.pcieGen != 0},
	} {
		if f.set {
			return usagef("%s goes with captured text only, not with %s", f.name, because)
		}
	}
	return nil
}

// check refuses flags that contradict each other or have no effect.
func (s *source) check() error {
	n := 0
	for _, name := range []string{s.file, s.machine, s.node} {
		if name != "" {
			n++
		}
	}
	switch {
	case n != 1:
		return usagef("exactly one of -f, --machine and --node is needed, %d are given", n)
	case s.pcieGen != 0 && (s.pcieGen < 3 || s.pcieGen > 5):
		return usagef("--pcie-gen %d: want 3, 4 or 5", s.pcieGen)
	case s.threadsPerCore > smi.MaxThreadsPerCore:
		return usagef("--threads-per-core %d: want 1 to %d", s.threadsPerCore, smi.MaxThreadsPerCore)
	case s.lscpu != "" && s.threadsPerCore != 0:
		return usagef("--lscpu tells the threads of each core: --threads-per-core cannot be used with it")
	case s.node == "" && (s.kubeconfig != "" || s.context != ""):
		return usagef("--kubeconfig and --context go with --node only")
	case s.machine != "":
		return s.refuseTextFlags("--machine " + s.machine)
	case s.node != "":
		return s.refuseTextFlags("--node " + s.node)
	}
	return s.checkStdin()
}

// checkStdin refuses standard input for two files.
func (s *source) checkStdin() error {
	first := ""
	for _, f := range []struct{ flag, file string }{{"-f", s.file}, {"--numactl", s.numactl}, {"--lscpu", s.lscpu}} {
		switch {
		case f.file != stdin:
		case first != "":
			return usagef("%s and %s cannot both be standard input", first, f.flag)
		default:
			first = f.flag
		}
	}
	return nil
}

// fromObject returns the input of one resource's graph: the one of --resource, else the only one, else the
// default one.
func (s *source) fromObject(obj *v1alpha1.NodeGPUTopology, shown string) (*input, error) {
	graphs, err := obj.Graphs()
	if err != nil {
		return nil, inputf("%s: %w", shown, err)
	}
	names := slices.Sorted(maps.Keys(graphs))
	res := s.resource
	switch {
	case len(names) == 0:
		return nil, inputf("%s: NodeGPUTopology %q has no GPUs", shown, obj.Name)
	case res == "" && len(names) == 1:
		res = names[0]
	case res == "":
		res = v1alpha1.DefaultResource
	}
	g := graphs[res]
	if g == nil {
		return nil, usagef("%s has no resource %q, use --resource with one of %s", shown, res, strings.Join(names, ", "))
	}
	in := &input{name: obj.Name, resource: res, graph: g, object: obj}
	for i := range obj.Status.Allocations {
		if a := &obj.Status.Allocations[i]; a.Resource == res {
			held, _ := g.Positions(a.GPUs) // a GPU that is not in the graph cannot be chosen anyway
			in.used |= held
		}
	}
	return in, nil
}

func shownName(file string) string {
	if file == stdin {
		return "standard input"
	}
	return file
}

func readFile(cmd *cobra.Command, file string) ([]byte, error) { return readUpTo(cmd, file, maxFile) }

func readUpTo(cmd *cobra.Command, file string, most int64) ([]byte, error) {
	r := cmd.InOrStdin()
	if file != stdin {
		f, err := os.Open(file)
		if err != nil {
			return nil, inputf("%w", err) // os's error names the file
		}
		defer func() { _ = f.Close() }() // it was only read
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("longer than %d bytes", most)
	}
	if err != nil {
		return nil, inputf("%s: %w", shownName(file), err)
	}
	return data, nil
}
