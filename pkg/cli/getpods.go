// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nvtopo/nvtopo/pkg/clusterview"
	"github.com/nvtopo/nvtopo/pkg/webui/documents"
)

// gettingPods is the command get pods with its flags.
type gettingPods struct {
	out       viewOutput
	source    clusterSource
	namespace string
	all       bool // namespaces
	state     string
}

// podList is the answer of get pods.
type podList struct {
	Moment time.Time      `json:"moment"` // when the objects were read
	Counts map[string]int `json:"counts"` // of the pods that are listed, by state
	Items  []listedPod    `json:"items"`
}

// listedPod is a pod as the web view lists it, with the time that it waited for its node.
type listedPod struct {
	documents.Workload

	WaitSeconds int64 `json:"waitSeconds"` // until it had a node, or until now
}

func newGet() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "get",
		Short:   "List what has or wants GPUs",
		Long:    "List what has or wants GPUs: NVTOPO get pods.",
		Example: `  NVTOPO get pods -A`,
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newGetPods())
	return cmd
}

func newGetPods() *cobra.Command {
	o := &gettingPods{}
	cmd := &cobra.Command{
		Use:   "pods",
		Short: "List the pods that ask for GPUs, with the GPUs and links that they have",
		Long: `List the pods that ask for GPUs, one a line:
  STATE    pending: without a node; running: with one; failing: it failed, or a container
           cannot start or does not keep running; ended
  GPUS     how many it asks for
  INDICES  which it has, - where nobody knows
  LINK     the class of the weakest link of their ring, GB/S its bandwidth in one direction,
           and after / that of the best ring of as many on the empty machine if it is more
  GANG     the gang that it is a member of
  WAIT     how long it waited for its node, or has waited so far
With -o wide also its queue, and why it waits or fails in the scheduler's or
kubelet's words. NVTOPO explain POD says why a pod waits, and what would help.

` + saved,
		Example: `  NVTOPO get pods -A
  NVTOPO get pods -n vision --state pending -o wide
  NVTOPO get pods -A -o json | jq '.items[] | select(.quality > 0 and .quality < 0.5) | .name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.out.bind(cmd)
	o.source.bind(cmd)
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "namespace of the pods (default: the context's, with --from default)")
	suggest(cmd, "namespace", o.source.cluster.suggestNamespaces)
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "pods of all namespaces")
	f.StringVar(&o.state, "state", "", "only pods of this state: "+formList(documents.States()))
	suggest(cmd, "state", cobra.FixedCompletions(documents.States(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *gettingPods) check() error {
	if err := o.out.check(); err != nil {
		return err
	}
	switch {
	case o.all && o.namespace != "":
		return usagef("--all-namespaces and --namespace contradict each other")
	case o.state != "" && !slices.Contains(documents.States(), o.state):
		return usagef("--state %q: want %s", o.state, formList(documents.States()))
	}
	return nil
}

func (o *gettingPods) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	read, err := o.source.objects(cmd)
	if err != nil {
		return err
	}
	namespace, err := o.ofNamespace()
	if err != nil {
		return err
	}
	objects, err := read(cmd.Context())
	if err != nil {
		return err
	}
	list := o.list(objects, namespace)
	return o.out.write(cmd.OutOrStdout(), list, func(w io.Writer) error {
		return writePods(w, list, paletteFor(cmd.OutOrStdout()), o.out.wide())
	})
}

// ofNamespace is the namespace whose pods are listed; empty for all.
func (o *gettingPods) ofNamespace() (string, error) {
	switch {
	case o.all:
		return "", nil
	case len(o.source.from) > 0 && o.namespace == "":
		return metav1.NamespaceDefault, nil
	case len(o.source.from) > 0:
		return o.namespace, nil
	}
	return o.source.cluster.ownNamespace(o.namespace)
}

func (o *gettingPods) list(objects *clusterview.Objects, namespace string) *podList {
	v := clusterview.Of(objects, clusterview.Options{Resource: o.source.resource})
	created := map[types.UID]time.Time{}
	for i := range objects.Pods {
		created[objects.Pods[i].UID] = objects.Pods[i].CreationTimestamp.Time
	}
	list := &podList{Moment: v.Moment, Items: []listedPod{}}
	var kept []documents.Workload
	for _, w := range documents.WorkloadsOf(v, &documents.Sources{Pods: objects.Pods}) {
		if namespace != "" && w.Namespace != namespace || o.state != "" && w.State != o.state {
			continue
		}
		kept = append(kept, w)
		list.Items = append(list.Items, listedPod{w, int64(waited(&w, created[w.UID], v.Moment).Seconds())})
	}
	list.Counts = documents.CountsOf(kept)
	return list
}

// waited is how long a pod waited for its node; 0 where the time of its creation is not known.
func waited(w *documents.Workload, created, now time.Time) time.Duration {
	until := w.Since
	if w.Node == "" {
		until = now
	}
	if created.IsZero() {
		return 0
	}
	return max(0, until.Sub(created))
}

func writePods(w io.Writer, list *podList, p palette, wide bool) error {
	if len(list.Items) == 0 {
		printf(w, "There is no such pod that asks for GPUs.\n")
		return nil
	}
	t := &table{}
	head := []any{"NAMESPACE", "NAME", "STATE", "GPUS", "NODE", "INDICES", "LINK", "GB/S", "GANG", "WAIT"}
	if wide {
		head = append(head, "QUEUE", "REASON")
	}
	t.row(head...)
	for i := range list.Items {
		t.row(listedRow(&list.Items[i], p, wide)...)
	}
	if err := t.write(w); err != nil {
		return err
	}
	for i := range list.Items {
		if pod := &list.Items[i]; pod.State == documents.Pending {
			printf(w, "\n%s. Why: %s explain -n %s %s\n", waiting(list.Counts[documents.Pending]), programName, pod.Namespace, pod.Name)
			break
		}
	}
	return nil
}

// waiting says how many pods wait.
func waiting(n int) string {
	if n == 1 {
		return "1 pod waits"
	}
	return strconv.Itoa(n) + " pods wait"
}

func listedRow(pod *listedPod, p palette, wide bool) []any {
	state := safe(pod.State)
	switch pod.State {
	case documents.Pending:
		state = p.warning(pod.State)
	case documents.Failing:
		state = p.bad(pod.State)
	}
	indices := "-"
	if len(pod.GPUIndices) > 0 {
		indices = join(pod.GPUIndices)
	}
	row := []any{
		pod.Namespace, pod.Name, state, strconv.Itoa(pod.GPUs), orDash(pod.Node), indices, orDash(pod.LinkClass), ringSpeed(pod.BandwidthGBps, pod.BestGBps, p),
		orDash(pod.Gang), duration.HumanDuration(time.Duration(pod.WaitSeconds) * time.Second),
	}
	if wide {
		row = append(row, orDash(pod.Queue), orDash(pod.Reason))
	}
	return row
}
