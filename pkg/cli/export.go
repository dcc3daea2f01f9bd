// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/alias"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	formatNGT       = "ngt"
	formatConfigMap = "configmap"

	// topologyKey is the key of the ConfigMap's only entry.
	topologyKey = "topology.json"
)

// topologyDoc is the ConfigMap's entry: the graph for scripts that cannot read a custom
// resource.
type topologyDoc struct {
	Node   string     `json:"node"`
	GPUs   []gpuDoc   `json:"gpus"`
	Matrix [][]string `json:"matrix"` // link classes in the order of gpus, X on the diagonal
	// BandwidthGBps has the shape of matrix, with 0 on the diagonal; one direction.
	BandwidthGBps [][]float64 `json:"bandwidthGBps"`
	NUMA          []numaDoc   `json:"numa"`
	// Document is the same, with the keys that other tools' scripts read.
	alias.Document
}

type gpuDoc struct {
	Index    int    `json:"index"`
	UUID     string `json:"uuid"`
	Model    string `json:"model,omitempty"`
	PCIBusID string `json:"pciBusID,omitempty"`
	Memory   int64  `json:"memoryBytes,omitempty"`
	NUMANode int    `json:"numaNode"` // -1: unknown
	CPUs     string `json:"cpus,omitempty"`
}

type numaDoc struct {
	ID        int    `json:"id"`
	CPUs      string `json:"cpus,omitempty"`
	Memory    int64  `json:"memoryBytes,omitempty"`
	Distances []int  `json:"distances,omitempty"` // in the order of numa
}

func newExport() *cobra.Command {
	var src source
	var format, name, namespace string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write the machine's graph as a NodeGPUTopology or a ConfigMap",
		Long: `Write the machine's graph in YAML.

--format ngt        a NodeGPUTopology, as the exporter publishes it. One made from
                    text or the catalogue has an empty nodeUID, and a cluster
                    accepts it only with the UID of its node filled in; -f reads
                    it as it is.
--format configmap  a ConfigMap gpu-topology-NAME whose entry topology.json has
                    gpus, matrix (link classes), bandwidthGBps and numa;
                    and gpu_count, numa_nodes and connections, whose
                    bandwidth_gbps is in GB/s of both directions together`,
		Example: `  NVTOPO export -f topo.txt --name gpu-node-7 --gpu-model "NVIDIA H100 80GB HBM3"
  NVTOPO export --machine dgx-h100 | NVTOPO pick -n 2 -f -
  NVTOPO export --node gpu-node-7 --format configmap --namespace nvtopo-system`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if format != formatNGT && format != formatConfigMap {
				return usagef("--format %q: want %s or %s", format, formatNGT, formatConfigMap)
			}
			if format == formatNGT && cmd.Flags().Changed("namespace") {
				return usagef("--namespace goes with --format %s only: a NodeGPUTopology has no namespace", formatConfigMap)
			}
			in, err := src.load(cmd)
			if err != nil {
				return err
			}
			if name != "" {
				in.name = name
			}
			var obj any = in.asObject()
			if format == formatConfigMap {
				if obj, err = in.asConfigMap(namespace); err != nil {
					return err
				}
			}
			data, err := yaml.Marshal(obj)
			if err != nil {
				return fmt.Errorf("writing YAML: %w", err)
			}
			_, err = cmd.OutOrStdout().Write(data)
			return err
		},
	}
	src.bind(cmd)
	f := cmd.Flags()
	f.StringVar(&format, "format", formatNGT, "ngt (NodeGPUTopology) or configmap")
	f.StringVar(&name, "name", "", "name of the node (default: that of the object, machine or file)")
	f.StringVar(&namespace, "namespace", metav1.NamespaceDefault, "namespace of the ConfigMap")
	return cmd
}

// asObject is the object that was read, without the server's own fields, or one made
// from the graph.
func (in *input) asObject() *v1alpha1.NodeGPUTopology {
	if in.object == nil {
		return v1alpha1.FromGraph(in.name, in.resource, in.graph)
	}
	out := in.object.DeepCopy()
	out.ObjectMeta = metav1.ObjectMeta{Name: in.name, Labels: out.Labels, Annotations: out.Annotations}
	return out
}

func (in *input) asConfigMap(namespace string) (*corev1.ConfigMap, error) {
	data, err := json.MarshalIndent(in.document(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", topologyKey, err)
	}
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "gpu-topology-" + in.name, Namespace: namespace,
			Labels: map[string]string{"app.kubernetes.io/managed-by": programName},
		},
		Data: map[string]string{topologyKey: string(data) + "\n"},
	}, nil
}

func (in *input) document() *topologyDoc {
	g := in.graph
	doc := &topologyDoc{
		Node: in.name, GPUs: []gpuDoc{}, Matrix: [][]string{}, BandwidthGBps: [][]float64{}, NUMA: []numaDoc{}, Document: alias.Describe(g),
	}
	for i := range g.GPUs {
		d := &g.GPUs[i]
		doc.GPUs = append(doc.GPUs, gpuDoc{
			Index: d.Index, UUID: d.UUID, Model: d.Model, PCIBusID: d.PCIBusID, Memory: d.Memory, NUMANode: d.NUMANode, CPUs: d.CPUs.String(),
		})
		classes, bandwidths := make([]string, g.Len()), make([]float64, g.Len())
		for j := range g.GPUs {
			l := g.Link(i, j)
			classes[j], bandwidths[j] = l.Class.String(), float64(l.Bandwidth)/1e6
		}
		classes[i] = "X"
		doc.Matrix, doc.BandwidthGBps = append(doc.Matrix, classes), append(doc.BandwidthGBps, bandwidths)
	}
	for i := range g.NUMANodes {
		n := &g.NUMANodes[i]
		doc.NUMA = append(doc.NUMA, numaDoc{ID: n.ID, CPUs: n.CPUs.String(), Memory: n.Memory, Distances: n.Distances})
	}
	return doc
}
