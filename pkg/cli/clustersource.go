// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// clusterSource selects the cluster that a command shows: that of the kubeconfig, or saved objects.
type clusterSource struct {
	cluster  clusterFlags
	from     []string
	resource string
	minLink  string // least link of the counted sets; empty: any
	clock    clock.PassiveClock
}

// minLinkUsage is the help of --min-link for the commands that count free GPUs.
const minLinkUsage = "count only nodes of which some two GPUs have this link or a better one, " +
	"and on these only sets of which any two have it, as the annotation nvtopo.dev/min-link demands: NVLINK, NV4, PIX, …"

// bindMinLink adds the flag --min-link.
func (c *clusterSource) bindMinLink(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.minLink, "min-link", "", minLinkUsage)
}

func (c *clusterSource) bind(cmd *cobra.Command) {
	c.cluster.bind(cmd)
	c.clock = clock.RealClock{}
	f := cmd.Flags()
	f.StringArrayVar(&c.from, "from", nil, `file or folder with the cluster's objects, instead of a cluster; "-" is standard input; may be repeated`)
	f.StringVar(&c.resource, "resource", v1alpha1.DefaultResource, "extended resource the GPUs count under")
}

// saved is the part about --from in the help of these commands.
const saved = `The cluster is that of the kubeconfig, or with --from the output of
  kubectl get nodes,pods,leases,nodegputopologies,clustertopologies,poddisruptionbudgets \
    -A -o yaml --show-managed-fields`

// reader returns a function that reads the cluster's present state, or an error if the flags are wrong.
func (c *clusterSource) reader(cmd *cobra.Command) (func(ctx context.Context) (*clusterview.View, error), error) {
	var atLeast nvtopo.Class
	if c.minLink != "" {
		var err error
		if atLeast, err = nvtopo.ParseClass(c.minLink); err != nil {
			return nil, usagef("--min-link: %w", err)
		}
	}
	read, err := c.objects(cmd)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*clusterview.View, error) {
		o, err := read(ctx)
		if err != nil {
			return nil, err
		}
		return clusterview.Of(o, clusterview.Options{Resource: c.resource, MinLink: atLeast}), nil
	}, nil
}

// objects is reader without the conversion to a view.
func (c *clusterSource) objects(cmd *cobra.Command) (func(ctx context.Context) (*clusterobjects.Objects, error), error) {
	if len(c.from) > 0 {
		if c.cluster.kubeconfig != "" || c.cluster.context != "" {
			return nil, usagef("--from reads files: --kubeconfig and --context cannot be used with it")
		}
		o, err := readSaved(cmd, c.from, c.clock)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (*clusterobjects.Objects, error) { return o, nil }, nil
	}
	clients, err := c.cluster.clients()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (*clusterobjects.Objects, error) {
		return clients.readObjects(ctx, clusterobjects.ClusterTopologies, clusterobjects.Budgets)
	}, nil
}

// readObjects reads the objects for a view: pods, nodes, Leases, NodeGPUTopologies, the scheduler's
// published profiles, and more kinds.
func (c *clusterClients) readObjects(ctx context.Context, more ...clusterobjects.Kind) (*clusterobjects.Objects, error) {
	o, err := clusterobjects.Read(ctx, c.kube, &clusterobjects.Request{
		Needed:     append([]clusterobjects.Kind{clusterobjects.Pods, clusterobjects.Nodes, clusterobjects.Leases, clusterobjects.Topologies}, more...),
		Namespaces: map[clusterobjects.Kind]string{clusterobjects.Leases: release.Namespace}, Clock: clock.RealClock{},
	})
	if err != nil {
		return nil, inputf("%w", err)
	}
	var unread error
	if o.Published, unread, err = publishedProfiles(ctx, c.kube, release.Namespace); err != nil {
		return nil, err
	}
	if unread != nil {
		o.Faults = append(o.Faults, fmt.Sprintf("namespace %s: %v; the scheduler's Lease is taken to be %s", release.Namespace, unread, diagnosis.ShippedLease))
	}
	return o, nil
}

// readSaved reads a cluster's objects from files, and from all files of objects in folders.
func readSaved(cmd *cobra.Command, from []string, clk clock.PassiveClock) (*clusterobjects.Objects, error) {
	o := &clusterobjects.Objects{}
	for _, path := range from {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = objectFiles(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			data, err := readUpTo(cmd, file, maxCluster)
			if err != nil {
				return nil, err
			}
			if err := o.Add(data); err != nil {
				return nil, inputf("%s: %w", shownName(file), err)
			}
		}
	}
	for _, fault := range o.Faults {
		cmd.PrintErrln(printable(fault))
	}
	o.Faults = nil // reported
	if o.Now = o.Moment(); o.Now.IsZero() {
		o.Now = clk.Now()
	}
	return o, nil
}

// objectFiles lists the files of a folder that may contain objects.
func objectFiles(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, inputf("%w", err)
	}
	var out []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	if len(out) == 0 {
		return nil, inputf("%s has no .yaml, .yml or .json file", dir)
	}
	return out, nil
}
