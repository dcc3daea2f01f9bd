// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeverify"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/smi"
	"github.com/nvtopo/nvtopo/pkg/placement/allocation"
)

var (
	errNoPod         = errors.New("kubelet's record is on the node, and is read of a pod that is named")
	errNoAnnotations = errors.New("the annotation is not here; --annotations names a file that has it")
	errOutside       = errors.New("nvidia-smi is not run in the container")
)

// verifiedPod is a pod and its node's graph in the cluster, or why there is none.
type verifiedPod struct {
	pod      *v1.Pod
	graph    *input
	graphErr error
}

// ownContainer verifies a process and all that it started.
func (v *verifying) ownContainer(cmd *cobra.Command, root fs.FS) (*nodeverify.Report, error) {
	processes, err := nodeverify.ReadTree(root, v.pid)
	if err != nil {
		return nil, inputf("%w", err)
	}
	on, err := v.surroundings(cmd, root, nil, nil)
	if err != nil {
		return nil, err
	}
	c := &nodeverify.Container{
		Name: v.container, Processes: processes, RecordErr: errNoPod, ListErr: errOutside, ChoiceErr: errNoAnnotations,
		Machine: on.machine, Graph: on.graph, GraphErr: on.graphErr, Unidentified: on.unidentified, Resource: v.resource,
	}
	if nodeverify.Beside(root, v.pid) {
		c.Listed, c.ListErr = v.list(cmd.Context())
	}
	if v.annotations != "" {
		if c.Choice, err = v.readChoice(cmd); err != nil {
			return nil, err
		}
		c.ChoiceErr = nil
		if c.Name == "" && len(c.Choice.Containers) == 1 {
			c.Name = c.Choice.Containers[0].Name
		}
	}
	return &nodeverify.Report{Containers: []*nodeverify.Result{nodeverify.Examine(c, "")}}, nil
}

// readChoice reads the allocation from a file of the downward API.
func (v *verifying) readChoice(cmd *cobra.Command) (*allocation.Allocation, error) {
	data, err := readFile(cmd, v.annotations)
	if err != nil {
		return nil, err
	}
	all, err := nodeverify.ParseAnnotations(string(data))
	if err != nil {
		return nil, inputf("--annotations %s: %w", v.annotations, err)
	}
	text, ok := all[allocation.Key]
	if !ok {
		return nil, inputf("--annotations %s: %s is not there", v.annotations, allocation.Key)
	}
	a, err := allocation.Parse(text)
	if err != nil {
		return nil, inputf("--annotations %s: %w", v.annotations, err)
	}
	return a, nil
}

// pod verifies the containers of a pod that runs on this machine.
func (v *verifying) pod(cmd *cobra.Command, root fs.FS, name string) (*nodeverify.Report, error) {
	of, err := v.readPod(cmd, name)
	if err != nil {
		return nil, err
	}
	pod := of.pod
	uid := kubeletUID(pod)
	containers, err := nodeverify.ReadPod(root, string(uid), containerIDs(pod))
	if err != nil {
		return nil, inputf("%w", err)
	}
	if v.container != "" {
		maps.DeleteFunc(containers, func(name string, _ []*nodeverify.Process) bool { return name != v.container })
	}
	if len(containers) == 0 {
		return nil, inputf("pod %s/%s is on node %q: no process of it is found in the cgroups under %s", pod.Namespace, pod.Name, pod.Spec.NodeName, v.root)
	}
	choice, choiceErr := allocation.Of(pod, pod.Spec.NodeName)
	record, recordErr := nodeverify.ReadRecord(root, uid, v.resource)
	on, err := v.surroundings(cmd, root, of.graph, of.graphErr)
	if err != nil {
		return nil, err
	}
	report := &nodeverify.Report{Namespace: pod.Namespace, Pod: pod.Name, Node: pod.Spec.NodeName}
	for _, name := range slices.Sorted(maps.Keys(containers)) {
		c := &nodeverify.Container{
			Name: name, Processes: containers[name], Choice: choice, ChoiceErr: choiceErr,
			Recorded: record[name], RecordErr: recordErr, ListErr: errOutside,
			Machine: on.machine, Graph: on.graph, GraphErr: on.graphErr, Unidentified: on.unidentified, Resource: v.resource,
		}
		inside := fmt.Sprintf("kubectl exec -n %s %s -c %s -- ", pod.Namespace, pod.Name, name)
		report.Containers = append(report.Containers, nodeverify.Examine(c, inside))
	}
	return report, nil
}

func (v *verifying) readPod(cmd *cobra.Command, name string) (*verifiedPod, error) {
	if len(v.from) > 0 {
		return v.readSavedPod(cmd, name)
	}
	namespace, err := v.cluster.ownNamespace(v.namespace)
	if err != nil {
		return nil, err
	}
	clients, err := v.cluster.clients()
	if err != nil {
		return nil, err
	}
	pod, err := clients.kube.CoreV1().Pods(namespace).Get(cmd.Context(), name, metav1.GetOptions{})
	if err != nil {
		return nil, inputf("%w", err)
	}
	s := source{node: pod.Spec.NodeName, resource: v.resource, kubeconfig: v.cluster.kubeconfig, context: v.cluster.context}
	of := &verifiedPod{pod: pod}
	of.graph, of.graphErr = s.load(cmd)
	return of, nil
}

func (v *verifying) readSavedPod(cmd *cobra.Command, name string) (*verifiedPod, error) {
	w, err := readSaved(cmd, v.from, clock.RealClock{})
	if err != nil {
		return nil, err
	}
	var found []*v1.Pod
	for i := range w.Pods {
		if p := &w.Pods[i]; p.Name == name && (v.namespace == "" || p.Namespace == v.namespace) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, inputf("--from: %d pods have the name %s, want one; see --namespace", len(found), name)
	}
	for i := range w.Topologies {
		if t := &w.Topologies[i]; t.Name == found[0].Spec.NodeName {
			s := source{resource: v.resource}
			of := &verifiedPod{pod: found[0]}
			of.graph, of.graphErr = s.fromObject(t, "NodeGPUTopology "+t.Name)
			return of, nil
		}
	}
	return &verifiedPod{pod: found[0], graphErr: fmt.Errorf("--from has no NodeGPUTopology %s", found[0].Spec.NodeName)}, nil
}

// surroundings are the properties that all containers of a machine share.
type surroundings struct {
	machine  nodeverify.Machine
	graph    *nvtopo.Graph
	graphErr error // why there is none
	// unidentified is why its GPUs have numbers in place of UUIDs.
	unidentified error
}

// surroundings reads them. in is the machine's graph in the cluster, and inErr why there is none.
func (v *verifying) surroundings(cmd *cobra.Command, root fs.FS, in *input, inErr error) (*surroundings, error) {
	on := &surroundings{}
	var err error
	if on.machine, err = nodeverify.ReadMachine(root); err != nil {
		return nil, inputf("%w", err)
	}
	switch {
	case v.file != "":
		on.graph, on.unidentified, err = v.readGraph(cmd, in)
		return on, err
	case in != nil:
		on.graph = in.graph
	default:
		if on.graph, on.graphErr = v.ask(cmd.Context()); on.graphErr != nil && inErr != nil {
			on.graphErr = fmt.Errorf("%w; %w", inErr, on.graphErr)
		}
	}
	return on, nil
}

// readGraph reads the graph of -f; unidentified is why its GPUs have no UUIDs. The text of nvidia-smi has
// none: they come from `nvidia-smi -L`, or else from the node's graph in the cluster, which may be nil.
func (v *verifying) readGraph(cmd *cobra.Command, node *input) (g *nvtopo.Graph, unidentified, err error) {
	s := source{file: v.file, resource: v.resource}
	in, err := s.load(cmd)
	if err != nil {
		return nil, nil, err
	}
	if in.object != nil {
		return in.graph, nil, nil
	}
	listed, err := v.list(cmd.Context())
	if err == nil {
		if err = identify(in.graph, listed); err != nil {
			err = fmt.Errorf("nvidia-smi -L: %w", err)
		}
	}
	if err != nil && node != nil && len(node.graph.GPUs) == len(in.graph.GPUs) && identify(in.graph, node.graph.GPUs) == nil {
		err = nil
	}
	if err != nil {
		unidentified = fmt.Errorf("%s has no UUIDs: %w", shownName(v.file), err)
	}
	return in.graph, unidentified, nil
}

// ask builds the graph from nvidia-smi's output.
func (v *verifying) ask(ctx context.Context) (*nvtopo.Graph, error) {
	text, err := v.smi(ctx, "topo", "-m")
	if err != nil {
		return nil, fmt.Errorf("where the GPUs are is not known: %w", smiError(err))
	}
	g, err := smi.Parse(bytes.NewReader(text), smi.Options{})
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi topo -m: %w", err)
	}
	listed, err := v.list(ctx)
	if err != nil {
		return nil, err
	}
	if err := identify(g, listed); err != nil {
		return nil, fmt.Errorf("nvidia-smi -L: %w", err)
	}
	return g, nil
}

// list returns the GPUs that nvidia-smi lists.
func (v *verifying) list(ctx context.Context) ([]nvtopo.GPU, error) {
	text, err := v.smi(ctx, "-L")
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi -L: %w", smiError(err))
	}
	gpus, err := smi.ParseList(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("nvidia-smi -L: %w", err)
	}
	return gpus, nil
}

// smiError adds nvidia-smi's error output to an error.
func smiError(err error) error {
	if ended, ok := errors.AsType[*exec.ExitError](err); ok && len(ended.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, bytes.TrimSpace(ended.Stderr))
	}
	return err
}

// identify sets the UUIDs of the GPUs of a graph that was read from text, all or none. The graph is not
// shared yet.
func identify(g *nvtopo.Graph, listed []nvtopo.GPU) error {
	at := make([]int, len(g.GPUs))
	for i := range g.GPUs {
		at[i] = slices.IndexFunc(listed, func(l nvtopo.GPU) bool { return l.Index == g.GPUs[i].Index })
		if at[i] < 0 {
			return fmt.Errorf("GPU %d is not listed", g.GPUs[i].Index)
		}
	}
	for i := range g.GPUs {
		g.GPUs[i].UUID, g.GPUs[i].Slices = listed[at[i]].UUID, listed[at[i]].Slices
	}
	return nil
}

// staticUID is an annotation of the mirror pod of a static pod, with the UID that kubelet uses for the
// static pod.
const staticUID = "kubernetes.io/config.hash"

// kubeletUID is the UID that kubelet uses for a pod.
func kubeletUID(pod *v1.Pod) types.UID {
	if own := pod.Annotations[staticUID]; own != "" && pod.Annotations[v1.MirrorPodAnnotationKey] != "" {
		return types.UID(own)
	}
	return pod.UID
}

// containerIDs maps the runtime's ids of the pod's containers to their names.
func containerIDs(pod *v1.Pod) map[string]string {
	ids := map[string]string{}
	for _, all := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range all {
			if _, id, ok := strings.Cut(all[i].ContainerID, "://"); ok && id != "" {
				ids[id] = all[i].Name
			}
		}
	}
	return ids
}
