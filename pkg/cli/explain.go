// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/explain"
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
		Use:   "explain POD | KIND/NAME",
		Short: "Say why a pod, a gang or a job waits, or why it is where it is",
		Long: `Say why a pod waits: one dominant reason, what it is seen by, and the next step; then
how many nodes refuse the pod for what, the nearest nodes with the fewest pods that are
in the way there, and what the pod would get if it asked for less. Of a pod that has a
node it shows the GPUs, the scores as they were when they were chosen, and the best that
it could have now.

KIND is pod, podgroup, job, elasticjob, deployment, statefulset, jobset, leaderworkerset or
replicaset, or a short name of kubectl's, as ej, deploy, sts and lws. A plain NAME is a
pod, or else a PodGroup, or else one of the others. A member of a gang is explained by
its gang. Of what has several pods the first that waits is explained, and the others are
counted by what they wait for.

The command asks what the scheduler asks, of the objects that the cluster has now. What
a scheduler's process alone knows, such as choices on their way, it does not know; where
it finds a place and the scheduler does not, it says so and repeats the scheduler's words.
How nodes are compared it takes from the scheduler that leads, which publishes its profiles
in the ConfigMap nvtopo-scheduler-profiles; without that from the shipped profile. It
changes nothing.

--from reads files instead, or all .yaml, .yml and .json files of a folder: the output of
  kubectl get pods,nodes,leases,nodegputopologies,clustertopologies,podgroups -A -o yaml
and of configmaps of nvtopo-system, jobs, persistentvolumeclaims, storageclasses,
poddisruptionbudgets, workloads, localqueues, clusterqueues and elasticjobs where there
are some. Their time is that of the last renewal of a Lease.`,
		Example: `  NVTOPO explain trainer-0
  NVTOPO explain -n vision job/resnet
  NVTOPO explain -n vision deploy/server
  NVTOPO explain podgroup/llm -o yaml
  NVTOPO explain trainer-0 --from cluster.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one pod, or one KIND/NAME, see '%s --help'", cmd.CommandPath())
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

// explainTarget is the object to explain; an empty kind stands for any kind.
type explainTarget struct{ kind, name string }

// explainKind is a kind of objects that can be explained.
type explainKind struct {
	name  string   // in arguments
	group string   // of its API
	other []string // other names in kubectl
	of    func(w *explain.World, namespace, name string) (*explain.Explanation, error)
}

// explainKinds returns all kinds, in the order in which a plain name is looked up.
func explainKinds() []explainKind {
	kinds := []explainKind{
		{"pod", "", []string{"pods", "po"}, explain.Pod},
		{"podgroup", "scheduling.x-k8s.io", []string{"podgroups", "pg"}, explain.PodGroup},
	}
	known := map[string]explainKind{
		"Job":             {group: "batch", other: []string{"jobs"}},
		"ElasticJob":      {group: v1alpha1.GroupName, other: []string{"elasticjobs", "ej"}},
		"Deployment":      {group: "apps", other: []string{"deployments", "deploy"}},
		"StatefulSet":     {group: "apps", other: []string{"statefulsets", "sts"}},
		"ReplicaSet":      {group: "apps", other: []string{"replicasets", "rs"}},
		"JobSet":          {group: "jobset.x-k8s.io", other: []string{"jobsets", "js"}},
		"LeaderWorkerSet": {group: "leaderworkerset.x-k8s.io", other: []string{"leaderworkersets", "lws"}},
	}
	for _, owner := range explain.Owners() {
		k := known[owner]
		k.name, k.of = strings.ToLower(owner), func(w *explain.World, namespace, name string) (*explain.Explanation, error) {
			return explain.Owner(w, owner, namespace, name)
		}
		kinds = append(kinds, k)
	}
	return kinds
}

// explainKindOf returns the kind with a name of kubectl's, with or without its API group; false if there
// is none.
func explainKindOf(text string) (explainKind, bool) {
	name, group, qualified := strings.Cut(text, ".")
	all := explainKinds()
	at := slices.IndexFunc(all, func(k explainKind) bool {
		return (k.name == name || slices.Contains(k.other, name)) && (!qualified || k.group == group)
	})
	if at < 0 {
		return explainKind{}, false
	}
	return all[at], true
}

// kindNames returns the names of the kinds that can be explained.
func kindNames() []string {
	var out []string
	for _, k := range explainKinds() {
		out = append(out, k.name)
	}
	return out
}

func parseTarget(arg string) (explainTarget, error) {
	kind, name, ok := strings.Cut(arg, "/")
	switch {
	case arg == "":
		return explainTarget{}, usagef("the name is empty: want NAME, or KIND/NAME")
	case !ok:
		return explainTarget{"", arg}, nil
	}
	k, known := explainKindOf(kind)
	switch {
	case !known:
		return explainTarget{}, usagef("%q: there is no kind %q that can be explained: want NAME, or KIND/NAME with one of %s", arg, kind, formList(kindNames()))
	case name == "":
		return explainTarget{}, usagef("%q: want %s/NAME", arg, k.name)
	}
	return explainTarget{k.name, name}, nil
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

// explain explains the object with the name: a pod first, then the other kinds.
func (t explainTarget) explain(w *explain.World, namespace string) (*explain.Explanation, error) {
	var last error
	for _, k := range explainKinds() {
		if t.kind != "" && t.kind != k.name {
			continue
		}
		e, err := k.of(w, namespace, t.name)
		if !errors.Is(err, explain.ErrNotFound) {
			return e, err
		}
		last = err
	}
	if t.kind == "" {
		return nil, fmt.Errorf("no %s %s/%s: %w", formList(kindNames()), namespace, t.name, explain.ErrNotFound)
	}
	return nil, last
}

// readFiles reads objects from files.
func (c *explaining) readFiles(cmd *cobra.Command) (*explain.World, error) {
	o, err := readSaved(cmd, c.from, c.clock)
	if err != nil {
		return nil, err
	}
	if c.namespace == "" {
		c.namespace = "default"
	}
	// A file without any may just leave them out.
	return &explain.World{Objects: *o, ClaimsKnown: len(o.Claims) > 0, QueuesKnown: len(o.LocalQueues) > 0}, nil
}

func (c *explaining) print(cmd *cobra.Command, e *explain.Explanation) error {
	return writeAnswer(cmd.OutOrStdout(), c.output, e, func(w io.Writer) error {
		_, err := w.Write(explanationText(e))
		return err
	})
}
