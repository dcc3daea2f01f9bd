// SPDX-License-Identifier: Apache-2.0

package clusterobjects

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	sigsyaml "sigs.k8s.io/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

// Add reads objects in the form of `kubectl get -o yaml` or `-o json`, single or in
// lists, and schedulers' states in the form of their debug address. Objects of other
// kinds are passed over.
func (o *Objects) Add(data []byte) error {
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for i := 1; ; i++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			doc, err = sigsyaml.YAMLToJSONStrict(doc)
		}
		if err == nil {
			err = o.addDocument(doc)
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// head is the part of a document that identifies its kind, or the state of a scheduler.
type head struct {
	metav1.TypeMeta

	Metadata struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

func (h *head) name() string {
	return strings.TrimPrefix(h.Metadata.Namespace+"/"+h.Metadata.Name, "/")
}

func (o *Objects) addDocument(doc []byte) error {
	if bytes.Equal(bytes.TrimSpace(doc), []byte("null")) {
		return nil
	}
	var h head
	if err := json.Unmarshal(doc, &h); err != nil {
		return err
	}
	switch {
	case h.Items != nil:
		for i, item := range h.Items { // those of a PodList do not say that they are Pods
			if err := o.addObject(item, metav1.TypeMeta{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")}); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
		return nil
	case h.Kind == "":
		return o.addState(doc)
	}
	return o.addObject(doc, metav1.TypeMeta{})
}

// addState reads a document without a kind: the state of a scheduler.
func (o *Objects) addState(doc []byte) error {
	var h struct {
		Version        int    `json:"version"`
		RequestTimeout string `json:"requestTimeout"`
	}
	if err := json.Unmarshal(doc, &h); err != nil || h.Version == 0 || h.RequestTimeout == "" {
		return errors.New("neither an object, nor a list of them, nor a scheduler's state")
	}
	s, err := diagnosis.ParseState(doc)
	if err != nil {
		return fmt.Errorf("a scheduler's state: %w", err)
	}
	o.Schedulers = append(o.Schedulers, *s)
	return nil
}

// AddJSON reads one object of a kind in JSON, faster than Add.
func (o *Objects) AddJSON(kind Kind, data []byte) error {
	r := readings[kind]
	return o.add(&r, data)
}

// addObject reads one object in JSON. list is its type if the object itself has none.
func (o *Objects) addObject(data []byte, list metav1.TypeMeta) error {
	var h head
	if err := json.Unmarshal(data, &h); err != nil {
		return err
	}
	if list.Kind != "" {
		h.APIVersion, h.Kind = cmp.Or(h.APIVersion, list.APIVersion), cmp.Or(h.Kind, list.Kind)
	}
	if h.Kind == "" || h.APIVersion == "" {
		return fmt.Errorf("%s %s: it has no apiVersion or no kind", cmp.Or(h.Kind, "object"), h.name())
	}
	for _, r := range readings {
		if r.is.Kind == h.Kind && r.is.GroupVersion().String() == h.APIVersion {
			return o.add(&r, data)
		}
	}
	for _, r := range readings {
		if group, version, _ := strings.Cut(h.APIVersion, "/"); r.is.Kind == h.Kind && r.is.Group == group && r.is.Group != "" {
			o.fault("%s %s: version %s is not read, only %s: it counts as not there", h.Kind, h.name(), version, r.is.Version)
		}
	}
	return nil
}

// maxFaults bounds Faults.
const maxFaults = 16

func (o *Objects) fault(format string, args ...any) {
	if len(o.Faults) < maxFaults {
		o.Faults = append(o.Faults, fmt.Sprintf(format, args...))
	}
}

// add reads one object of a kind.
func (o *Objects) add(r *reading, data []byte) error {
	err := r.add(o, data)
	if err == nil {
		return nil
	}
	var h head
	if json.Unmarshal(data, &h) != nil {
		return fmt.Errorf("%s: %w", r.is.Kind, err)
	}
	return fmt.Errorf("%s %s: %w", r.is.Kind, h.name(), err)
}
