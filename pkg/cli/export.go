// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

const (
	formatNGT       = "ngt"
	formatConfigMap = "configmap"
)

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
                    gpus, matrix (link classes), pcie, bandwidthGBps,
                    latencyMicroseconds, switched, numa and nics;
                    and gpu_count, numa_nodes and connections, whose
                    bandwidth_gbps is in GB/s of both directions together.
                    -f reads it too. It has the hardware, and not which GPUs
                    pods hold`,
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

// asObject returns the object that was read, without the server's own fields, or one made from the graph.
func (in *input) asObject() *v1alpha1.NodeGPUTopology {
	if in.object == nil {
		return v1alpha1.FromGraph(in.name, in.resource, in.graph)
	}
	out := in.object.DeepCopy()
	out.ObjectMeta = metav1.ObjectMeta{Name: in.name, Labels: out.Labels, Annotations: out.Annotations}
	return out
}
