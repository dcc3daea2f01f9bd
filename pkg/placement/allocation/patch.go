// SPDX-License-Identifier: Apache-2.0

package allocation

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Writes reports whether a profile writes the annotation key; aliases enables the keys of other systems.
func Writes(key string, aliases bool) bool {
	return IsOutputKey(key) && (aliases || !isAlias(key))
}

// ChoiceBody returns a strategic merge patch that sets the annotations of an unbound pod and adds
// finalizers to it. It has the pod's UID: the API server refuses it for another pod of the name. It sets
// the node name to null: the API server refuses it for a pod that a late Binding of an earlier attempt has
// bound, whose containers may have that attempt's GPUs. It removes annotations of an earlier attempt that
// this one does not set.
func ChoiceBody(pod *v1.Pod, annotations map[string]string, aliases bool, finalizers ...string) ([]byte, error) {
	type meta struct {
		UID         types.UID          `json:"uid"`
		Annotations map[string]*string `json:"annotations"`
		Finalizers  []string           `json:"finalizers,omitempty"`
	}
	all := map[string]*string{}
	for _, key := range slices.AppendSeq(OutputKeys(), maps.Keys(pod.Annotations)) {
		if Writes(key, aliases) {
			all[key] = nil
		}
	}
	for key, value := range annotations {
		all[key] = &value
	}
	type spec struct {
		NodeName *string `json:"nodeName"`
	}
	b, err := json.Marshal(struct {
		Metadata meta `json:"metadata"`
		Spec     spec `json:"spec"`
	}{Metadata: meta{UID: pod.UID, Annotations: all, Finalizers: finalizers}})
	if err != nil {
		return nil, fmt.Errorf("encoding the annotations: %w", err)
	}
	return b, nil
}

// CorrectionBody returns a merge patch that makes the pod's output annotations equal to wanted. With its
// UID and resource version the API server refuses it for another pod of the name, and for one that has
// changed since it was read.
func CorrectionBody(pod *v1.Pod, wanted map[string]string) ([]byte, error) {
	type meta struct {
		UID             types.UID          `json:"uid"`
		ResourceVersion string             `json:"resourceVersion"`
		Annotations     map[string]*string `json:"annotations"`
	}
	all := map[string]*string{}
	for key := range pod.Annotations {
		if IsOutputKey(key) {
			all[key] = nil
		}
	}
	for key, value := range wanted {
		all[key] = &value
	}
	b, err := json.Marshal(struct {
		Metadata meta `json:"metadata"`
	}{meta{UID: pod.UID, ResourceVersion: pod.ResourceVersion, Annotations: all}})
	if err != nil {
		return nil, fmt.Errorf("encoding the annotations: %w", err)
	}
	return b, nil
}
