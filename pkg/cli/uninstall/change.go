// SPDX-License-Identifier: Apache-2.0

package uninstall

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

// Change is the part that a step removes from an object that is kept.
type Change int

// Changes.
const (
	NoChange Change = iota
	// WithoutFinalizers removes the project's finalizers.
	WithoutFinalizers
	// WithoutMarks removes the labels and annotations that nvtopo wrote on a Node, and its cordon.
	WithoutMarks
	// WithoutAgent has a device plugin register with kubelet again.
	WithoutAgent
	// WithoutCheck removes the pool controller's admission check from a ClusterQueue.
	WithoutCheck
)

// The folders in which device plugins register: the agent's (docs/node-agent.md), and kubelet's.
const (
	socketVariable = "KUBELET_SOCKET"
	agentFolder    = "/var/lib/kubelet/device-plugins/nvtopo"
	kubeletFolder  = "/var/lib/kubelet/device-plugins"
)

// patch returns a JSON merge patch that makes the change, and a description of the removed parts; empty if
// there are none.
func (c Change) patch(o *Object) (patch map[string]any, what []string) {
	switch c {
	case WithoutFinalizers:
		return withoutFinalizers(o)
	case WithoutMarks:
		return withoutMarks(o)
	case WithoutAgent:
		if o.GetKind() == "ClusterPolicy" {
			return withoutAgentOfOperator(o)
		}
		return withoutAgent(o)
	case WithoutCheck:
		return withoutCheck(o)
	case NoChange:
	}
	return nil, nil
}

func withoutFinalizers(o *Object) (map[string]any, []string) {
	kept, what := []any{}, []string(nil)
	for _, f := range o.GetFinalizers() {
		if isOurFinalizer(f) {
			what = append(what, "finalizer "+f)
		} else {
			kept = append(kept, f)
		}
	}
	if len(what) == 0 {
		return nil, nil
	}
	return map[string]any{"metadata": map[string]any{"finalizers": kept}}, what
}

// withoutMarks removes the keys that the exporter and the pool controller alone wrote: a key that another
// manager wrote too is kept. NVIDIA's labels stay, by which a node's devices are divided. A node that was
// cordoned to be divided is uncordoned, since no other program would uncordon it.
func withoutMarks(o *Object) (map[string]any, []string) {
	keys := writtenBy(o.GetManagedFields(), exporterManager, aliasManager)
	for _, key := range writtenBy(o.GetManagedFields(), poolManager)["annotations"] {
		if strings.HasPrefix(key, poolv1alpha1.GroupName+"/") {
			keys["annotations"] = append(keys["annotations"], key)
		}
	}
	meta, what := map[string]any{}, []string(nil)
	for _, field := range []string{"labels", "annotations"} {
		there, gone := o.GetLabels(), map[string]any{}
		if field == "annotations" {
			there = o.GetAnnotations()
		}
		for _, key := range keys[field] {
			if _, ok := there[key]; ok {
				gone[key] = nil
				what = append(what, strings.TrimSuffix(field, "s")+" "+key)
			}
		}
		if len(gone) > 0 {
			meta[field] = gone
		}
	}
	if len(what) == 0 {
		return nil, nil
	}
	slices.Sort(what)
	patch := map[string]any{"metadata": meta}
	if slices.Contains(what, "annotation "+names.AnnotationCordon) {
		patch["spec"] = map[string]any{"unschedulable": nil}
		what = append(what, "cordon for its devices to be divided")
	}
	return patch, what
}

// writtenBy returns the labels and annotations that these managers wrote and no others.
func writtenBy(fields []metav1.ManagedFieldsEntry, managers ...string) map[string][]string {
	ours, others := map[[2]string]bool{}, map[[2]string]bool{}
	for i := range fields {
		f := &fields[i]
		if f.FieldsV1 == nil {
			continue
		}
		var written struct {
			Metadata map[string]json.RawMessage `json:"f:metadata"`
		}
		if err := json.Unmarshal(f.FieldsV1.Raw, &written); err != nil {
			continue // the server writes this format; an entry that cannot be read has no owner
		}
		into := others
		if slices.Contains(managers, f.Manager) {
			into = ours
		}
		for _, field := range []string{"labels", "annotations"} {
			var keys map[string]json.RawMessage
			if json.Unmarshal(written.Metadata["f:"+field], &keys) != nil {
				continue // it has none
			}
			for key := range keys {
				if key, ok := strings.CutPrefix(key, "f:"); ok {
					into[[2]string{field, key}] = true
				}
			}
		}
	}
	out := map[string][]string{}
	for k := range ours {
		if !others[k] {
			out[k[0]] = append(out[k[0]], k[1])
		}
	}
	return out
}

// withoutAgent changes a DaemonSet of a device plugin that registers with the agent: by the variable
// of NVIDIA's plugin, or by the folder that is mounted in place of kubelet's.
func withoutAgent(o *Object) (map[string]any, []string) {
	spec := mapAt(o.Object, "spec", "template", "spec")
	containers, what := listAt(spec, "containers"), []string(nil)
	for _, c := range containers {
		container, _ := c.(map[string]any)
		if env, ok := withoutSocket(listAt(container, "env")); ok {
			container["env"] = env
			what = append(what, fmt.Sprintf("variable %s of container %v", socketVariable, container["name"]))
		}
	}
	volumes := listAt(spec, "volumes")
	for _, v := range volumes {
		volume, _ := v.(map[string]any)
		host := mapAt(volume, "hostPath")
		if at, _ := host["path"].(string); path.Clean(at) == agentFolder {
			host["path"] = kubeletFolder
			what = append(what, fmt.Sprintf("folder %s of volume %v", agentFolder, volume["name"]))
		}
	}
	if len(what) == 0 {
		return nil, nil
	}
	changed := map[string]any{"containers": containers}
	if volumes != nil {
		changed["volumes"] = volumes
	}
	return map[string]any{"spec": map[string]any{"template": map[string]any{"spec": changed}}}, what
}

// withoutAgentOfOperator changes the ClusterPolicy from which the GPU Operator makes the plugin's
// DaemonSet.
func withoutAgentOfOperator(o *Object) (map[string]any, []string) {
	env, ok := withoutSocket(listAt(mapAt(o.Object, "spec", "devicePlugin"), "env"))
	if !ok {
		return nil, nil
	}
	return map[string]any{"spec": map[string]any{"devicePlugin": map[string]any{"env": env}}}, []string{"variable " + socketVariable + " of devicePlugin"}
}

// withoutCheck removes the placement check from a ClusterQueue: it is not answered any more, and each job
// would wait with its quota for ever.
func withoutCheck(o *Object) (map[string]any, []string) {
	checks := listAt(mapAt(o.Object, "spec", "admissionChecksStrategy"), "admissionChecks")
	kept := slices.DeleteFunc(slices.Clone(checks), func(c any) bool {
		check, _ := c.(map[string]any)
		return check["name"] == names.CheckPlacementObject
	})
	if len(kept) == len(checks) {
		return nil, nil
	}
	var strategy any // Kueue refuses an empty list
	if len(kept) > 0 {
		strategy = map[string]any{"admissionChecks": kept}
	}
	return map[string]any{"spec": map[string]any{"admissionChecksStrategy": strategy}}, []string{"admission check " + names.CheckPlacementObject}
}

// withoutSocket returns the variables without the one that sets the agent's socket.
func withoutSocket(env []any) ([]any, bool) {
	kept := slices.DeleteFunc(slices.Clone(env), func(v any) bool {
		variable, _ := v.(map[string]any)
		value, _ := variable["value"].(string)
		return variable["name"] == socketVariable && path.Dir(path.Clean(value)) == agentFolder
	})
	return kept, len(kept) < len(env)
}

// mapAt returns the map at a path, nil if there is none. The caller may change its content.
func mapAt(o map[string]any, fields ...string) map[string]any {
	for _, f := range fields {
		o, _ = o[f].(map[string]any)
	}
	return o
}

func listAt(o map[string]any, field string) []any {
	list, _ := o[field].([]any)
	return list
}
