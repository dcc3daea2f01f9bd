// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"
	sigsyaml "sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/diagnosis"
)

// Add reads objects in the form of `kubectl get -o yaml` or `-o json`, single or in lists. Objects
// of other kinds are ignored.
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
			err = w.addDocument(doc)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// head is the part that shows the kind of a document.
type head struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Items      []json.RawMessage `json:"items"`
}

func (w *World) addDocument(doc []byte) error {
	if bytes.Equal(bytes.TrimSpace(doc), []byte("null")) {
		return nil
	}
	var h head
	if err := json.Unmarshal(doc, &h); err != nil {
		return err
	}
	if h.Items == nil {
		return w.AddObject(doc)
	}
	for i, item := range h.Items {
		if err := w.AddObject(item); err != nil {
			return fmt.Errorf("items[%d]: %w", i, err)
		}
	}
	return nil
}

// AddObject reads one object in JSON.
func (w *World) AddObject(data []byte) error {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	read, known := w.readers()[h.APIVersion+" "+h.Kind]
	if !known {
		return nil
	}
	if err := read(data); err != nil {
		return fmt.Errorf("%s: %w", h.Kind, err)
	}
	return nil
}

// readers add an object of their kind, by apiVersion and kind.
func (w *World) readers() map[string]func([]byte) error {
	ours, groups, queues := topologyv1alpha1.SchemeGroupVersion.String()+" ", schedulingv1alpha1.SchemeGroupVersion.String()+" ", kueue.SchemeGroupVersion.String()+" "
	return map[string]func([]byte) error{
		"v1 Pod":                                    into(&w.Pods),
		"v1 Node":                                   into(&w.Nodes),
		"v1 ConfigMap":                              w.addProfiles,
		"v1 PersistentVolumeClaim":                  into(&w.Claims),
		"coordination.k8s.io/v1 Lease":              into(&w.Leases),
		"storage.k8s.io/v1 StorageClass":            into(&w.StorageClasses),
		"batch/v1 Job":                              into(&w.Jobs),
		"policy/v1 PodDisruptionBudget":             into(&w.Budgets),
		groups + "PodGroup":                         into(&w.PodGroups),
		ours + topologyv1alpha1.Kind:                into(&w.Topologies),
		queues + kueue.WorkloadKind:                 into(&w.Workloads),
		queues + kueue.LocalQueueKind:               into(&w.LocalQueues),
		queues + kueue.ClusterQueueKind:             into(&w.ClusterQueues),
		ours + topologyv1alpha1.ClusterTopologyKind: w.addClusterTopology,
	}
}

// addClusterTopology takes the one that counts.
func (w *World) addClusterTopology(data []byte) error {
	var all []topologyv1alpha1.ClusterTopology
	if err := into(&all)(data); err != nil {
		return err
	}
	if all[0].Name == topologyv1alpha1.ClusterTopologyName {
		w.ClusterTopology = &all[0]
	}
	return nil
}

// addProfiles takes the ConfigMap in which a scheduler publishes its profiles.
func (w *World) addProfiles(data []byte) error {
	var all []v1.ConfigMap
	if err := into(&all)(data); err != nil {
		return err
	}
	if all[0].Name != diagnosis.ProfilesName {
		return nil
	}
	var err error
	w.Published, err = diagnosis.ParseProfiles(all[0].Data)
	return err
}

// into reads objects into a list.
func into[T any](to *[]T) func([]byte) error {
	return func(data []byte) error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		*to = append(*to, v)
		return nil
	}
}

// Moment is when the objects were read, as far as they show it: the last renewal of a Lease. It is
// zero without Leases.
func (w *World) Moment() (last time.Time) {
	for i := range w.Leases {
		if at := w.Leases[i].Spec.RenewTime; at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}
