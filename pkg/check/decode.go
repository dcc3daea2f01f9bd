// SPDX-License-Identifier: Apache-2.0

package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	sigsyaml "sigs.k8s.io/yaml"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// Add reads objects in the form of `kubectl get -o yaml` or `-o json`, single or in
// lists, and schedulers' states in the form of their debug address. Objects of other
// kinds are ignored. Use kubectl with `--show-managed-fields`: without it, a change
// after a choice cannot be told from a choice that was wrong.
func (w *World) Add(data []byte) error {
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; i++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			doc, err = sigsyaml.YAMLToJSON(doc)
		}
		if err == nil {
			err = w.addJSON(doc)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// head is the part that shows the kind of a document.
type head struct {
	APIVersion     string            `json:"apiVersion"`
	Kind           string            `json:"kind"`
	Items          []json.RawMessage `json:"items"`
	Version        int               `json:"version"`
	RequestTimeout string            `json:"requestTimeout"`
}

func (w *World) addJSON(doc []byte) error {
	if bytes.Equal(bytes.TrimSpace(doc), []byte("null")) {
		return nil
	}
	var h head
	if err := json.Unmarshal(doc, &h); err != nil {
		return err
	}
	for i, item := range h.Items {
		if err := w.addObject(item); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	switch {
	case h.Items != nil:
		return nil
	case h.Kind == "" && h.Version != 0 && h.RequestTimeout != "":
		d, err := decodeDiagnosis(doc, "a scheduler's state")
		if err != nil {
			return err
		}
		w.Schedulers = append(w.Schedulers, *d)
		return nil
	case h.Kind == "":
		return errors.New("neither an object, nor a list of them, nor a scheduler's state")
	}
	return w.addObject(doc)
}

func (w *World) addObject(data []byte) error {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	var err error
	switch h.Kind {
	case "PodGroup":
		if h.APIVersion == schedulingv1alpha1.SchemeGroupVersion.String() { // others have PodGroups, too
			w.PodGroups, err = decoded[schedulingv1alpha1.PodGroup](w.PodGroups, data)
		}
	case v1alpha1.ClusterTopologyKind, "ConfigMap":
		err = w.addNamed(h.Kind, data)
	case "PodDisruptionBudget":
		w.Budgets, err = decoded[policyv1.PodDisruptionBudget](w.Budgets, data)
	case "Pod":
		w.Pods, err = decoded[v1.Pod](w.Pods, data)
	case "Node":
		w.Nodes, err = decoded[v1.Node](w.Nodes, data)
	case "Lease":
		w.Leases, err = decoded[coordinationv1.Lease](w.Leases, data)
	case v1alpha1.Kind:
		w.Topologies, err = decoded[v1alpha1.NodeGPUTopology](w.Topologies, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.Kind, err)
	}
	return nil
}

// addNamed adds an object of which the one with the right name counts.
func (w *World) addNamed(kind string, data []byte) error {
	if kind == v1alpha1.ClusterTopologyKind {
		all, err := decoded[v1alpha1.ClusterTopology](nil, data)
		if err == nil && all[0].Name == v1alpha1.ClusterTopologyName {
			w.ClusterTopology = &all[0]
		}
		return err
	}
	all, err := decoded[v1.ConfigMap](nil, data)
	if err == nil && all[0].Name == diagnosis.ProfilesName {
		w.Published, err = diagnosis.ParseProfiles(all[0].Data)
	}
	return err
}

func decoded[T any](to []T, data []byte) ([]T, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return to, err
	}
	return append(to, v), nil
}
