// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

// fabricShow has the flags of fabric show.
type fabricShow struct {
	output              string
	fabric, nodes, free string
	topology, resource  string
	policy, minLink     string
	minBandwidth        string
	showNodes           bool
	cluster             clusterFlags
}

func newFabricShow() *cobra.Command {
	var o fabricShow
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Draw the racks and switches of a cluster, with what is free in each",
		Long: `Draw the fabric of a cluster: its domains, and for each of them
  NODES   how many nodes are in it
  WHOLE   how many of these have GPUs that are all free
  FREE    free GPUs of all GPUs
  x8 x4 x2 x1  how many pods of 8, 4, 2 or 1 GPUs fit, if all are of that size; each
          gets the linked, NUMA-aligned set that --policy, --min-link and
          --min-bandwidth demand
With --min-link nodes of which no two GPUs have such a link are left out of all columns.
WHOLE, FREE and the slots of a domain leave out excluded domains and cordoned nodes in
it. Below are the links of the levels, and what of labels, ClusterTopology and graphs
does not count.

The cluster is that of the kubeconfig: its nodes' labels, its ClusterTopology or, for
a preview, that in --topology, its NodeGPUTopologies and its pods. Degraded GPUs are not
free. With --fabric, --nodes and --free it is one on paper, see NVTOPO fabric place.

-o json gives the tree as one object (links, cluster with domains and members, problems),
-o dot a graph for graphviz, and -o summary a list of racks with their nodes.`,
		Example: `  NVTOPO fabric show
  NVTOPO fabric show --topology new.yaml --show-nodes
  NVTOPO fabric show --fabric fabric.csv --nodes nodes.csv -o dot | dot -Tsvg -o fabric.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.cluster.bind(cmd)
	f := cmd.Flags()
	bindForm(cmd, &o.output, fabricForms[:]...)
	f.StringVar(&o.fabric, "fabric", "", "CSV with the domains of each node, instead of a cluster")
	f.StringVar(&o.nodes, "nodes", "", "with --fabric: CSV with the machine of each node")
	f.StringVar(&o.free, "free", "", "with --fabric: CSV with the free GPUs of each node (default: all are free)")
	f.StringVar(&o.topology, "topology", "", "file with a ClusterTopology that is used instead of the cluster's")
	f.StringVar(&o.resource, "resource", v1alpha1.DefaultResource, "extended resource the GPUs count under")
	f.StringVar(&o.policy, "policy", nvtopo.PolicyBestEffort.String(), "none, best-effort, restricted or single-numa-node")
	f.StringVar(&o.minLink, "min-link", "", minLinkUsage)
	f.StringVar(&o.minBandwidth, "min-bandwidth", "", "least bandwidth of the weakest link of a slot's ring in GB/s, or with a unit: 100GB/s, 800Gb/s")
	f.BoolVar(&o.showNodes, "show-nodes", false, "draw the nodes, too")
	return cmd
}

var fabricForms = [...]string{"text", "json", "yaml", "summary", "dot"}

func (o *fabricShow) run(cmd *cobra.Command) error {
	if err := checkForm(o.output, fabricForms[:]...); err != nil {
		return err
	}
	p := pickOptions{policy: o.policy, minLink: o.minLink, minBandwidth: o.minBandwidth}
	con, err := p.constraint(cmd.Flags().Changed("min-bandwidth"))
	if err != nil {
		return err
	}
	c, err := o.load(cmd)
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	if o.output == "summary" {
		return outputFlag("text").write(w, nil, c.drawSummary)
	}
	view := c.view(con)
	draw := func(w io.Writer) error { return view.drawText(w, o.showNodes) }
	if o.output == "dot" {
		draw = view.drawDot
	}
	return outputFlag(o.output).write(w, view, draw)
}

func (o *fabricShow) load(cmd *cobra.Command) (*fabricCluster, error) {
	if o.fabric != "" || o.nodes != "" || o.free != "" {
		if o.cluster.kubeconfig != "" || o.cluster.context != "" {
			return nil, usagef("--fabric reads files: --kubeconfig and --context cannot be used with it")
		}
		files := fabricPlacement{fabric: o.fabric, nodes: o.nodes, free: o.free, topology: o.topology}
		if err := files.checkFiles(); err != nil {
			return nil, err
		}
		return files.load(cmd)
	}
	var ct *v1alpha1.ClusterTopology
	if o.topology != "" {
		var err error
		if ct, err = readClusterTopology(cmd, o.topology); err != nil {
			return nil, err
		}
	}
	clients, err := o.cluster.clients()
	if err != nil {
		return nil, err
	}
	return clients.readFabric(cmd.Context(), ct, o.resource)
}
