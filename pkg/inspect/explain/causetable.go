// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/placement"
	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
	"github.com/nvtopo/nvtopo/pkg/placement/podrequest"
)

// CauseRow is what is said of one cause, of pods and gangs alike.
type CauseRow struct {
	Cause Cause
	// Condition is when it is the cause. Of a cause that lies in a node it is what the scheduler says of the node.
	Condition string
	// Next is what to do about it, where the explanation has no better step; empty: people have to judge.
	Next string
}

// Causes are all causes but those of further resources ("Insufficient NAME"), in the order in which the
// reference has them.
func Causes() []CauseRow { return causes }

// nextSteps are the table's by cause.
var nextSteps = func() map[Cause]string {
	out := map[Cause]string{}
	for _, r := range causes {
		out[r.Cause] = r.Next
	}
	return out
}()

// Parts of steps that do not always help, see step.
const (
	moving   = "move those that may be moved"
	suitable = "more models or less memory"
)

// step is the table's step for pods of some shapes: to ask for less of what they ask, and to move the pods
// of a node, with the commands, unless none has only such as may be moved.
func (e *Explanation) step(shapes []*question) string {
	next := nextSteps[e.Cause]
	if e.Cause == causeOf(placement.StaleGraph) {
		return silentStep(e.firstWith(e.Cause))
	}
	switch model, memory := haveKey(shapes, podrequest.GPUModelKey), haveKey(shapes, podrequest.MinGPUMemoryKey); {
	case model && !memory:
		next = strings.Replace(next, suitable, "more models", 1)
	case memory && !model:
		next = strings.Replace(next, suitable, "less memory", 1)
	}
	steps := strings.Split(strings.ReplaceAll(next, ", or ", ", "), ", ")
	at := slices.Index(steps, moving)
	if at < 0 {
		return next
	}
	for i := range e.Candidates {
		if steps[at] = e.Candidates[i].move(); steps[at] != "" {
			return anyOf(steps)
		}
	}
	if len(e.Candidates) > 0 && e.Candidates[0].homeless() {
		steps[at] = fmt.Sprintf("end %s for good (%s: scale down what makes them again)", strings.Join(e.Candidates[0].pods(), " and "), noRoomElsewhere)
		return anyOf(steps)
	}
	return anyOf(slices.Delete(steps, at, at+1))
}

// silentStep is the step where a node's exporter is silent.
func silentStep(node string) string {
	return "see why the exporter of node " + node + " is silent: " + nodelease.Commands(release.Namespace, nodelease.ExporterPrefix, node)
}

// firstWith is the first node that is named for an obstacle; NODE where none is.
func (e *Explanation) firstWith(cause Cause) string {
	for i := range e.Candidates {
		if c := &e.Candidates[i]; slices.ContainsFunc(c.Obstacles, func(o Obstacle) bool { return o.Cause == cause }) {
			return c.Node
		}
	}
	return "NODE"
}

// move returns the step that moves the pods in the way to other nodes. It is empty if one of them stays or has
// no other node, or if a name from a file could mean something else to a shell. The node is cordoned until the
// replacements have nodes, since they would come back to it.
func (c *Candidate) move() string {
	var deletes []string
	last := ""
	for _, b := range c.Blockers {
		namespace, name, _ := strings.Cut(b.Pod, "/")
		for _, s := range []string{c.Node, namespace, name} {
			if len(validation.IsDNS1123Subdomain(s)) > 0 {
				return ""
			}
		}
		switch {
		case b.Stays != "" || b.MovesTo == "":
			return ""
		case namespace == last:
			deletes[len(deletes)-1] += " " + name
		default:
			deletes, last = append(deletes, "kubectl -n "+namespace+" delete pod "+name), namespace
		}
	}
	replacements := "its replacement has a node"
	switch len(c.Blockers) {
	case 0:
		return ""
	case 1:
	default:
		replacements = "their replacements have nodes"
	}
	return fmt.Sprintf("move %s off %s (kubectl cordon %s; %s; and once %s: kubectl uncordon %s)",
		strings.Join(c.pods(), " and "), c.Node, c.Node, strings.Join(deletes, "; "), replacements, c.Node)
}

// haveKey reports whether one of the pods has an annotation, under any of its names.
func haveKey(shapes []*question, key string) bool {
	return slices.ContainsFunc(shapes, func(q *question) bool {
		for k := range q.pod.Annotations {
			if podrequest.CanonicalKey(k) == key {
				return true
			}
		}
		return false
	})
}

// shippedLease has the next steps about the scheduler in the namespace that nvtopo is installed in.
var shippedLease = diagnosis.LeaderLease{Namespace: release.Namespace}

// ofNode is the row of a cause that the scheduler has a reason for.
func ofNode(r placement.Reason, next string) CauseRow { return CauseRow{causeOf(r), r.String(), next} }

var causes = []CauseRow{
	{OtherScheduler, "the pod names a scheduler under which nvtopo places nothing", "set spec.schedulerName, or ask that scheduler"},
	{SchedulingGated, "the pod has scheduling gates", "whoever set the gates has to take them away"},
	{Unreadable, "what the pod or its gang asks for cannot be read", "correct the value that is named"},
	{Suspended, "the Job is suspended and makes no pods", "set spec.suspend to false, or wait for whoever suspended it"},
	{NoQueue, "the job names no queue, or one that is not there", "create the LocalQueue, or correct the label kueue.x-k8s.io/queue-name"},
	{NoQuota, "Kueue has not admitted the job: others hold the quota", "wait for quota, or ask for more of it; the evidence says who holds it"},
	{OverQuota, "the job asks more than its ClusterQueue can ever have, with all that it may borrow", "ask for less, or have the quota of the ClusterQueue raised"},
	{NoPlaceYet, "the job has quota, and an admission check says no", "wait: the job is tried again when room comes free"},
	{VolumeMissing, "a PersistentVolumeClaim is not there", "create the PersistentVolumeClaim, or correct its name in the pod"},
	{VolumeUnbound, "a PersistentVolumeClaim must be bound first and is not", "see why the claim is not bound: kubectl describe pvc"},
	{GangIncomplete, "fewer members exist than start together", "create the missing members, or lower the number that starts together"},
	{NoScheduler, "there is a place, and no scheduler leads: its Lease is not there, has no holder, or has run out; or nothing of nvtopo is in the cluster", shippedLease.NextStep()},
	{WaitsForItsTurn, "there is a place, and the scheduler has not said no", shippedLease.TurnStep()},
	{OtherPlugin, "there is a place as far as GPUs go, and the scheduler refuses for something else", "read the scheduler's message: what it names is not about GPUs"},
	{NoNodes, "there are no nodes", "add nodes"},
	{NeverFits, "there is no room even if no other pod ran, no node were cordoned, all GPUs were healthy and all exporters were there; lacks names the causes", "ask for what the cluster has, or add nodes"},
	{Cordoned, "only nodes that are cordoned would do", "uncordon the nodes, or wait"},
	{NotReady, "only nodes would do that Kubernetes keeps pods from for their conditions", "see the conditions of the nodes: kubectl describe node"},
	{Tainted, "only nodes would do whose taint the pod does not tolerate", "let the pod tolerate the taint if it belongs there, or take the taint away"},
	{NotSelected, "only nodes would do that the node selector or required affinity leaves out", "correct the node selector or affinity, or label nodes"},
	{Fragmented, "as many GPUs are free as are asked, on too many nodes", "wait for the pods that are named, " + moving + ", or ask for fewer GPUs on one node"},
	{NoDomain, "the gang would have a place, but not in one domain of the level that it requires", "wait for room in one domain, or let the gang be in a greater one"},
	{HostPort, "members of a gang want one host port, and there are fewer nodes than members", "add nodes, or let the members do without the host port"},
	{KeptApart, "members of a gang have an anti-affinity to each other, and there are fewer nodes than members", "add nodes, or loosen the anti-affinity of the members"},
	{FewCPUs, "pods hold the CPUs that are missing, or other members of the gang would", "ask for less CPU, move pods that hold it, or add nodes"},
	{LowMemory, "pods hold the memory that is missing, or other members of the gang would", "ask for less memory, move pods that hold it, or add nodes"},
	{TooManyPods, "the node runs as many pods as its kubelet takes", "move pods, or raise kubelet's maxPods"},
	{LostGPUs, "pods hold GPUs that are unhealthy or gone, and these count until the pods go", "delete or restart the pods that are named: what they hold is lost, and counts until they go"},
	{UnhealthyGPUs, "only nodes would do whose GPUs are unhealthy", "have the GPUs repaired: nvtopo topology NODE shows which are unhealthy, and why"},
	{WholeGPUsOnly, "GPUs are partitioned or shared under the name of whole ones", "ask for fewer GPUs, or let the device plugin offer parts and shares under another resource name"},
	ofNode(placement.FewGPUs, "wait for the pods that are named, "+moving+", or add nodes"),
	ofNode(placement.NoGraph, "run the exporter on the nodes that have GPUs"),
	ofNode(placement.StaleGraph, silentStep("NODE")),
	ofNode(placement.NodeReplaced, "wait for the exporter of the new node, or restart it"),
	ofNode(placement.UnreadableGraph, "read the conditions of the NodeGPUTopology, and upgrade the older program"),
	ofNode(placement.NoDefinition, "install the definitions: manifests/crd, or the chart"),
	ofNode(placement.NotEnforced, "run the node agent on the nodes"),
	ofNode(placement.DegradedGPUs, "have the degraded GPUs repaired, or move pods off the others"),
	ofNode(placement.FewSuitableGPUs, "accept "+suitable+", or wait for such GPUs"),
	ofNode(placement.FewOneModel, "set nvtopo.dev/allow-mixed-models, or ask for fewer GPUs"),
	ofNode(placement.FewInNUMA, "ask for a looser nvtopo.dev/topology-policy, wait for the pods that are named, or "+moving),
	ofNode(placement.FewLinked, "ask for a lesser nvtopo.dev/min-link, wait for the pods that are named, or "+moving),
	ofNode(placement.LowBandwidth, "ask for a lesser nvtopo.dev/min-bandwidth, wait for the pods that are named, or "+moving),
	ofNode(placement.UnknownDevices, "have the pods without a choice of GPUs made by this scheduler, or moved"),
	ofNode(placement.UnknownNUMA, "loosen nvtopo.dev/topology-policy or nvtopo.dev/numa-affinity, or have the exporter read the machine's sysfs; with a file, one that nvtopo export wrote with --numactl"),
	ofNode(placement.UnknownGPUMemory, "leave out nvtopo.dev/min-gpu-memory: the driver does not tell the memory of these GPUs; nvtopo.dev/gpu-model chooses them as well"),
	ofNode(placement.UnknownGPUModel, "leave out nvtopo.dev/gpu-model, or run the exporter with --gpu-model if it reads a file"),
	ofNode(placement.NoNUMACPU, "ask for fewer CPUs, or let them be on other NUMA nodes"),
	ofNode(placement.NoNUMAMemory, "ask for less memory, or let it be on other NUMA nodes"),
	ofNode(placement.KubeletRefuses, "ask for what one NUMA node has, or run on nodes whose kubelet has a looser topologyManagerPolicy"),
	ofNode(placement.KubeletElsewhere, "loosen the pod's demands, or run on nodes whose kubelet has a looser topologyManagerPolicy"),
	ofNode(placement.KubeletBusy, "wait: kubelet is admitting other pods"),
	ofNode(placement.GPUCountMismatch, "ask for GPUs that can be split among the containers"),
}
