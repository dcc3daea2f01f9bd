// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/explain"
	"github.com/nvtopo/nvtopo/pkg/release"
)

// explaining is the command explain with its flags.
type explaining struct {
	cluster    clusterFlags
	from       []string // files and folders; a cluster if there are none
	namespace  string
	leases     string // namespace of the Leases
	schedulers []string
	resources  []string
	output     string
	clock      clock.Clock
}

func newExplain() *cobra.Command {
	c := &explaining{clock: clock.RealClock{}}
	cmd := &cobra.Command{
		Use:   "explain POD | pod/NAME | podgroup/NAME | job/NAME",
		Short: "Say why a pod, a gang or a job waits, or why it is where it is",
		Long: `Say why a pod waits: one dominant reason, what it is seen by, and the next step; then
how many nodes refuse the pod for what, the nearest nodes with the fewest pods that are
in the way there, and what the pod would get if it asked for less. Of a pod that has a
node it shows the GPUs, the scores as they were when they were chosen, and the best that
it could have now.

A plain NAME is a pod, or else a PodGroup, or else a Job. A member of a gang is explained
by its gang.

The command asks what the scheduler asks, of the objects that the cluster has now. What
a scheduler's process alone knows, such as choices on their way, it does not know; where
it finds a place and the scheduler does not, it says so and repeats the scheduler's words.
How nodes are compared it takes from the scheduler that leads, which publishes its profiles
in the ConfigMap nvtopo-scheduler-profiles; without that from the shipped profile. It
changes nothing.

--from reads files instead, or all .yaml, .yml and .json files of a folder: the output of
  kubectl get pods,nodes,leases,nodegputopologies,clustertopologies,podgroups -A -o yaml
and of configmaps of nvtopo-system, jobs, persistentvolumeclaims, storageclasses,
poddisruptionbudgets, workloads, localqueues and clusterqueues where there are some. Their
time is that of the last renewal of a Lease.`,
		Example: `  NVTOPO explain trainer-0
  NVTOPO explain -n vision job/resnet
  NVTOPO explain podgroup/llm -o yaml
  NVTOPO explain trainer-0 --from cluster.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one pod, PodGroup or Job, see '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, args[0]) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return c.cluster.suggestTargets(cmd.Context(), c.namespace, args, toComplete)
		},
	}
	c.cluster.bind(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&c.from, "from", nil, "file or folder with the cluster's objects, instead of a cluster; may be repeated")
	f.StringVarP(&c.namespace, "namespace", "n", "", "namespace of what is explained (default: the context's, or default)")
	suggest(cmd, "namespace", c.cluster.suggestNamespaces)
	f.StringVar(&c.leases, "lease-namespace", release.Namespace, "namespace of the Leases of exporters and agents")
	bindProfiles(cmd, &c.schedulers)
	f.StringArrayVar(&c.resources, "resource", nil, "extended resource whose devices that scheduler chooses; may be repeated (default: as published, or nvidia.com/gpu)")
	bindForm(cmd, &c.output, plainForms[:]...)
	return cmd
}

// bindProfiles adds the flag that names schedulers whose pods are explained.
func bindProfiles(cmd *cobra.Command, into *[]string) {
	cmd.Flags().StringArrayVar(into, "profile", nil,
		"schedulerName whose pods are explained, beside those under which nvtopo has placed pods; may be repeated (default: as published, or "+
			explain.ShippedProfile().SchedulerNames[0]+")")
}

// explainTarget is what is asked about; kind is empty for whatever has the name.
type explainTarget struct{ kind, name string }

// explainKinds are the short names of what can be explained.
var explainKinds = map[string]string{
	"pod": "pod", "pods": "pod", "po": "pod", "podgroup": "podgroup", "podgroups": "podgroup", "pg": "podgroup", "job": "job", "jobs": "job",
}

func parseTarget(arg string) (explainTarget, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok {
		kind, name = "", arg
	}
	if _, known := explainKinds[kind]; ok && !known || name == "" {
		return explainTarget{}, usagef("%q: want NAME, pod/NAME, podgroup/NAME or job/NAME", arg)
	}
	return explainTarget{explainKinds[kind], name}, nil
}

func (c *explaining) run(cmd *cobra.Command, arg string) error {
	of, err := parseTarget(arg)
	if err == nil {
		err = checkForm(c.output, plainForms[:]...)
	}
	switch {
	case err != nil:
		return err
	case len(c.from) > 0 && (c.cluster.kubeconfig != "" || c.cluster.context != ""):
		return usagef("--from reads files only: --kubeconfig and --context cannot be used with it")
	}
	var w *explain.World
	if len(c.from) > 0 {
		w, err = c.readFiles(cmd)
	} else {
		w, err = c.readCluster(cmd)
	}
	if err != nil {
		return err
	}
	if err := w.UseProfiles(c.schedulers, c.resources); err != nil {
		cmd.PrintErrf("%s; pods are explained by the shipped profile\n", printable(err.Error()))
	}
	e, err := of.explain(w, c.namespace)
	if errors.Is(err, explain.ErrNotFound) {
		return noAnswerf("%w", err)
	} else if err != nil {
		return err
	}
	return c.print(cmd, e)
}

// explain explains what has the name: a pod first, then a PodGroup, then a Job.
func (t explainTarget) explain(w *explain.World, namespace string) (*explain.Explanation, error) {
	var last error
	for _, x := range []struct {
		kind string
		of   func(*explain.World, string, string) (*explain.Explanation, error)
	}{{"pod", explain.Pod}, {"podgroup", explain.PodGroup}, {"job", explain.Job}} {
		if t.kind != "" && t.kind != x.kind {
			continue
		}
		e, err := x.of(w, namespace, t.name)
		if !errors.Is(err, explain.ErrNotFound) {
			return e, err
		}
		last = err
	}
	if t.kind == "" {
		return nil, fmt.Errorf("no pod, PodGroup or Job %s/%s: %w", namespace, t.name, explain.ErrNotFound)
	}
	return nil, last
}

// readFiles reads objects from files.
func (c *explaining) readFiles(cmd *cobra.Command) (*explain.World, error) {
	w := &explain.World{}
	if err := addFiles(cmd, c.from, w.Add); err != nil {
		return nil, err
	}
	if w.Now = w.Moment(); w.Now.IsZero() {
		w.Now = c.clock.Now()
	}
	w.ClaimsKnown, w.QueuesKnown = len(w.Claims) > 0, len(w.LocalQueues) > 0 // a file without any may just not have them
	if c.namespace == "" {
		c.namespace = "default"
	}
	return w, nil
}

func (c *explaining) print(cmd *cobra.Command, e *explain.Explanation) error {
	return writeAnswer(cmd.OutOrStdout(), c.output, e, func(w io.Writer) error {
		_, err := w.Write(explanationText(e))
		return err
	})
}
