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

	"k8s.io/apimachinery/pkg/util/yaml"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	topologyv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
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
func (w *World) AddObject(data []byte) (err error) {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	switch h.APIVersion + " " + h.Kind {
	case "v1 Pod":
		w.Pods, err = decoded(w.Pods, data)
	case "v1 Node":
		w.Nodes, err = decoded(w.Nodes, data)
	case "v1 PersistentVolumeClaim":
		w.Claims, err = decoded(w.Claims, data)
	case "coordination.k8s.io/v1 Lease":
		w.Leases, err = decoded(w.Leases, data)
	case "storage.k8s.io/v1 StorageClass":
		w.StorageClasses, err = decoded(w.StorageClasses, data)
	case "batch/v1 Job":
		w.Jobs, err = decoded(w.Jobs, data)
	case schedulingv1alpha1.SchemeGroupVersion.String() + " PodGroup":
		w.PodGroups, err = decoded(w.PodGroups, data)
	case topologyv1alpha1.SchemeGroupVersion.String() + " " + topologyv1alpha1.Kind:
		w.Topologies, err = decoded(w.Topologies, data)
	case topologyv1alpha1.SchemeGroupVersion.String() + " " + topologyv1alpha1.ClusterTopologyKind:
		var all []topologyv1alpha1.ClusterTopology
		if all, err = decoded(all, data); err == nil && all[0].Name == topologyv1alpha1.ClusterTopologyName {
			w.ClusterTopology = &all[0]
		}
	case kueue.SchemeGroupVersion.String() + " " + kueue.WorkloadKind:
		w.Workloads, err = decoded(w.Workloads, data)
	case kueue.SchemeGroupVersion.String() + " " + kueue.LocalQueueKind:
		w.LocalQueues, err = decoded(w.LocalQueues, data)
	case kueue.SchemeGroupVersion.String() + " " + kueue.ClusterQueueKind:
		w.ClusterQueues, err = decoded(w.ClusterQueues, data)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", h.Kind, err)
	}
	return nil
}

func decoded[T any](to []T, data []byte) ([]T, error) {
	var v T
	if err := json.Unmarshal(data, &v); err != nil {
		return to, err
	}
	return append(to, v), nil
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
