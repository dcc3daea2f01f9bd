// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nvtopo/nvtopo/pkg/inspect/clusterobjects"
	"github.com/nvtopo/nvtopo/pkg/inspect/clusterview"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
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

// podList is the output of get pods.
type podList struct {
	Moment time.Time      `json:"moment"` // when the objects were read
	Counts map[string]int `json:"counts"` // of the listed pods, by state
	Items  []listedPod    `json:"items"`
	// NoScheduler is why no scheduler leads, and how to see more; empty while one leads.
	NoScheduler string `json:"noScheduler,omitempty"`
}

// listedPod is a pod in the form of the web view, with the time that it waited for its node.
type listedPod struct {
	documents.Workload

	WaitSeconds int64 `json:"waitSeconds"` // until it had a node, or until now
	// GPUIDs are the GPUs in its annotation, if no graph has their indices.
	GPUIDs []string `json:"gpuIDs,omitempty"`
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
  INDICES  which it has; where no graph tells, the ids that its annotation has, shortened;
           - where nobody knows
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

// ofNamespace returns the namespace whose pods are listed; empty for all.
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

func (o *gettingPods) list(objects *clusterobjects.Objects, namespace string) *podList {
	v := clusterview.Of(objects, clusterview.Options{Resource: o.source.resource})
	pods := map[types.UID]*v1.Pod{}
	for i := range objects.Pods {
		pods[objects.Pods[i].UID] = &objects.Pods[i]
	}
	list := &podList{Moment: v.Moment, Items: []listedPod{}, NoScheduler: v.NoScheduler}
	var kept []documents.Workload
	for _, w := range documents.WorkloadsOf(v, objects) {
		if namespace != "" && w.Namespace != namespace || o.state != "" && w.State != o.state {
			continue
		}
		kept = append(kept, w)
		pod := pods[w.UID]
		listed := listedPod{Workload: w, WaitSeconds: int64(waited(&w, pod.CreationTimestamp.Time, v.Moment).Seconds())}
		if len(w.GPUIndices) == 0 {
			listed.GPUIDs = gpuIDs(pod, v.Resource)
		}
		list.Items = append(list.Items, listed)
	}
	list.Counts = documents.CountsOf(kept)
	return list
}

// gpuIDs returns the devices of a resource in a pod's own allocation on its node; nil if it has none.
func gpuIDs(pod *v1.Pod, resource string) (out []string) {
	a, err := allocation.Of(pod, pod.Spec.NodeName)
	if err != nil {
		return nil
	}
	for i := range a.Containers {
		for _, id := range a.Containers[i].GPUs {
			if a.Containers[i].Resource == resource && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// shortID is the length of a GPU's UUID in a table: GPU- and the first group.
const shortID = len("GPU-00000000")

// waited is how long a pod waited for its node; 0 if its creation time is not known.
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
	if err := writePodTable(w, list, p, wide); err != nil {
		return err
	}
	if list.NoScheduler != "" {
		printf(w, "\nProblem  %s\n", p.warning(list.NoScheduler))
	}
	return nil
}

func writePodTable(w io.Writer, list *podList, p palette, wide bool) error {
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

// waiting describes the number of waiting pods.
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
	} else if len(pod.GPUIDs) > 0 {
		var ids []string
		for _, id := range pod.GPUIDs {
			ids = append(ids, id[:min(len(id), shortID)])
		}
		indices = few(ids)
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
