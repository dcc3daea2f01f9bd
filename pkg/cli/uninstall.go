// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/cli/uninstall"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

// uninstalling has the flags of uninstall.
type uninstalling struct {
	form          string
	purge, dryRun bool
	patience      time.Duration
	cluster       clusterFlags
	now           func() time.Time
}

func newUninstall() *cobra.Command {
	o := &uninstalling{now: time.Now}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Take nvtopo out of a cluster, and leave running pods as they are",
		Long: `Remove nvtopo from the cluster of the kubeconfig, however it was installed, with the
rights of its user. Look first with --dry-run: it lists each step and changes nothing.
The stages, in order:
  agent         the node agents, whose pods have to end
  plugin        NVIDIA's device plugin registers with kubelet again: KUBELET_SOCKET, or the
                mounted folder, is taken out of its DaemonSet or of the GPU Operator's
                ClusterPolicy
  programs      exporters, pool controller and web view, whose pods have to end
  policies      admission policies
  objects       NodeGPUTopologies, ClusterTopologies, pools with their queues of Kueue,
                ElasticJobs and sessions; Jobs that these made run on. The placement check
                of jobs is taken out of other ClusterQueues too
  nodes         labels and annotations that the exporter wrote on Nodes
  leases        those of exporters, agents and pool controller
  scheduler     the scheduler, last of the programs
  finalizers    nvtopo's finalizers on pods, records and others
  installation  roles, accounts, configuration, Helm's record of the release
  namespace     nvtopo-system, once nothing is left in it
What is nvtopo's is known by the label app.kubernetes.io/part-of=nvtopo, by the API
groups of its kinds, and by who wrote a field. An installation of a build without that
label gets it by 'kubectl apply -k' or 'helm upgrade' with this release.

What stays: running pods with their annotations, until they end; accounts, price books,
invoices and records of usage; WorkloadPriorityClasses of Kueue, which jobs may name; the
definitions of nvtopo's kinds. --purge removes all but the pods, before the namespace.
Files on nodes stay (docs/install.md).

Pods that name nvtopo's scheduler and have no node wait afterwards: each run names them.
Once it is gone, they are those of the profile topology-aware-scheduler, and those that
it had tried to place. A cluster in which it places all pods is left as it is until
kube-scheduler runs again.

With -o json, and --dry-run, the answer is one object:
  steps  stage, action (delete or change), the object, and what a change takes away
  kept   what stays, and why
  notes  what to do besides

The exit code is 1 where nvtopo cannot be removed yet, and 3 where the cluster refused
something: what was done stays done, and the command may be run again.`,
		Example: `  NVTOPO uninstall --dry-run
  NVTOPO uninstall`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	bindForm(cmd, &o.form, plainForms[:]...)
	o.cluster.bind(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "list the steps, change nothing")
	f.BoolVar(&o.purge, "purge", false, "remove accounts, prices, invoices and records of usage too, priorities of jobs, and the definitions of nvtopo's kinds")
	f.DurationVar(&o.patience, "timeout", 5*time.Minute, "longest wait for the pods of a program to end, or for an object to go")
	return cmd
}

func (o *uninstalling) run(cmd *cobra.Command) error {
	switch {
	case checkForm(o.form, plainForms[:]...) != nil:
		return checkForm(o.form, plainForms[:]...)
	case o.form != plainForms[0] && !o.dryRun:
		return usagef("--output %s: it is for --dry-run", o.form)
	case o.patience <= 0:
		return usagef("--timeout %v: want more than 0", o.patience)
	}
	config, err := o.cluster.config()
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	config.QPS, config.Burst = clusterQPS, 2*clusterQPS
	c, err := uninstall.New(config)
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	objects, err := c.Read(cmd.Context())
	if err != nil {
		return inputf("cluster %s: %w", config.Host, err)
	}
	opts := uninstall.Options{Purge: o.purge, Now: o.now()}
	plan := uninstall.Plan(objects, opts)
	if o.dryRun {
		answer := removalOf(plan)
		return writeAnswer(cmd.OutOrStdout(), o.form, answer, answer.write)
	}
	if plan.Refused != "" {
		return noAnswerf("%s", plan.Refused)
	}
	before := removalOf(plan) // its notes are about pods and objects that exist now
	w := cmd.OutOrStdout()
	r := &uninstall.Runner{Cluster: c, Patience: o.patience, Done: func(s *uninstall.Step) {
		if s.Change == uninstall.NoChange {
			printf(w, "deleted %s\n", s.Object.String())
		} else {
			printf(w, "changed %s, without %s\n", s.Object.String(), few(s.What))
		}
	}}
	after, err := r.Uninstall(cmd.Context(), objects, opts)
	if err != nil {
		return inputf("cluster %s: %w", config.Host, err)
	}
	end := removalOf(after)
	end.Notes = before.Notes
	return end.writeRest(w, "nothing of nvtopo is left")
}

// removal is the output of uninstall --dry-run; its JSON form is part of the command's contract.
type removal struct {
	Refused string        `json:"refused,omitempty"`
	Steps   []removalStep `json:"steps"`
	Going   []string      `json:"going,omitempty"` // deleted already, and held by finalizers
	Kept    []keptObject  `json:"kept"`
	Notes   []string      `json:"notes"`
}

// removalStep is one object that is deleted or changed.
type removalStep struct {
	Stage     string   `json:"stage"`
	Action    string   `json:"action"` // delete or change
	Kind      string   `json:"kind"`
	Namespace string   `json:"namespace,omitempty"`
	Name      string   `json:"name"`
	Without   []string `json:"without,omitempty"`
}

// keptObject is an object of nvtopo's that is kept.
type keptObject struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Why       string `json:"why"`
}

func removalOf(plan *uninstall.Removal) *removal {
	out := &removal{Refused: plan.Refused, Steps: []removalStep{}, Kept: []keptObject{}, Notes: slices.Concat([]string{}, plan.Notes)}
	for i := range plan.Steps {
		s := &plan.Steps[i]
		action := "delete"
		if s.Change != uninstall.NoChange {
			action = "change"
		}
		out.Steps = append(out.Steps, removalStep{s.Stage.String(), action, s.Object.GetKind(), s.Object.GetNamespace(), s.Object.GetName(), s.What})
	}
	if s := plan.Later; s != nil {
		out.Steps = append(out.Steps, removalStep{Stage: uninstall.StageNamespace.String(), Action: "delete", Kind: s.GetKind(), Name: s.GetName()})
	}
	for i := range plan.Going {
		out.Going = append(out.Going, plan.Going[i].String())
	}
	for i := range plan.Kept {
		k := &plan.Kept[i]
		out.Kept = append(out.Kept, keptObject{k.Object.GetKind(), k.Object.GetNamespace(), k.Object.GetName(), k.Why})
	}
	return out
}

// write writes the plan for people.
func (r *removal) write(w io.Writer) error {
	if r.Refused != "" {
		printf(w, "Nothing would be removed: %s\n\n", r.Refused)
	}
	if len(r.Steps) == 0 {
		return r.writeRest(w, "nothing of nvtopo is there")
	}
	t := &table{}
	t.row("STAGE", "ACTION", "OBJECT", "WITHOUT")
	for i := range r.Steps {
		s := &r.Steps[i]
		name := s.Name
		if s.Namespace != "" {
			name = s.Namespace + "/" + name
		}
		t.row(s.Stage, s.Action, s.Kind+" "+name, few(s.Without))
	}
	if err := t.write(w); err != nil {
		return err
	}
	printf(w, "\n")
	if err := r.writeRest(w, "nothing of nvtopo would be left"); err != nil {
		return err
	}
	printf(w, "With -o json this names each object that stays and all that a change takes away.\n")
	return nil
}

// few lists the names that fit into a line. The JSON form has all.
func few(all []string) string {
	if len(all) == 2 {
		return strings.Join(all, ", ") // the second is as short as its number
	}
	return eviction.First(all, 1)
}

// maxKept is the number of kept objects of a kind that are named.
const maxKept = 3

// writeRest writes the kept objects and the next steps, or end if there are none.
func (r *removal) writeRest(w io.Writer, end string) error {
	for _, g := range r.Going {
		printf(w, "%s is being deleted, and is gone when what holds it has ended\n", g)
	}
	byKind := map[[2]string][]string{}
	var order [][2]string
	for _, k := range r.Kept {
		key, name := [2]string{k.Kind, k.Why}, k.Name
		if k.Namespace != "" {
			name = k.Namespace + "/" + name
		}
		if byKind[key] == nil {
			order = append(order, key)
		}
		byKind[key] = append(byKind[key], name)
	}
	for _, key := range order {
		if names := byKind[key]; len(names) == 1 {
			printf(w, "kept %s %s: %s\n", key[0], names[0], key[1])
		} else {
			printf(w, "kept %d of kind %s (%s): %s\n", len(names), key[0], eviction.First(names, maxKept), key[1])
		}
	}
	for _, n := range r.Notes {
		printf(w, "%s\n", n)
	}
	if len(r.Kept)+len(r.Notes)+len(r.Going) == 0 {
		printf(w, "%s\n", end)
	}
	return nil
}
