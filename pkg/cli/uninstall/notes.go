// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nvtopo/nvtopo/internal/release"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/inspect/check"
	"github.com/nvtopo/nvtopo/pkg/placement/eviction"
)

const defaultScheduler = "default-scheduler"

// profiles returns the names of the scheduler's profiles: those in the configuration that the installed
// Deployment has in its flags.
func profiles(objects []Object) (names []string) {
	for i := range objects {
		d := &objects[i]
		if d.GetKind() != "Deployment" || !isInstalled(d) || stageOf(d) != StageScheduler {
			continue
		}
		spec := mapAt(d.Object, "spec", "template", "spec")
		for _, c := range listAt(spec, "containers") {
			container, _ := c.(map[string]any)
			for _, a := range listAt(container, "args") {
				arg, _ := a.(string)
				if file, ok := strings.CutPrefix(arg, "--config="); ok {
					names = append(names, profilesIn(objects, spec, path.Base(file))...)
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// profilesIn reads the profiles of a configuration in one of the ConfigMaps that a pod mounts.
func profilesIn(objects []Object, pod map[string]any, file string) (names []string) {
	for _, v := range listAt(pod, "volumes") {
		volume, _ := v.(map[string]any)
		name, _ := mapAt(volume, "configMap")["name"].(string)
		for i := range objects {
			m := &objects[i]
			if m.GetKind() != "ConfigMap" || !isInstalled(m) || m.GetName() != name {
				continue
			}
			text, _ := mapAt(m.Object, "data")[file].(string)
			var config struct {
				Profiles []struct {
					SchedulerName string `json:"schedulerName"`
				} `json:"profiles"`
			}
			if yaml.Unmarshal([]byte(text), &config) != nil {
				continue // the scheduler does not run with it either
			}
			for _, p := range config.Profiles {
				names = append(names, p.SchedulerName)
			}
		}
	}
	return names
}

// workloadNames are the values of nameLabel on the shipped workloads.
var workloadNames = []string{schedulerName, agentName, "nvtopo-exporter", "nvtopo-pool-controller", "nvtopo-ui"}

// refusal returns why nothing may be removed yet.
func refusal(objects []Object, now time.Time) string {
	var old []string
	for i := range objects {
		o := &objects[i]
		workload := o.GetKind() == "Deployment" || o.GetKind() == "DaemonSet"
		if workload && o.GetNamespace() == release.Namespace && !isInstalled(o) && slices.Contains(workloadNames, o.GetLabels()[nameLabel]) {
			old = append(old, o.String())
		}
	}
	if len(old) > 0 {
		slices.Sort(old)
		return fmt.Sprintf("an older build installed %s, without the label %s=%s by which this command knows what is nvtopo's: "+
			"apply this release first, by 'kubectl apply -k' or 'helm upgrade'", eviction.First(old, maxNamed), release.PartOfLabel, release.PartOf)
	}
	return unscheduled(objects, now)
}

// unscheduled returns why the scheduler may not be removed: it places the pods without a schedulerName,
// and no kube-scheduler leads.
func unscheduled(objects []Object, now time.Time) string {
	if !slices.Contains(profiles(objects), defaultScheduler) {
		return ""
	}
	for i := range objects {
		if o := &objects[i]; o.Resource.Resource == "leases" && o.GetNamespace() == kubeNamespace && o.GetName() == "kube-scheduler" && held(o, now) {
			return ""
		}
	}
	return "nvtopo's scheduler places the pods that name no scheduler, and no kube-scheduler holds the Lease kube-system/kube-scheduler: " +
		"move kube-scheduler.yaml back to /etc/kubernetes/manifests on the nodes of the control plane, and wait until it leads"
}

// held reports whether the holder of a Lease has renewed it lately.
func held(lease *Object, now time.Time) bool {
	spec := mapAt(lease.Object, "spec")
	renewed, _ := spec["renewTime"].(string)
	at, err := time.Parse(time.RFC3339Nano, renewed)
	seconds, _ := spec["leaseDurationSeconds"].(int64)
	holder, _ := spec["holderIdentity"].(string)
	return err == nil && holder != "" && now.Before(at.Add(time.Duration(seconds)*time.Second))
}

// notes are advice for the user.
func notes(objects []Object, r *Removal) (out []string) {
	add := func(names []string, format string) {
		if len(names) > 0 {
			slices.Sort(names)
			out = append(out, fmt.Sprintf(format, eviction.First(names, maxNamed)))
		}
	}
	names := profiles(objects)
	var waiting, jobs, divided, plugins []string
	for i := range objects {
		o := &objects[i]
		switch o.GetKind() {
		case "Pod":
			if waits(o, names) {
				waiting = append(waiting, o.GetNamespace()+"/"+o.GetName())
			}
		case "Job":
			if slices.ContainsFunc(o.GetOwnerReferences(), ownedByPool) {
				jobs = append(jobs, o.GetNamespace()+"/"+o.GetName())
			}
		case "Node":
			if keys := dividing(o); len(keys) > 0 {
				divided = append(divided, o.GetName()+" ("+strings.Join(keys, ", ")+")")
			}
		}
	}
	for i := range r.Steps {
		if s := &r.Steps[i]; s.Stage == StagePlugin {
			plugins = append(plugins, s.Object.String())
		}
	}
	add(waiting, "pods that name nvtopo's scheduler have no node and will get none: %s. Give their templates another schedulerName")
	add(jobs, "Jobs of ElasticJobs and RemoteGPUSessions run on and belong to nobody afterwards: %s. Delete them when they have ended; "+
		"pods that they make meanwhile have the finalizer pool.nvtopo.dev/metering, so run this command again then")
	add(divided, "nodes keep the labels by which NVIDIA's managers have divided their devices: %s. Drain a node before you change them")
	add(plugins, "kubelet has its GPUs again when the device plugin's pods have restarted: %s. "+
		"Take KUBELET_SOCKET out of the values of NVIDIA's chart too, or its next upgrade brings it back")
	return out
}

// waits reports whether a pod has no node and names nvtopo's scheduler, whose profiles have these names
// while it is installed. After that, pods of the shipped profile wait, and those on which the scheduler
// wrote that they have no place.
func waits(pod *Object, profiles []string) bool {
	spec := mapAt(pod.Object, "spec")
	scheduler, _ := spec["schedulerName"].(string)
	// Of pods with a node only the metadata was read, without schedulerName.
	if node, _ := spec["nodeName"].(string); node != "" || scheduler == "" || scheduler == defaultScheduler {
		return false
	}
	return scheduler == check.DefaultProfile || slices.Contains(profiles, scheduler) || wrote(pod, schedulerManager)
}

// ownedByPool reports whether an owner is an ElasticJob or a RemoteGPUSession.
func ownedByPool(r metav1.OwnerReference) bool {
	group, _, _ := strings.Cut(r.APIVersion, "/")
	return group == poolv1alpha1.GroupName
}

// dividing returns NVIDIA's labels that the pool controller wrote on a node.
func dividing(node *Object) (keys []string) {
	for _, key := range writtenBy(node.GetManagedFields(), poolManager)["labels"] {
		if _, there := node.GetLabels()[key]; there && strings.HasPrefix(key, "nvidia.com/") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
